"""Exports and imports leave an event loop free for others."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, message_to_dict

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embeddings import WordEmbeddings
from tests.users.samples import HEADER, Record

MESSAGES, HELD = 2_000, 0.05  # seconds


def archive() -> Iterator[Record]:
    yield HEADER
    for thread in ("t1", "t2"):
        yield {"kind": "thread", "id": thread}
        for at in range(MESSAGES // 2):
            text = f"The gearbox of tractor {at} is noisy, and its third gear jumps out. " * 5
            message = message_to_dict((HumanMessage, AIMessage)[at % 2](text, id=f"m{at}"))
            yield {"kind": "message", "thread_id": thread, "message": message}


async def longest_hold(work: Callable[[], Any]) -> tuple[Any, float]:
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


@pytest.mark.alone
async def test_2000_records_hold_the_event_loop_a_short_time_at_once(server: EmbeddedRedis, prefix: str) -> None:
    records = list(archive())

    async def listed() -> list[Record]:
        return [record async for record in memory.users.aexport("u", vectors=True)]

    async def lines() -> AsyncIterator[Record]:
        for record in records:
            yield record

    async with Memory(server.url, key_prefix=prefix, embeddings=WordEmbeddings()) as memory:
        report, first = await longest_hold(lambda: memory.users.aload(lines()))
        again, second = await longest_hold(lambda: memory.users.aload(records))
        exported, third = await longest_hold(listed)
        deleted, fourth = await longest_hold(lambda: memory.users.adelete("u"))
    assert (report.messages, again.skipped, deleted.messages) == (MESSAGES,) * 3
    assert len(exported) == MESSAGES + 4
    assert max(first, second, third, fourth) < HELD, (first, second, third, fourth)
