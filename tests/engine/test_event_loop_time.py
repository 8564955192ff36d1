"""An async call leaves the event loop free: counted in function calls of one step of the loop, not in time."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory, RecallOptions
from langchain_workingmem._engine.effects import Work
from langchain_workingmem.observations.log import KnownLog, learn
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.types import Make

MOST = 40_000  # calls of a step: about 10 ms
COUNT = 3_000


async def longest_step(call: Callable[[], Awaitable[Any]]) -> tuple[int, Any]:
    """Return the most function calls that the event loop's thread made in one step, and the result."""
    most = count = 0

    def profile(frame: Any, event: str, _: Any) -> None:
        nonlocal most, count
        if event == "call" and frame.f_code.co_qualname == "Handle._run":
            count = 0
        if event in {"call", "c_call"}:
            count += 1
            most = max(most, count)

    sys.setprofile(profile)
    try:
        result = await call()
    finally:
        sys.setprofile(None)
    return most, result


async def test_calls_on_thousands_of_messages_hold_no_event_loop(make_memory: Make) -> None:
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions())
    said: list[BaseMessage] = [HumanMessage(f"message {at}", id=f"m{at}") for at in range(COUNT)]
    await memory.history.aappend(["first"], thread_id="warm", resource_id="u")  # imports what vectors need
    steps = {}
    turns: list[BaseMessage] = [(HumanMessage, AIMessage)[at % 2](f"said {at}", id=f"s{at}") for at in range(COUNT)]
    for name in ("save_turn", "save_turn again"):
        steps[name], _ = await longest_step(lambda: memory.asave_turn(turns, thread_id="turns", resource_id="v"))
    steps["append"], _ = await longest_step(lambda: memory.history.aappend(said, thread_id="t", resource_id="u"))
    records = [record async for record in memory.users.aexport("u")]
    await memory.users.adelete("u")
    steps["load"], report = await longest_step(lambda: memory.users.aload(records))
    assert report.messages == COUNT + 1
    assert max(steps.values()) < MOST, steps


def test_a_long_log_is_read_beside_the_event_loop(memory: Memory) -> None:
    values = [part for at in range(200) for part in (b"%d" % at, b"x" * 100)]
    plan = learn(memory._core.state, "log", [b"1", b"1", b"", *values], KnownLog())
    assert isinstance(next(plan), Work)
    plan.close()
