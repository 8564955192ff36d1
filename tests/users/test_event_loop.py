"""Imports, exports and the largest filters leave an event loop free for others."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, message_to_dict
from langgraph.store.base import PutOp

from langchain_workingmem import Memory, RecallOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embeddings import WordEmbeddings
from tests.users.samples import HEADER, THREAD

HELD = 0.05  # seconds
MANY, LONG = 60, 800
DOCUMENT = {"x": ["1"] * LONG, "y": "z"}
FILTERS: dict[str, dict[str, Any]] = {
    "many operators in a list": {"x": [{"$gte": 1}] * (LONG - 1) + [{"$gt": 1}]},
    "many texts": {"y": {"$nin": [f"{at:040}" for at in range(999)]}, "x": {"$gt": 1}},
    "many numbers": {"y": {"$nin": [*range(999)]}, "x": {"$gt": 1}},
}


async def longest_hold(work: Callable[[], Awaitable[Any]]) -> tuple[Any, float]:
    """Return the result of a coroutine, and the longest time that the loop's own thread worked on one of its steps.

    The time of the processor counts: other programs on the machine do not.
    """
    is_over, longest = False, 0.0

    async def watch() -> None:
        nonlocal longest
        while not is_over:
            began = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)

    gc.freeze()  # what the tests have piled up takes the collector 30 ms
    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    result = await work()
    is_over = True
    await watching
    gc.unfreeze()
    return result, longest


@pytest.mark.nightly
async def test_an_import_and_an_export_hold_the_event_loop_a_short_time_at_once(
    server: EmbeddedRedis, prefix: str
) -> None:
    texts = [f"The gearbox of tractor {at} is noisy, and its third gear jumps out. " * 5 for at in range(1_000)]
    messages = [message_to_dict(HumanMessage(text, id=f"m{at}")) for at, text in enumerate(texts)]
    records = [HEADER, THREAD, *({"kind": "message", "thread_id": "t", "message": one} for one in messages)]
    async with Memory(server.url, key_prefix=prefix, embeddings=WordEmbeddings()) as memory:

        async def export() -> list[Any]:
            return [record async for record in memory.users.aexport("u", vectors=True)]

        report, first = await longest_hold(lambda: memory.users.aload(records))
        again, second = await longest_hold(lambda: memory.users.aload(records))
        exported, third = await longest_hold(export)
        deleted, fourth = await longest_hold(lambda: memory.users.adelete("u"))
    assert (report.messages, again.skipped, deleted.messages, len(exported)) == (1_000, 1_000, 1_000, 1_003)
    assert max(first, second, third, fourth) < HELD, (first, second, third, fourth)


@pytest.mark.nightly
@pytest.mark.parametrize("wanted", FILTERS.values(), ids=FILTERS)
async def test_the_largest_filter_does_not_hold_the_event_loop(
    server: EmbeddedRedis, prefix: str, wanted: dict[str, Any]
) -> None:
    recalling: Any = {"embeddings": WordEmbeddings(), "recall": RecallOptions(filterable=("x", "y"))}
    marked = [HumanMessage(f"hi {at}", additional_kwargs={"metadata": DOCUMENT}) for at in range(MANY)]
    async with (
        Memory(server.url, key_prefix=prefix, thread_filters=("x", "y")) as memory,
        Memory(server.url, key_prefix=f"{prefix}r", **recalling) as other,
    ):
        store = RedisMemoryStore(server.url, key_prefix=prefix)
        await other.history.aappend(marked, thread_id="t", user_id="u")
        await store.abatch([PutOp(("a",), str(at), DOCUMENT) for at in range(MANY)])
        await asyncio.gather(*[memory.threads.acreate(user_id="u", metadata=DOCUMENT) for _ in range(MANY)])
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "store": lambda: store.asearch(("a",), filter=wanted),
            "threads": lambda: memory.threads.alist(user_id="u", metadata=wanted),
            "recall": lambda: other.recall.asearch("hi", user_id="u", metadata=wanted),
        }
        for name, call in calls.items():
            # the best of some, since the garbage collector may come in between
            held = [await longest_hold(call) for _ in range(3)]
            assert len(held[0][0]) == 0, name
            assert min(longest for _, longest in held) < HELD, (name, held)
        await store.aclose()
