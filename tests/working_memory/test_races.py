"""Working memory under rivals: nothing is lost, whoever writes at the same time, and whatever dies in between."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, ThreadOwnershipError, WorkingMemoryConflictError, WorkingMemoryState
from langchain_workingmem._engine.plan import Plan, Send, Sleep
from langchain_workingmem.working_memory import store as plans
from langchain_workingmem.working_memory.store import WorkingMemory
from tests.helpers.plans import plan_of
from tests.helpers.types import Make
from tests.working_memory.samples import with_memory


@pytest.fixture
def memory(make_memory: Make) -> Memory:
    return with_memory(make_memory, schema={"type": "object"})


def at_once(count: int, work: Callable[[int], object]) -> list[object]:
    """Let threads do the work at the same time."""
    barrier = threading.Barrier(count)

    def run(number: int) -> object:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


async def test_a_hundred_tasks_keep_a_hundred_keys(memory: Memory) -> None:
    part = memory.working_memory
    await asyncio.gather(*(part.aupdate({str(number): number}, user_id="ann") for number in range(100)))
    state = await part.aget(user_id="ann")
    await memory.aclose()
    assert state.value == {str(number): number for number in range(100)}
    assert state.revision == 100


@pytest.mark.parametrize("values", [30, 1])  # all the same: a counter that everybody has read
def test_of_rivals_with_one_expected_revision_a_single_one_wins(memory: Memory, values: int) -> None:
    def write(number: int) -> bool:
        with suppress(WorkingMemoryConflictError):
            memory.working_memory.update({"winner": number % values}, user_id="ann", expected_revision=0)
            return True
        return False

    assert at_once(30, write).count(True) == 1
    assert memory.working_memory.get(user_id="ann").revision == 1


def test_first_writes_to_the_memory_of_a_new_thread_are_all_kept(notes: Memory) -> None:
    def write(number: int) -> None:
        if number % 5:
            notes.working_memory.update(f"fact {number}", thread_id="t", user_id="ann")
        else:
            notes.history.append([HumanMessage(str(number), id=str(number))], thread_id="t", user_id="ann")

    at_once(20, write)
    kept = notes.working_memory.get(thread_id="t", user_id="ann").text.splitlines()
    assert {line for line in kept if line} == {f"fact {number}" for number in range(20) if number % 5}
    assert len(notes.history.messages("t")) == 4


class Watched:
    """Runs the plan of an update, with something else in front of some of its round trips; leaves pauses out."""

    def __init__(self, *, before: Mapping[int, Callable[[], object]]) -> None:
        self.before = before
        self.trips = 0
        self.pauses: list[Sleep] = []

    def update(self, memory: Memory, content: Any, **ids: Any) -> WorkingMemoryState:
        state: WorkingMemoryState = memory._core.run(
            self._through(plan_of(WorkingMemory.update, memory, content, **ids))
        )
        return state

    def _through(self, plan: Plan[Any]) -> Plan[Any]:
        try:
            effect = next(plan)
            while True:
                if isinstance(effect, Sleep):
                    self.pauses.append(effect)
                    effect = plan.send(None)
                    continue
                if isinstance(effect, Send):
                    self.trips += 1
                    self.before.get(self.trips, lambda: None)()
                effect = plan.send((yield effect))
        except StopIteration as done:
            return done.value


def test_what_was_deleted_meanwhile_does_not_come_back_where_another_began(memory: Memory) -> None:
    memory.working_memory.update({"old": 1}, user_id="ann")

    def rival() -> None:
        memory.users.delete("ann")
        memory.working_memory.update({"theirs": 1}, user_id="ann")  # has the same revision

    state = Watched(before={2: rival}).update(memory, {"mine": 1}, user_id="ann")
    assert state.value == {"theirs": 1, "mine": 1}


def test_a_writer_that_always_loses_gives_up_with_both_revisions(memory: Memory) -> None:
    memory.working_memory.update({"old": 0}, user_id="ann")
    numbers = iter(range(1, 10_000))
    rival = lambda: memory.working_memory.update({"old": next(numbers)}, user_id="ann")  # noqa: E731
    watched = Watched(before=dict.fromkeys(range(2, 1000), rival))
    with pytest.raises(WorkingMemoryConflictError) as caught:
        watched.update(memory, {"mine": 1}, user_id="ann")
    assert caught.value.actual > caught.value.expected
    state = memory.working_memory.get(user_id="ann")
    assert caught.value.actual == state.revision
    assert "mine" not in state.value
    assert max(pause.seconds for pause in watched.pauses) <= plans.LONGEST_PAUSE
    assert watched.trips <= 2 * plans.ATTEMPTS


def test_a_thread_that_somebody_else_makes_meanwhile_is_theirs(notes: Memory) -> None:
    notes.working_memory.update("x", thread_id="other")  # the scripts are loaded
    for number in (2, 3):  # in front of the write; in front of making the thread
        theirs = f"t{number}"
        take = {number: partial(notes.working_memory.update, "theirs", thread_id=theirs, user_id="bob")}
        with pytest.raises(ThreadOwnershipError):
            Watched(before=take).update(notes, "mine", thread_id=theirs, user_id="ann")
        assert notes.working_memory.get(thread_id=theirs, user_id="bob").text == "theirs"


def test_a_thread_that_is_deleted_meanwhile_keeps_nothing_of_its_old_memory(notes: Memory) -> None:
    notes.working_memory.update("old", thread_id="t", user_id="ann")
    watched = Watched(before={2: lambda: notes.threads.delete("t")})
    state = watched.update(notes, "new", thread_id="t", user_id="ann")
    assert (state.text, state.revision) == ("new", 1)
