"""How an import is written, in steps and behind what is there, and what is refused before anything is written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory, OptionError, WorkingMemoryOptions
from langchain_workingmem._engine.plan import Command
from langchain_workingmem._redis.scripts import WRITE
from langchain_workingmem.threads import copies
from tests.helpers.threads import append
from tests.helpers.types import Make
from tests.users.samples import HEADER, MEMORY, THREAD, message

pytestmark = pytest.mark.in_turn("face")


def test_messages_behind_newer_ones_take_a_time_behind_them(plain: Memory) -> None:
    at = datetime(2020, 1, 1, tzinfo=UTC)
    first, second = (f"{at + timedelta(seconds=place):%Y-%m-%dT%H:%M:%S+00:00}" for place in (9, 5))
    plain.users.load([HEADER, THREAD, message("1", stored_at=first), message("2", stored_at=second)])
    times = [row.stored_at for row in plain.history.page("t").items]
    assert times == [at + timedelta(seconds=9), at + timedelta(seconds=9, microseconds=1)]


def test_revisions_are_counted_on_from_the_highest(make_memory: Make) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(template=""))
    highest = {**MEMORY, "revision": 2**48}
    memory.users.load([HEADER, {**highest, "revisions": [highest]}])
    for number in (1, 2):
        assert memory.working_memory.update(f"{number}", user_id="u", mode="replace").revision == 2**48 + number


def test_messages_that_are_too_large_for_one_step_are_written_in_several(
    plain: Memory, commands: list[Command], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "STEP_BYTES", 10_000)
    bodies = [
        message(message={"type": "human", "data": {"content": "x" * 3000, "id": f"{number}"}}) for number in range(9)
    ]
    assert plain.users.load([HEADER, THREAD, *bodies]).messages == 9
    writes = [command for command in commands if command[1:2] == (WRITE.sha,)]
    sizes = [sum(len(one) for one in write if isinstance(one, str | bytes)) for write in writes]
    assert len(sizes) == 3
    assert max(sizes) < 11_000


def test_a_mark_that_somebody_has_written_into_an_archive_counts_for_nothing(plain: Memory) -> None:
    marks = {"langchain_workingmem": {"content": "FORBIDDEN", "mac": "0" * 32}, "lc_source": "summarization", "own": 1}
    given = {"type": "human", "data": {"content": "harmless", "id": "m", "additional_kwargs": marks}}
    assert plain.users.load([HEADER, THREAD, message(message=given)]).messages == 1
    (stored,) = plain.history.messages("t")
    assert (stored.content, stored.additional_kwargs) == ("harmless", {"own": 1})
    (_, shown) = plain.context("and?", thread_id="t", user_id="u").messages[:2]
    assert "FORBIDDEN" not in str(shown.content)


def test_an_import_adds_what_is_missing_and_nothing_that_was_deleted(plain: Memory) -> None:
    records = [HEADER, {**THREAD, "title": "of the archive", "deleted": ["d"]}, *(message(id) for id in "abc")]
    plain.users.load(records)
    plain.history.delete(["b"], thread_id="t")
    report = plain.users.load([*records, message("e"), message("d"), message("e")])
    assert (report.messages, report.skipped) == (1, 5)
    assert [one.id for one in plain.history.messages("t")] == ["a", "c", "e"]


ROW: dict[str, Any] = {"covers": [], "replaces": [], "waits": False, "body": {}}
ROW |= {"id": 1, "row": "observations", "cites": ["\ud800"]}
SYSTEM = {"type": "system", "data": {"content": "x", "id": "m"}}
BROKEN: list[tuple[list[Any], str]] = [
    (["{}"], r"record 1: the record is of type str.*json\.loads"),
    ([{**HEADER, "version": 2}], "record 1: this is not a header of 'langchain-workingmem' in version 1"),
    ([{**HEADER, "user_id": None}], "record 1: user_id is missing"),
    ([HEADER, HEADER], "record 2: kind 'header' is unknown"),
    ([HEADER, {**THREAD, "title": 5}], "record 2: title=5"),
    ([HEADER, {**THREAD, "metadata": {"a": 10**5000}}], "record 2: metadata 'a' is not JSON"),
    ([HEADER, {**THREAD, "created_at": "1969-12-31T23:00:00Z"}], "record 2: .*from 1970 to 2249"),
    ([HEADER, message()], "record 2: .*thread_id is 't', behind thread None"),
    ([HEADER, THREAD, message(None)], "record 3: .*the message has no id"),
    ([HEADER, THREAD, message(message={"type": "human"})], "record 3: .*message is not a dict with type and data"),
    ([HEADER, THREAD, message(message=SYSTEM)], "record 3: .*a system"),
    ([HEADER, THREAD, message(superseded="no")], "record 3: superseded"),
    ([HEADER, THREAD, message(vectors={"settings": "0", "data": ["%%%"]})], "record 3: "),
    ([HEADER, {**MEMORY, "revision": 2**53 - 1}], f"record 2: revision.*{2**48}"),
    ([HEADER, {**MEMORY, "revisions": [MEMORY, MEMORY]}], "record 2: .*revision 1 follows 1"),
    ([HEADER, {**MEMORY, "document": "x" * 65_537}], r"record 2: .*document has 65,537 bytes, .*max_bytes"),
    ([HEADER, THREAD, message(), {"kind": "rows", "thread_id": "t", "rows": [ROW]}], "record [47]: .*lone surrogate"),
]


@pytest.mark.parametrize(("records", "complaint"), BROKEN)
def test_a_record_that_cannot_be_read_is_refused_by_its_number(
    memory: Memory, raw: redis.Redis, prefix: str, records: list[Any], complaint: str
) -> None:
    with pytest.raises(OptionError, match=complaint):
        memory.users.load(records)
    if records[0] == HEADER:  # the same behind others
        later = re.sub(r"record ([23])", lambda found: f"record {int(found[1]) + 3}", complaint)
        with pytest.raises(OptionError, match=later):
            memory.users.load([HEADER, *[MEMORY] * 3, *records[1:]])
    assert not list(raw.scan_iter(f"{prefix}:*{{*")), "all is checked before anything is written"


@pytest.mark.parametrize("line", ["[" * 100_000, '{"a": ' + "9" * 5000 + "}", b"\xff"])
def test_a_line_that_is_no_json_is_refused_by_its_number(
    plain: Memory, raw: redis.Redis, prefix: str, line: Any
) -> None:
    whole = [json.dumps(HEADER), json.dumps(THREAD)]
    for lines in ([line], [*whole, line]):
        with pytest.raises(OptionError, match=f"record {len(lines)}: .*; nothing was imported"):
            plain.users.load(map(json.loads, lines))
    assert not list(raw.scan_iter(f"{prefix}:*{{*"))


@pytest.mark.parametrize("records", ["text", {"kind": "header"}, None])
def test_what_is_no_list_of_records_is_refused(plain: Memory, records: Any) -> None:
    with pytest.raises(OptionError, match=r"json\.loads"):
        plain.users.load(records)


Records = list[dict[str, Any]]
CUTS: dict[str, Callable[[Records], list[Any]]] = {
    "at its end": lambda records: records[:-1],
    "in the middle": lambda records: [*records[:3], *records[5:]],
    "behind the header": lambda records: records[:1],
    "with a foreign end": lambda records: [*records[:-1], {"kind": "end", "records": 5}],
}


def exported(memory: Memory) -> Records:
    append(memory, "one", "two", "three")
    return [json.loads(json.dumps(record)) for record in memory.users.export("u")]


@pytest.mark.parametrize("cut", CUTS)
def test_an_archive_that_lacks_something_is_refused(plain: Memory, make_memory: Make, prefix: str, cut: str) -> None:
    records, other = exported(plain), make_memory(key_prefix=f"{prefix}b")
    with pytest.raises(OptionError, match=r"the archive is not whole: .*nothing was imported"):
        other.users.load(CUTS[cut](records))
    assert other.threads.get("t") is None
    assert records[-1] == {"kind": "end", "records": {"thread": 1, "message": 3}}
    assert other.users.load(records).messages == 3
    with pytest.raises(OptionError, match="it stands behind the last record"):
        other.users.load([*records, records[4]])


TEXTS = ("hello", "hi", "my pin is 1234", "noted 1234", "thanks", "welcome")
TOLD: list[BaseMessage] = [(HumanMessage, AIMessage)[at % 2](text, id=f"{at}") for at, text in enumerate(TEXTS)]


def test_a_client_that_resends_all_brings_nothing_back_after_an_import(
    plain: Memory, make_memory: Make, prefix: str
) -> None:
    plain.save_turn(TOLD, thread_id="t", user_id="u")
    plain.history.delete(["2", "3"], thread_id="t")
    memory, records = make_memory(key_prefix=f"{prefix}b"), list(plain.users.export("u"))
    for _ in range(2):  # a second import changes nothing
        memory.users.load(records)
        assert list(memory.users.export("u")) == records
    sent = [HumanMessage("next", id="q3"), AIMessage("and so on", id="a3")]
    memory.save_turn([*TOLD, *sent], thread_id="t", user_id="u")
    left = [one.text for one in memory.history.messages("t", superseded=True)]
    assert left == ["hello", "hi", "thanks", "welcome", "next", "and so on"]
