"""Working memory on a server: whose it is, and what becomes of it with the threads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from langchain_workingmem import IdError, Memory
from langchain_workingmem.errors import ThreadDamagedError
from tests.helpers.types import Make
from tests.working_memory.samples import Person, texts, with_memory


def test_a_missing_id_says_how_to_pass_it(shared: Memory, notes: Memory) -> None:
    for part, name in ((shared.working_memory, "user_id"), (notes.working_memory, "thread_id")):
        calls: list[Callable[[], object]] = [part.get, part.clear, part.revisions]
        calls += [lambda part=part: part.update("x"), lambda part=part: part.revert(1)]  # type: ignore[misc]
        for call in calls:
            with pytest.raises(IdError, match=rf"pass {name}=\.\.\..*context.*configurable"):
                call()


def test_scopes_never_see_each_other(shared: Memory, notes: Memory) -> None:
    shared.working_memory.update("of the user", user_id="same")
    notes.working_memory.update("of the thread", thread_id="same", user_id="same")
    assert shared.working_memory.get(thread_id="same", user_id="same").text == "of the user"
    assert notes.working_memory.get(thread_id="same", user_id="same").text == "of the thread"
    notes.working_memory.clear(thread_id="same")
    assert texts(shared.working_memory.revisions(user_id="same")) == ["of the user"]
    assert "of the thread" not in str(shared.context("hi", thread_id="same", user_id="same"))


def test_deleting_a_thread_deletes_its_memory_and_revisions(notes: Memory, raw: redis.Redis, prefix: str) -> None:
    for thread in ("t", "other"):
        notes.working_memory.update("fact", thread_id=thread, user_id="ann")
    assert notes.threads.delete("t")
    kept = {key for kind in ("memory", "revisions") for key in raw.scan_iter(f"{prefix}:{kind}:*")}
    assert kept == {f"{prefix}:{kind}:t:{{other}}".encode() for kind in ("memory", "revisions")}
    assert notes.working_memory.get(thread_id="t", user_id="ann").revision == 0
    assert notes.working_memory.get(thread_id="other").text == "fact"


@pytest.mark.parametrize("scope", ["user", "thread"])
def test_a_thread_can_be_created_with_working_memory(make_memory: Make, scope: str) -> None:
    memory = with_memory(make_memory, schema=Person, scope=scope)
    memory.threads.create(thread_id="t", user_id="ann", working_memory={"name": "Ann"})
    state = memory.working_memory.get(thread_id="t", user_id="ann")
    assert (state.value, state.revision, state.origin) == (Person(name="Ann"), 1, "seed")


def test_a_clone_begins_with_the_memory_of_its_source(notes: Memory) -> None:
    notes.threads.create(user_id="u", thread_id="t", working_memory="Plays the cello.")
    copy = notes.threads.clone("t").thread
    state = notes.working_memory.get(thread_id=copy.id)
    assert (state.text, state.origin, state.revision) == ("Plays the cello.", "clone", 1)
    notes.working_memory.update("Moved to Lisbon.", thread_id=copy.id)
    assert notes.working_memory.get(thread_id="t").text == "Plays the cello."


def test_a_memory_whose_thread_redis_has_evicted_is_nobodys(notes: Memory, raw: redis.Redis) -> None:
    notes.working_memory.update("a secret", thread_id="t", user_id="ann")
    keys = notes._core.state.keys.of("t")
    raw.delete(*(key for key in keys[:7] if raw.exists(key)))
    with pytest.raises(ThreadDamagedError):
        notes.history.append(["hello"], thread_id="t", user_id="bob")
