"""A clone for another owner is that owner's from its first write on, and has what a thread takes along to a new owner."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage

from langchain_workingmem import (
    Memory,
    ObservationOptions,
    ResourceDeletedError,
    ThreadNotFoundError,
    ThreadOwnershipError,
    WorkingMemoryOptions,
)
from langchain_workingmem.options import Scope
from langchain_workingmem.threads import Threads
from tests.helpers.crashes import CrashError, cut
from tests.helpers.examples import NIGHTLY
from tests.helpers.observers import Echo
from tests.helpers.plans import plan_of
from tests.helpers.types import Make
from tests.keeping.world import ANY, keep, kept, keys_with, talk


def clone(memory: Memory, **more: Any) -> Any:
    return plan_of(Threads.clone, memory, "t", new_thread_id="c", resource_id="u", to="v", **more)


def owners(raw: Any, prefix: str) -> set[bytes]:
    """Return the owners that the keys of the copy name."""
    return {
        owner
        for key in raw.scan_iter(f"{prefix}:*:{{c}}*")
        if raw.type(key) == b"hash" and (owner := raw.hget(key, "resource"))
    }


@pytest.mark.both_faces
def test_a_clone_for_another_belongs_to_them(memory: Memory) -> None:
    memory.threads.create(resource_id="u", thread_id="t", title="T", metadata={"a": 1})
    memory.history.append([HumanMessage("a cat", id="q")], thread_id="t", resource_id="u")
    copy = memory.threads.clone("t", new_thread_id="c", resource_id="u", to="v", title="Ours", metadata={"b": 2})
    assert (copy.thread.resource_id, copy.thread.title, copy.thread.metadata) == ("v", "Ours", {"a": 1, "b": 2})
    assert [hit.thread_id for hit in memory.recall.search("cat", resource_id="v").hits] == ["c"]
    assert [hit.thread_id for hit in memory.recall.search("cat", resource_id="u").hits] == ["t"]
    assert [one.id for one in memory.threads.lineage("c")] == ["c"]
    with pytest.raises(ThreadOwnershipError):
        memory.threads.clone("t", resource_id="v", to="v")


@pytest.mark.parametrize("stage", range(12) if NIGHTLY else range(2, 12, 4))
def test_no_step_shows_the_copy_to_the_old_owner(memory: Memory, raw: redis.Redis, prefix: str, stage: int) -> None:
    memory.history.append([HumanMessage(f"cat {n}", id=f"{n}") for n in range(450)], thread_id="t", resource_id="u")
    plan = clone(memory)
    try:
        memory._core.run(cut(plan, stage))
    except (CrashError, RuntimeError):
        plan.close()
    assert owners(raw, prefix) <= {b"v"}
    copy = memory.threads.clone("t", new_thread_id="d", resource_id="u", to="v").thread
    assert (copy.message_count, copy.resource_id) == (450, "v")
    memory.threads.delete("c")  # what a process that has died leaves, a clone with its id replaces
    assert memory.threads.clone("t", new_thread_id="c", to="v").thread.message_count == 450


@pytest.mark.parametrize("deleted", ["u", "v"])
@pytest.mark.parametrize("stage", range(3))
def test_a_deletion_of_either_owner_leaves_no_copy(
    memory: Memory, raw: redis.Redis, prefix: str, deleted: str, stage: int
) -> None:
    memory.history.append([HumanMessage("a cat", id="q")], thread_id="t", resource_id="u")
    plan, tombstone = clone(memory), f"{prefix}:tombstone:{{{deleted}}}"

    def meanwhile() -> Any:
        effect, number = next(plan), 0
        while True:
            if number == stage:
                raw.set(tombstone, "a deletion")
            number += 1
            effect = plan.send((yield effect))

    with pytest.raises(ResourceDeletedError):
        memory._core.run(meanwhile())
    assert memory.threads.get("c") is None
    raw.delete(tombstone)
    assert memory.users.delete("u").verified
    assert [*raw.scan_iter(f"{prefix}:*{{*")] == []


def test_the_copy_of_another_has_the_working_memory_of_the_thread(
    make_memory: Make, raw: redis.Redis, prefix: str
) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(schema=ANY, scope="thread"))
    talk(memory, "I live in Lisbon")
    keep(memory, {"/city": "Lisbon"}, "q0")
    copy = memory.threads.clone("t", new_thread_id="c", to="v")
    assert memory.working_memory.get(thread_id="c", resource_id="v").value == {"city": "Lisbon"}
    memory.threads.delete("t")
    memory.history.delete([copy.message_ids["q0"]], thread_id="c")
    assert memory.working_memory.get(thread_id="c").value is None
    assert keys_with(raw, prefix, "/city") == []


def test_what_a_keeper_has_found_for_a_user_stays_with_the_user(make_memory: Make) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(schema=ANY))
    talk(memory, "I live in Lisbon")
    keep(memory, {"/city": "Lisbon"}, "q0", "a0")
    memory.threads.clone("t", new_thread_id="c", to="v")
    assert memory.working_memory.get(resource_id="v").is_empty
    assert kept(memory, "c", "v").cursor("c") == -1  # the keeper of the new owner reads it from the start
    memory.history.delete(["q0", "a0"], thread_id="t")
    assert memory.working_memory.get(resource_id="u").value is None


@pytest.mark.parametrize("scope", ["thread", "resource"])
def test_the_copy_of_another_has_the_log_of_the_thread_only(make_memory: Make, scope: Scope) -> None:
    observing = ObservationOptions(model=Echo(), scope=scope, message_tokens=10, keep_tokens=0, background=False)
    memory = make_memory(observations=observing)
    talk(memory, "I live in Lisbon", "and so on")
    seen = len(memory.observations.observe("t", resource_id="u"))
    memory.threads.clone("t", new_thread_id="c", to="v")
    assert seen
    assert len(memory.observations.get(thread_id="c", resource_id="v")) == (seen if scope == "thread" else 0)
    assert len(memory.observations.get(thread_id="t", resource_id="u")) == seen
    with pytest.raises(ThreadNotFoundError):
        memory.threads.clone("nothing", to="v")
