"""Values go along where their messages go along: copies of threads, exports and imports."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from langchain_workingmem import Memory, OptionError, WorkingMemoryOptions
from tests.helpers.archives import unsealed
from tests.helpers.types import Make
from tests.keeping.world import ANY, keep, kept, keys_with, talk

IDS: Any = {"thread_id": "t", "user_id": "u"}


@pytest.fixture(params=["user", "thread"])
def memory(request: pytest.FixtureRequest, make_memory: Make) -> Memory:
    memory = make_memory(working_memory=WorkingMemoryOptions(schema=ANY, scope=request.param))
    talk(memory, "I live in Lisbon", "I moved to Xanadu", "and so on")
    memory.working_memory.update({"name": "Ann"}, **IDS)
    keep(memory, {"/city": "Lisbon"}, "q0")
    keep(memory, {"/city": "Xanadu"}, "q1", "a1")
    return memory


def told(memory: Memory, thread: str = "t", owner: str = "u") -> list[tuple[Any, ...]]:
    """Return the history of the city, and of each value the messages by what they say."""
    stored = {one.id: one.text for one in memory.history.messages(thread)}
    found = kept(memory, thread, owner).values.history("/city")
    return [(one.value, one.since, [stored.get(source.message_id) for source in one.sources]) for one in found]


# ---------------------------------------------------------------------- copies of threads


def test_a_copy_of_a_thread_has_its_values_by_its_own_messages(
    make_memory: Make, raw: redis.Redis, prefix: str
) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(schema=ANY, scope="thread"))
    talk(memory, "I live in Lisbon", "I moved to Xanadu")
    keep(memory, {"/city": "Lisbon"}, "q0")
    keep(memory, {"/city": "Xanadu"}, "q1", "a1")
    copy = memory.threads.clone("t", new_thread_id="c")
    assert memory.working_memory.get(thread_id="c").value == {"city": "Xanadu"}
    assert told(memory, "c") == told(memory)
    assert kept(memory, "c").cursor("c") == kept(memory).cursor("t") == 3
    memory.threads.delete("t")
    assert told(memory, "c")[0][0] == "Xanadu"
    memory.history.delete([copy.message_ids["q1"], copy.message_ids["a1"]], thread_id="c")
    assert memory.working_memory.get(thread_id="c").value == {"city": "Lisbon"}
    assert keys_with(raw, prefix, "Xanadu") == []


def test_the_keeper_of_a_user_has_read_a_copy_as_far_as_its_source(make_memory: Make) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(schema=ANY))
    talk(memory, "I live in Lisbon", "and more")
    keep(memory, {"/city": "Lisbon"}, "q0", "a0")
    memory.threads.clone("t", new_thread_id="c")
    assert kept(memory).cursor("c") == 1
    memory.history.delete(["q0", "a0"], **IDS)
    assert memory.working_memory.get(**IDS).value is None


# ---------------------------------------------------------------------- archives


def exported(memory: Memory) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(one)) for one in unsealed(memory.users.export("u"))]


def test_an_import_brings_values_back(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    before, cursor = told(memory), kept(memory).cursor("t")
    records = exported(memory)
    memory.users.delete("u")
    memory.users.load(records)
    assert memory.working_memory.get(**IDS).value == {"name": "Ann", "city": "Xanadu"}
    assert told(memory) == before
    assert kept(memory).cursor("t") == cursor
    again = [{**one, "revision": 0, "revisions": 0, "updated_at": 0} for one in exported(memory)]
    assert again[1:] == [{**one, "revision": 0, "revisions": 0, "updated_at": 0} for one in records[1:]]
    memory.history.delete(["q1", "a1"], **IDS)
    assert memory.working_memory.get(**IDS).value == {"name": "Ann", "city": "Lisbon"}
    assert keys_with(raw, prefix, "Xanadu") == []


def test_an_import_twice_changes_nothing(memory: Memory) -> None:
    records = exported(memory)
    memory.users.delete("u")
    memory.users.load(records)
    once = exported(memory)
    memory.users.load(records)
    assert exported(memory) == once


def test_values_whose_messages_say_something_else_by_now_are_left_out(make_memory: Make, memory: Memory) -> None:
    records = exported(memory)
    memory.users.delete("u")
    talk(memory, "I live in Porto", "I moved to Xanadu")  # the same ids
    memory.users.load(records)
    assert [one[0] for one in told(memory)] == ["Xanadu"]


def test_a_memory_that_is_there_stays(memory: Memory) -> None:
    records = exported(memory)
    memory.working_memory.update({"city": "Porto"}, **IDS)
    memory.users.load(records)
    assert memory.working_memory.get(**IDS).value["city"] == "Porto"


def test_an_export_after_a_deletion_holds_no_word_of_it(memory: Memory) -> None:
    memory.history.delete(["q1", "a1"], **IDS)
    records = exported(memory)
    assert "Xanadu" not in json.dumps(records)
    memory.users.delete("u")
    memory.users.load(records)
    assert memory.working_memory.get(**IDS).value == {"name": "Ann", "city": "Lisbon"}
    assert any(one.text == "" for one in memory.working_memory.revisions(**IDS))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"path": "city"}, "'city' is no path"),
        ({"origin": "nobody"}, "origin 'nobody' is unknown"),
        ({"said_at": "soon"}, "said_at"),
        ({"sources": [["t"]]}, "message_id"),
        ({"value": float("nan")}, "value"),
    ],
)
def test_a_claim_that_cannot_be_stored_is_refused(memory: Memory, change: dict[str, Any], problem: str) -> None:
    records = exported(memory)
    (values,) = (one for one in records if one["kind"] == "values")
    values["claims"][0] |= change
    with pytest.raises(OptionError, match=problem):
        memory.users.load(records, user_id="u")
