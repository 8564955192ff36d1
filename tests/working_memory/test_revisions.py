"""Working memory on a server: its revisions."""

from __future__ import annotations

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem import Memory, WorkingMemoryConflictError
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem.errors import RedisReplyError, RevisionNotFoundError
from tests.helpers.examples import examples
from tests.helpers.types import Make
from tests.working_memory.samples import texts, with_memory


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_an_update_for_another_revision_is_refused_with_both(person: Memory, expected: int) -> None:
    person.working_memory.update({"age": 1}, user_id="ann")
    before = person.working_memory.update({"age": 2}, user_id="ann")
    with pytest.raises(WorkingMemoryConflictError) as caught:
        person.working_memory.update({"age": 3}, user_id="ann", expected_revision=expected)
    assert (caught.value.expected, caught.value.actual) == (expected, 2)
    assert f"revision {expected}" in str(caught.value)
    assert "revision 2" in str(caught.value)
    assert person.working_memory.get(user_id="ann") == before


def test_revisions_come_newest_first_with_time_and_origin(shared: Memory) -> None:
    part = shared.working_memory
    shared.threads.create(thread_id="t", user_id="ann", working_memory="one")
    part.update("two", user_id="ann", mode="replace")
    part.clear(user_id="ann")
    part.revert(1, user_id="ann")
    found = part.revisions(user_id="ann")
    assert texts(found) == ["one", "", "two", "one"]
    assert [state.revision for state in found] == [4, 3, 2, 1]
    assert [state.origin for state in found] == ["revert", "clear", "update", "seed"]
    times = [state.updated_at for state in found]
    assert all(times)
    assert times == sorted(times, key=str, reverse=True)
    assert found[0] == part.get(user_id="ann")


@pytest.mark.parametrize("keep", [1, 3, 150])
def test_as_many_revisions_are_kept_as_the_options_say(make_memory: Make, keep: int) -> None:
    memory = with_memory(make_memory, template="", revisions=keep)
    for number in range(keep + 5):
        before = memory.working_memory.update(str(number), user_id="ann", mode="replace")
    found = memory.working_memory.revisions(user_id="ann", limit=1000)
    assert [state.revision for state in found] == list(range(keep + 5, 5, -1))
    for revision in (5, keep + 6):
        with pytest.raises(RevisionNotFoundError, match=f"revision {revision} is not kept"):
            memory.working_memory.revert(revision, user_id="ann")
    assert memory.working_memory.get(user_id="ann") == before


@examples(15, server=True)
@given(text=st.text(st.characters(exclude_categories=["Cs"])), other=st.text(st.characters(exclude_categories=["Cs"])))
def test_a_revert_restores_byte_for_byte(shared: Memory, raw: redis.Redis, prefix: str, text: str, other: str) -> None:
    first = shared.working_memory.update(text, user_id="ann", mode="replace")
    shared.working_memory.update(f"{other}!", user_id="ann", mode="replace")
    if first.revision == 0:  # an empty text where there was nothing
        return
    assert shared.working_memory.revert(first.revision, user_id="ann").text == text
    assert raw.hget(f"{prefix}:memory:u:{{ann}}", "document") == text.encode()


def test_a_revision_that_cannot_be_kept_changes_nothing(shared: Memory, raw: redis.Redis, prefix: str) -> None:
    shared.working_memory.update("likes tea", user_id="u")
    before = shared.working_memory.get(user_id="u")
    revisions = Keys(prefix).of_user("u").revisions
    raw.xadd(revisions, {"document": "x", "revision": 99, "updated_at": 1, "origin": "x"}, id="99-0")
    with pytest.raises(RedisReplyError):
        shared.working_memory.update("likes milk", user_id="u", mode="replace")
    assert shared.working_memory.get(user_id="u") == before


def test_a_memory_that_redis_has_evicted_begins_behind_the_revisions_that_are_left(
    shared: Memory, raw: redis.Redis
) -> None:
    for text in ("one", "two"):
        evicted = shared.working_memory.update(text, user_id="ann")
    raw.delete(evicted.key)
    assert shared.working_memory.update("three", user_id="ann").revision == 3
