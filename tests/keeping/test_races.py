"""Keepers, writers and deletions at the same time: nothing is lost, and no order of steps and no crash leaves a deleted word."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem._engine.plan import Effect, Plan, Send
from langchain_workingmem.errors import ThreadNotFoundError, ThreadOwnershipError, WorkingMemError
from langchain_workingmem.history import History
from langchain_workingmem.threads import Threads
from tests.helpers.examples import sample
from tests.helpers.plans import plan_of
from tests.helpers.types import Make
from tests.keeping.world import ANY, keep, keeping, kept, keys_with, talk

EDITED = [HumanMessage("I moved", id="q1"), AIMessage("yes", id="a1")]
STEPS = 6  # of a change of messages and of a keeper each, as far as they are interleaved here


class Stepwise:
    """A plan that is driven one round trip at a time."""

    def __init__(self, memory: Memory, plan: Plan[Any], *accepted: type[Exception]) -> None:
        self._run, self._plan = memory._core.runner.run, plan
        self._accepted: tuple[type[Exception], ...] = (StopIteration, *accepted)
        self._effect: Effect[object] | None = None
        self.is_over = False
        self._go(None)

    def _go(self, outcome: Any) -> None:
        try:
            self._effect = (
                self._plan.throw(outcome) if isinstance(outcome, WorkingMemError) else self._plan.send(outcome)
            )
        except self._accepted:
            self.is_over = True

    def step(self) -> None:
        """Perform the next request, and the pauses before it."""
        while not self.is_over:
            effect = self._effect
            assert effect is not None
            try:
                outcome: Any = self._run(_performing(effect))
            except WorkingMemError as error:
                outcome = error
            self._go(outcome)
            if isinstance(effect, Send):
                return

    def end(self) -> None:
        while not self.is_over:
            self.step()

    def crash(self) -> None:
        self._plan.close()


def _performing(effect: Effect[object]) -> Plan[object]:
    return (yield effect)


def orders() -> list[str]:
    """Return orders in which the first steps of a change of messages (d) and of a keeper (k) may come."""
    inside = [f"{one * at}{other * STEPS}{one * (STEPS - at)}" for one, other in ("dk", "kd") for at in range(STEPS)]
    every = ["".join("dk"[at in places] for at in range(2 * STEPS)) for places in combinations(range(2 * STEPS), STEPS)]
    return [*inside, *sample(every, 8)]


CHANGES: dict[str, Any] = {
    "delete": lambda memory: plan_of(History.delete, memory.history, ["q1", "a1"], thread_id="t", user_id="u"),
    "edit": lambda memory: plan_of(History.update, memory.history, EDITED, thread_id="t", user_id="u"),
    "clear": lambda memory: plan_of(History.clear, memory.history, "t", user_id="u"),
    "thread": lambda memory: plan_of(Threads.delete, memory.threads, "t", user_id="u"),
    "transfer": lambda memory: plan_of(Threads.transfer, memory.threads, "t", user_id="u", to="v"),
}


def begun(memory: Memory) -> None:
    """Begin with a value of each of two messages."""
    talk(memory, "I live in Lisbon", "I moved to Xanadu")
    keep(memory, {"/city": "Lisbon"}, "q0")
    memory.settled()


def is_said(memory: Memory) -> bool:
    """Tell whether the thread of u still says what the canary stands on."""
    thread = memory.threads.get("t")
    return thread is not None and thread.user_id == "u" and "Xanadu" in str(memory.history.messages("t"))


@pytest.fixture(params=["user", "thread"])
def memory(request: pytest.FixtureRequest, make_memory: Make) -> Memory:
    return make_memory(working_memory=WorkingMemoryOptions(schema=ANY, scope=request.param))


def both(memory: Memory, what: str) -> tuple[Stepwise, Stepwise]:
    """Return a change of messages and a keeper, who may find that the thread is gone."""
    keeper = keeping(memory, {"/city": "Xanadu"}, "q1", "a1", word="Xanadu")
    return Stepwise(memory, CHANGES[what](memory)), Stepwise(memory, keeper, ThreadNotFoundError, ThreadOwnershipError)


def check(memory: Memory, raw: redis.Redis, prefix: str, what: str) -> None:
    """Find a word of a message in no value once it is gone."""
    scope = memory._core.state.remembering.scope
    if is_said(memory) or (what == "transfer" and scope == "thread"):
        return
    beside = {"transfer": [f"{prefix}:messages:{{t}}"]}.get(what, [])
    assert [key for key in keys_with(raw, prefix, "Xanadu") if key not in beside] == []


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("order", orders())
def test_no_order_of_steps_leaves_a_value_of_a_deleted_message(
    memory: Memory, raw: redis.Redis, prefix: str, what: str, order: str
) -> None:
    begun(memory)
    change, keeper = both(memory, what)
    for one in order:
        (change if one == "d" else keeper).step()
    keeper.end()
    change.end()
    assert not is_said(memory)
    check(memory, raw, prefix, what)
    assert keys_with(raw, prefix, "b'e:") == []  # nothing is on its way out any more


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("order", orders()[:20])
@pytest.mark.parametrize("steps", range(STEPS))
def test_no_crash_between_two_steps_leaves_a_value_of_a_deleted_message(
    memory: Memory, raw: redis.Redis, prefix: str, what: str, order: str, steps: int
) -> None:
    begun(memory)
    change, keeper = both(memory, what)
    for one in order:
        if one == "k":
            keeper.step()
        elif steps > 0:
            change.step()
            steps -= 1
    change.crash()
    keeper.end()
    check(memory, raw, prefix, what)
    if is_said(memory):
        memory._core.run(CHANGES[what](memory))
    assert not is_said(memory)
    check(memory, raw, prefix, what)


def test_a_call_that_is_refused_in_between_leaves_messages_to_be_read_again(memory: Memory) -> None:
    begun(memory)
    keep(memory, {"/city": "Xanadu"}, "q1")
    late = [HumanMessage("I moved", id="q1"), HumanMessage("who?", id="unknown")]
    with pytest.raises(WorkingMemError):
        memory.history.update(late, thread_id="t", user_id="u")
    assert kept(memory).erasing == {}
    assert kept(memory).again("t") == ((2, 2),)
    keep(memory, {"/city": "Xanadu"}, "q1")
    assert memory.working_memory.get(thread_id="t", user_id="u").value == {"city": "Xanadu"}


def test_eight_keepers_and_writers_at_once_lose_nothing(memory: Memory) -> None:
    talk(memory, *(f"number {at}" for at in range(8)))

    def write(at: int) -> None:
        for part in range(3):
            if at % 2:
                keep(memory, {f"/k{at}-{part}": at}, f"q{at}")
            else:
                memory.working_memory.update({f"w{at}-{part}": at}, thread_id="t", user_id="u")

    keep(memory, {"/first": 1}, "q0")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    found = memory.working_memory.get(thread_id="t", user_id="u")
    names = {f"{'k' if at % 2 else 'w'}{at}-{part}": at for at in range(8) for part in range(3)}
    assert found.value == {"first": 1, **names}
    assert found.revision == 25
