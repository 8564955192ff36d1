"""What is deleted is gone: no key holds a word of a deleted message, and the earlier value comes back."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, WorkingMemoryOptions
from tests.helpers.types import Make
from tests.keeping.keeping import kept_by, say
from tests.keeping.scripted import knows, put
from tests.keeping.world import ANY, keep, kept, keys_with, talk

IDS: Any = {"thread_id": "t", "user_id": "u"}


@pytest.fixture(params=["user", "thread"])
def memory(request: pytest.FixtureRequest, make_memory: Make) -> Memory:
    """A working memory that says Lisbon by q0, then Xanadu by q1, and a name that a program gave."""
    memory = make_memory(working_memory=WorkingMemoryOptions(schema=ANY, scope=request.param))
    talk(memory, "I live in Lisbon", "I moved to Xanadu", "and so on")
    memory.working_memory.update({"name": "Ann"}, **IDS)
    keep(memory, {"/city": "Lisbon"}, "q0")
    keep(memory, {"/city": "Xanadu"}, "q1")
    keep(memory, {"/pets/Rex": "dog in Xanadu"}, "q1", "a1")
    assert memory.working_memory.get(**IDS).value == {
        "name": "Ann",
        "city": "Xanadu",
        "pets": {"Rex": "dog in Xanadu"},
    }
    return memory


def is_gone(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    assert keys_with(raw, prefix, "Xanadu") == []
    assert memory.working_memory.get(**IDS).value == {"name": "Ann", "city": "Lisbon"}
    assert all("Xanadu" not in one.text for one in memory.working_memory.revisions(**IDS))
    assert [one.value for one in kept(memory).values.history("/city")] == ["Lisbon"]
    assert keys_with(raw, prefix, "Xanadu") == []


def test_a_deleted_message_takes_its_values(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    assert memory.history.delete(["q1", "a1"], **IDS) == 2
    is_gone(memory, raw, prefix)


def test_a_value_stays_as_long_as_one_of_its_messages_does(memory: Memory) -> None:
    memory.history.delete(["q1"], **IDS)
    assert memory.working_memory.get(**IDS).value == {"name": "Ann", "city": "Lisbon", "pets": {"Rex": "dog in Xanadu"}}


def test_an_edit_takes_the_values_of_what_was_said_before(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    memory.history.update([HumanMessage("I moved", id="q1"), AIMessage("yes", id="a1")], **IDS)
    is_gone(memory, raw, prefix)
    assert kept(memory).again("t") == ((2, 3),)


def test_an_edit_by_a_turn_takes_them_too(memory: Memory) -> None:
    memory.save_turn([HumanMessage("I moved", id="q1"), AIMessage("yes", id="a1")], **IDS)
    assert memory.working_memory.get(**IDS).value == {"name": "Ann", "city": "Lisbon"}


def test_clearing_a_thread_takes_all(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    assert memory.history.clear("t") == 6
    assert keys_with(raw, prefix, "Xanadu") == keys_with(raw, prefix, "Lisbon") == []
    assert memory.working_memory.get(**IDS).value == {"name": "Ann"}


def test_deleting_a_thread_takes_all(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    assert memory.threads.delete("t")
    assert keys_with(raw, prefix, "Xanadu") == keys_with(raw, prefix, "Lisbon") == []
    is_users = memory._core.state.remembering.scope == "user"
    assert memory.working_memory.get(**IDS).value == ({"name": "Ann"} if is_users else None)
    assert not list(raw.scan_iter(f"{prefix}:values:t:*"))


def test_deleting_a_user_takes_all(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    assert memory.users.delete("u").verified
    assert not [key for key in raw.scan_iter(f"{prefix}:*") if b"{t}" in key or b"{u}" in key]


def test_another_branch_hides_values_until_it_returns(memory: Memory) -> None:
    before = memory.working_memory.get(**IDS).value
    assert memory.history.truncate("t", after="a0", user_id="u") == 4
    assert memory.working_memory.get(**IDS).value == {"name": "Ann", "city": "Lisbon"}
    talk(memory, "I moved to Xanadu", first=1)
    assert memory.working_memory.get(**IDS).value == before


def test_an_answer_that_is_given_again_hides_what_stands_on_the_first(memory: Memory) -> None:
    keep(memory, {"/mood": "good"}, "a2")
    memory.save_turn([HumanMessage("and so on", id="q2"), AIMessage("no, so", id="b2")], **IDS)
    assert "mood" not in memory.working_memory.get(**IDS).value
    memory.save_turn([HumanMessage("and so on", id="q2"), AIMessage("I see, 2", id="a2")], **IDS)
    assert memory.working_memory.get(**IDS).value["mood"] == "good"


@pytest.mark.parametrize("is_cleared", [False, True])
def test_revisions_forget_what_the_bounds_of_the_history_have_left_out(
    make_memory: Make, raw: redis.Redis, prefix: str, is_cleared: bool
) -> None:
    cities = [f"Zoo {at:02}" for at in range(25)]
    path, op = ("/allergies", "add") if is_cleared else ("/city", "set")
    facts = {city: [put(path, city, op)] for city in ("Xanadu", *cities)}
    memory = kept_by(make_memory, knows(facts), background=False, revisions=2)
    (first, *_), (other, *_) = say(memory, "Xanadu"), say(memory, "hello")
    memory.working_memory.keep("t")
    turns = [message for city in cities for message in (HumanMessage(city), AIMessage("I see"))]
    memory.save_turn(turns, **IDS)
    memory.working_memory.keep("t")
    if is_cleared:
        memory.working_memory.clear(**IDS)
    assert not [one for one in kept(memory).values.claims.values() if one.value == "Xanadu"]
    memory.history.delete([other], **IDS)
    assert f"{prefix}:revisions:u:{{u}}" in keys_with(raw, prefix, "Xanadu")
    before = memory.working_memory.get(**IDS)
    memory.history.delete([first], **IDS)
    assert keys_with(raw, prefix, "Xanadu") == []
    assert memory.working_memory.get(**IDS).text == before.text


def test_a_thread_that_is_given_away_takes_its_values_from_the_former_owner(make_memory: Make) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(schema=ANY))
    talk(memory, "I live in Lisbon")
    keep(memory, {"/city": "Lisbon"}, "q0")
    memory.threads.transfer("t", user_id="u", to="v")
    assert memory.working_memory.get(user_id="u").value is None
    assert kept(memory).cursor("t") == -1


def test_the_working_memory_of_a_thread_goes_with_it(make_memory: Make) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(schema=ANY, scope="thread"))
    talk(memory, "I live in Lisbon")
    keep(memory, {"/city": "Lisbon"}, "q0")
    memory.threads.transfer("t", user_id="u", to="v")
    assert memory.working_memory.get(thread_id="t", user_id="v").value == {"city": "Lisbon"}
    assert kept(memory, owner="v").cursor("t") == 0


def test_what_a_reverted_revision_brings_back_goes_with_its_message(
    memory: Memory, raw: redis.Redis, prefix: str
) -> None:
    revision = memory.working_memory.get(**IDS).revision
    memory.working_memory.clear(**IDS)
    assert memory.working_memory.revert(revision, **IDS).value["city"] == "Xanadu"
    memory.history.delete(["q1", "a1"], **IDS)
    assert keys_with(raw, prefix, "Xanadu") == []
