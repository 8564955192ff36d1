"""The largest filters, compared with many documents, leave the event loop to others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.store.base import PutOp

from langchain_workingmem import Memory, RecallOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embeddings import WordEmbeddings

MANY, LONG = 60, 800
DOCUMENT = {"x": ["1"] * LONG, "y": "z"}
FILTERS: dict[str, dict[str, Any]] = {
    "many operators in a list": {"x": [{"$gte": 1}] * (LONG - 1) + [{"$gt": 1}]},
    "many texts": {"y": {"$nin": [f"{at:040}" for at in range(999)]}, "x": {"$gt": 1}},
    "many numbers": {"y": {"$nin": [*range(999)]}, "x": {"$gt": 1}},
}


async def longest_step(call: Callable[[], Awaitable[Any]]) -> float:
    """Return the most seconds of its own work after which the event loop came to others."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.001)
            longest = max(longest, time.thread_time() - before)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    assert len(await call()) == 0
    await asyncio.sleep(0.002)
    watching.cancel()
    return longest


@pytest.mark.parametrize("wanted", FILTERS.values(), ids=FILTERS)
def test_the_largest_filter_does_not_hold_the_event_loop(
    server: EmbeddedRedis, prefix: str, loop_runner: asyncio.Runner, wanted: dict[str, Any]
) -> None:
    async def run() -> None:
        store = RedisMemoryStore(server.url, key_prefix=prefix)
        memory = Memory(server.url, key_prefix=prefix, thread_filters=("x", "y"))
        options = RecallOptions(filterable=("x", "y"))
        recalling = Memory(server.url, key_prefix=f"{prefix}r", embeddings=WordEmbeddings(), recall=options)
        marked = [HumanMessage(f"hi {at}", additional_kwargs={"metadata": DOCUMENT}) for at in range(MANY)]
        await recalling.history.aappend(marked, thread_id="t", user_id="u")
        await store.asetup()
        await store.abatch([PutOp(("a",), str(at), DOCUMENT) for at in range(MANY)])
        await asyncio.gather(*[memory.threads.acreate(user_id="u", metadata=DOCUMENT) for _ in range(MANY)])
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "store": lambda: store.asearch(("a",), filter=wanted),
            "threads": lambda: memory.threads.alist(user_id="u", metadata=wanted),
            "recall": lambda: recalling.recall.asearch("hi", user_id="u", metadata=wanted),
        }
        # the best of some, since the garbage collector may come in between
        steps = {name: min([await longest_step(call) for _ in range(3)]) for name, call in calls.items()}
        assert max(steps.values()) < 0.05, steps
        await store.aclose()
        await memory.aclose()
        await recalling.aclose()

    loop_runner.run(run())
