"""What an observer has committed in a thread reaches the log of the resource, wherever its process ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, ObservationOptions
from langchain_workingmem.observations import observing
from langchain_workingmem.observations.reading import log_key
from tests.helpers.crashes import CrashError, cut
from tests.helpers.observers import Echo
from tests.helpers.types import Make


def save(memory: Memory, thread: str, owner: str, number: int) -> None:
    said = [HumanMessage(f"question {number}", id=f"q{number}"), AIMessage(f"answer {number}", id=f"a{number}")]
    memory.save_turn(said, thread_id=thread, resource_id=owner)


def by_a_save(memory: Memory, thread: str, owner: str) -> None:
    save(memory, thread, owner, 9)


def by_observe(memory: Memory, thread: str, owner: str) -> None:
    memory.observations.observe(thread, resource_id=owner)


def by_the_background(memory: Memory, thread: str, owner: str) -> None:
    state = memory._core.state
    memory._core.run(observing._observe(state, log_key(state, thread, owner), None, wait=False))


def shown(memory: Memory, thread: str, owner: str) -> Any:
    context = memory.context("and now?", thread_id=thread, resource_id=owner, read_only=True)
    log = context.observations
    assert log is not None
    ids = [str(one.id) for one in context.messages if str(one.id)[1:].isdigit()]
    return [(one.id, one.text) for one in log], sorted([*ids, *(id for one in log for _, id in one.sources)])


@pytest.mark.parametrize("goes_on", [by_a_save, by_observe, by_the_background])
def test_a_log_learns_what_an_observer_committed_before_it_died(
    make_memory: Make, raw: redis.Redis, prefix: str, goes_on: Callable[[Memory, str, str], None]
) -> None:
    options = ObservationOptions(model=Echo(), scope="resource", message_tokens=10_000, keep_tokens=1)
    memory, other = make_memory(observations=options), make_memory(observations=options)
    waited = 0
    for after in range(40):
        thread, owner = f"t{after}", f"u{after}"
        for number in range(3):
            save(memory, thread, owner, number)
        said = ["a0", "a1", "a2", "q0", "q1", "q2"]
        try:
            memory._core.run(cut(observing.observe(memory._core.state, thread, owner), after))
        except CrashError:
            assert shown(other, thread, owner)[1] == said
        except RuntimeError:  # it was done before
            break
        waited += bool(raw.hexists(f"{prefix}:observations:t:{{{thread}}}", "unpublished"))
        raw.hdel(f"{prefix}:observations:r:{{{owner}}}", "lease", "leased_until")  # as after a while
        goes_on(other, thread, owner)
        log = [(one.id, one.text) for one in other.observations.get(resource_id=owner)]
        assert shown(other, thread, owner)[0] == log
        assert shown(other, "new", owner)[0] == log
        assert len(log) == 4 or goes_on is by_a_save
    else:
        pytest.fail("it never ends")
    assert waited
