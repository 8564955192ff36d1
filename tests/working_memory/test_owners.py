"""Working memory on a server: whose it is, and what becomes of it with the threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from langchain_workingmem import (
    IdError,
    Memory,
    ThreadOwnershipError,
    WorkingMemoryOptions,
)
from tests.helpers.odd_ids import NASTY_IDS
from tests.helpers.types import Make
from tests.working_memory.samples import Person, texts, with_memory

if TYPE_CHECKING:
    import redis


# ---------------------------------------------------------------------- who owns it


def test_a_missing_id_says_how_to_pass_it(shared: Memory, notes: Memory) -> None:
    for part, name in ((shared.working_memory, "user_id"), (notes.working_memory, "thread_id")):
        calls: list[Callable[[], object]] = [part.get, part.clear, part.revisions]
        calls += [lambda part=part: part.update("x"), lambda part=part: part.revert(1)]  # type: ignore[misc]
        for call in calls:
            with pytest.raises(IdError, match=rf"pass {name}=\.\.\..*context.*configurable"):
                call()


def test_ids_that_look_like_patterns_do_not_meet(shared: Memory, notes: Memory) -> None:
    ids = [*NASTY_IDS, "a|b", "{a}", "a*", "a", "b"]
    for id in ids:
        shared.working_memory.update(f"of {id!r}", user_id=id, mode="replace")
        notes.working_memory.update(f"in {id!r}", thread_id=id, mode="replace")
    for id in ids:
        assert shared.working_memory.get(user_id=id).text == f"of {id!r}"
        assert notes.working_memory.get(thread_id=id).text == f"in {id!r}"


def test_scopes_never_see_each_other(shared: Memory, notes: Memory) -> None:
    shared.working_memory.update("of the user", user_id="same")
    notes.working_memory.update("of the thread", thread_id="same", user_id="same")
    assert shared.working_memory.get(thread_id="same", user_id="same").text == "of the user"
    assert notes.working_memory.get(thread_id="same", user_id="same").text == "of the thread"
    notes.working_memory.clear(thread_id="same")
    assert texts(shared.working_memory.revisions(user_id="same")) == ["of the user"]
    assert "of the thread" not in str(shared.context("hi", thread_id="same", user_id="same"))


def test_the_memory_of_somebody_elses_thread_is_refused(notes: Memory) -> None:
    part = notes.working_memory
    before = part.update("fact", thread_id="t", user_id="ann")
    ids: dict[str, Any] = {"thread_id": "t", "user_id": "bob"}
    calls: list[Callable[[], object]] = [
        lambda: part.get(**ids),
        lambda: part.update("mine", **ids),
        lambda: part.update("mine", mode="replace", expected_revision=1, **ids),
        lambda: part.clear(**ids),
        lambda: part.revisions(**ids),
        lambda: part.revert(1, **ids),
        lambda: notes.context("hi", **ids),
    ]
    for call in calls:
        with pytest.raises(ThreadOwnershipError) as caught:
            call()
        assert "fact" not in str(caught.value)
    assert part.get(thread_id="t", user_id="ann") == before
    assert part.get(thread_id="t") == before


# ---------------------------------------------------------------------- threads that go, are copied or handed over


def kept(raw: redis.Redis, prefix: str, *kinds: str) -> list[bytes]:
    return sorted(key for kind in kinds for key in raw.scan_iter(f"{prefix}:{kind}:*"))


def test_deleting_a_thread_deletes_its_memory_and_revisions(notes: Memory, raw: redis.Redis, prefix: str) -> None:
    for thread in ("t", "other"):
        notes.working_memory.update("fact", thread_id=thread, user_id="ann")
    assert len(kept(raw, prefix, "memory", "revisions")) == 4
    assert notes.threads.delete("t")
    assert kept(raw, prefix, "memory", "revisions") == [
        f"{prefix}:memory:t:{{other}}".encode(),
        f"{prefix}:revisions:t:{{other}}".encode(),
    ]
    assert notes.working_memory.get(thread_id="t", user_id="ann").revision == 0
    assert notes.working_memory.get(thread_id="other").text == "fact"


# ---------------------------------------------------------------------- seeding


@pytest.mark.parametrize("scope", ["user", "thread"])
def test_a_thread_can_be_created_with_working_memory(make_memory: Make, scope: str) -> None:
    memory = with_memory(make_memory, schema=Person, scope=scope)
    seed = {"name": "Ann"}
    thread = memory.threads.create(thread_id="t", user_id="ann", title="hello", working_memory=seed)
    assert (thread.id, thread.title) == ("t", "hello")
    state = memory.working_memory.get(thread_id="t", user_id="ann")
    assert (state.value, state.revision, state.origin) == (Person(name="Ann"), 1, "seed")


def test_a_clone_begins_with_the_memory_of_its_source(make_memory: Callable[..., Memory]) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(scope="thread", template=""))
    memory.threads.create(user_id="u", thread_id="t", working_memory="Plays the cello.")
    copy = memory.threads.clone("t").thread
    state = memory.working_memory.get(thread_id=copy.id)
    assert (state.text, state.origin, state.revision) == ("Plays the cello.", "clone", 1)
    memory.working_memory.update("Moved to Lisbon.", thread_id=copy.id)
    assert memory.working_memory.get(thread_id="t").text == "Plays the cello."
