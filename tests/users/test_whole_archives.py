"""An archive that was cut or changed is recognised by its last record, and what a thread has forgotten goes along."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory, OptionError
from tests.helpers.threads import append, said
from tests.helpers.types import Make

Records = list[dict[str, Any]]
CUTS: dict[str, tuple[Callable[[Records], list[Any]], str]] = {
    "at its end": (
        lambda records: records[:-1],
        "the end of the archive, which stops behind 1 of kind 'thread', 3 of kind 'message'",
    ),
    "before its last messages": (lambda records: records[:-3], "the end of the archive, .* 1 of kind 'message'"),
    "in the middle": (lambda records: [*records[:3], *records[5:]], "2 of kind 'message' of the archive"),
    "behind the header": (lambda records: records[:1], "the end of the archive, which stops behind no record"),
    "with a foreign end": (
        lambda records: [*records[:-1], {"kind": "end", "records": 5}],
        "the end of the archive, which stops behind",
    ),
}


def exported(memory: Memory) -> Records:
    append(memory, "one", "two", "three")
    return [json.loads(json.dumps(record)) for record in memory.users.export("u")]


@pytest.mark.parametrize("cut", CUTS)
def test_an_archive_that_lacks_something_is_refused_unless_that_is_allowed(
    plain: Memory, make_memory: Make, prefix: str, cut: str
) -> None:
    change, lacks = CUTS[cut]
    records, other = change(exported(plain)), make_memory(key_prefix=f"{prefix}b")
    with pytest.raises(OptionError, match=f"the records lack .*{lacks}.*nothing was imported.*allow_partial=True"):
        other.users.load(records)
    assert other.threads.get("t") is None
    report = other.users.load(records, allow_partial=True)
    assert report.messages == sum(record["kind"] == "message" for record in records)
    assert lacks.partition(",")[0] in str(report.missing)


def test_a_whole_archive_lacks_nothing_and_ends_with_its_last_record(
    plain: Memory, make_memory: Make, prefix: str
) -> None:
    records, other = exported(plain), make_memory(key_prefix=f"{prefix}b")
    assert records[-1]["records"] == {"thread": 1, "message": 3}
    assert other.users.load(records).missing is None
    with pytest.raises(OptionError, match="it stands behind the last record"):
        other.users.load([*records, records[4]])


def test_changed_records_are_imported_with_a_warning(
    plain: Memory, make_memory: Make, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    records, other = exported(plain), make_memory(key_prefix=f"{prefix}b")
    renamed = [
        {**one, "id" if one["kind"] == "thread" else "thread_id": "s"} if {"thread_id", "id"} & {*one} else one
        for one in records
    ]
    assert other.users.load(renamed, resource_id="v").missing is None
    assert len(other.history.messages("s")) == 3
    assert "some records are not as they were exported" in caplog.text


def test_a_line_that_was_cut_ends_what_is_imported(plain: Memory, make_memory: Make, prefix: str) -> None:
    lines = [json.dumps(record) for record in exported(plain)]
    lines, other = [*lines[:4], lines[4][:40], *lines[5:]], make_memory(key_prefix=f"{prefix}b")
    with pytest.raises(OptionError, match="record 5: the record cannot be read"):
        other.users.load(map(json.loads, lines))
    report = other.users.load(map(json.loads, lines), allow_partial=True)
    assert (report.messages, "the end of the archive" in str(report.missing)) == (2, True)


# ---------------------------------------------------------------------- what was forgotten

SECRET = "my pin is 1234"
TOLD: list[BaseMessage] = [
    HumanMessage("hello", id="q0"),
    AIMessage("hi", id="a0"),
    HumanMessage(SECRET, id="q1"),
    AIMessage("noted 1234", id="a1"),
    HumanMessage("thanks", id="q2"),
    AIMessage("welcome", id="a2"),
]


def forgetful(memory: Memory, *ids: str) -> None:
    memory.save_turn(TOLD, thread_id="t", resource_id="u")
    memory.history.delete(ids, thread_id="t")


def texts(memory: Memory, thread: str) -> list[str]:
    return [one.text for one in memory.history.messages(thread, superseded=True)]


@pytest.mark.parametrize("without_ids", [False, True])
@pytest.mark.parametrize("ids", [("q1", "a1"), ("q2", "a2"), ("q0", "a0", "q1", "a1")])
@pytest.mark.parametrize("way", ["clone", "archive"])
def test_a_client_that_resends_all_brings_nothing_back_into_a_copy(
    plain: Memory, make_memory: Make, prefix: str, way: str, ids: tuple[str, ...], *, without_ids: bool
) -> None:
    forgetful(plain, *ids)
    left = [one.text for one in TOLD if one.id not in ids]
    if way == "clone":
        memory, thread = plain, plain.threads.clone("t").thread.id
    else:
        memory, thread = make_memory(key_prefix=f"{prefix}b"), "t"
        records = list(plain.users.export("u"))
        for _ in range(2):  # a second import changes nothing
            memory.users.load(records)
            assert list(memory.users.export("u")) == records
    assert texts(memory, thread) == left
    sent = [HumanMessage("next", id="q3"), AIMessage("and so on", id="a3")]
    resent = [one.model_copy(update={"id": None}) if without_ids else one for one in [*TOLD, *sent]]
    memory.save_turn(resent, thread_id=thread, resource_id="u")
    assert texts(memory, thread) == [*left, "next", "and so on"]


@pytest.mark.parametrize("change", [{"gap": "x"}, {"ids": ["a\nb", 5]}, {"thread_id": "other"}])
def test_what_a_record_has_forgotten_is_checked(plain: Memory, change: dict[str, Any]) -> None:
    header = {"kind": "header", "format": "langchain-workingmem", "version": 8, "resource_id": "u"}
    record = {"kind": "forgotten", "thread_id": "t", "ids": ["m"]} | change
    with pytest.raises(OptionError, match=r"record 3: .*nothing was imported"):
        plain.users.load([header, {"kind": "thread", "id": "t"}, record])


def test_many_places_around_the_steps_of_an_import(plain: Memory, make_memory: Make, prefix: str) -> None:
    plain.history.append(said(*map(str, range(450))), thread_id="t", resource_id="u")
    gone = [str(number) for number in range(450) if number % 50 in (0, 49)]
    plain.history.delete(gone, thread_id="t")
    records, other = list(plain.users.export("u")), make_memory(key_prefix=f"{prefix}b")
    other.users.load(records)
    assert list(other.users.export("u")) == records
    plain.threads.clone("t", new_thread_id="c")
    kinds = [
        [
            one.get("gap")
            for one in plain.users.export("u")
            if one.get("thread_id") == id and one["kind"] != "working_memory"
        ]
        for id in "tc"
    ]
    assert kinds[0] == kinds[1]
