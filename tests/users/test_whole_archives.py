"""An archive that was cut is refused, and what a thread has forgotten goes along."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory, OptionError
from tests.helpers.threads import append
from tests.helpers.types import Make

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
    records, other = CUTS[cut](exported(plain)), make_memory(key_prefix=f"{prefix}b")
    with pytest.raises(OptionError, match=r"the archive is not whole: .*nothing was imported"):
        other.users.load(records)
    assert other.threads.get("t") is None


def test_a_whole_archive_ends_with_the_numbers_of_its_records(plain: Memory, make_memory: Make, prefix: str) -> None:
    records, other = exported(plain), make_memory(key_prefix=f"{prefix}b")
    assert records[-1] == {"kind": "end", "records": {"thread": 1, "message": 3}}
    assert other.users.load(records).messages == 3
    with pytest.raises(OptionError, match="it stands behind the last record"):
        other.users.load([*records, records[4]])


# ---------------------------------------------------------------------- what was forgotten

TOLD: list[BaseMessage] = [
    HumanMessage("hello", id="q0"),
    AIMessage("hi", id="a0"),
    HumanMessage("my pin is 1234", id="q1"),
    AIMessage("noted 1234", id="a1"),
    HumanMessage("thanks", id="q2"),
    AIMessage("welcome", id="a2"),
]


def test_a_client_that_resends_all_brings_nothing_back_after_an_import(
    plain: Memory, make_memory: Make, prefix: str
) -> None:
    plain.save_turn(TOLD, thread_id="t", user_id="u")
    plain.history.delete(["q1", "a1"], thread_id="t")
    memory, records = make_memory(key_prefix=f"{prefix}b"), list(plain.users.export("u"))
    for _ in range(2):  # a second import changes nothing
        memory.users.load(records)
        assert list(memory.users.export("u")) == records
    sent = [HumanMessage("next", id="q3"), AIMessage("and so on", id="a3")]
    memory.save_turn([*TOLD, *sent], thread_id="t", user_id="u")
    assert [one.text for one in memory.history.messages("t", superseded=True)] == [
        "hello",
        "hi",
        "thanks",
        "welcome",
        "next",
        "and so on",
    ]
