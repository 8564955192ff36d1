"""Event loops and tasks: what ends is let go, and what is cancelled ends."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from contextlib import suppress

import pytest
import redis
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, RecallOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import NIGHTLY

LOOPS = 10
HELLO = HumanMessage("hello", id="1")


# ------------------------------------------------------------------ loops


@pytest.mark.parametrize("kind", [Memory, RedisMemoryStore])
def test_an_event_loop_that_has_ended_is_freed_with_its_connections(
    server: EmbeddedRedis, raw: redis.Redis, prefix: str, kind: type[Memory | RedisMemoryStore]
) -> None:
    memory, loops = kind(server.url, key_prefix=prefix), list[weakref.ref[asyncio.AbstractEventLoop]]()
    before = len(raw.client_list())

    async def use() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await (memory.history.amessages("t") if isinstance(memory, Memory) else memory.aget(("a",), "k"))

    for _ in range(LOOPS):
        asyncio.run(use())
    gc.collect()
    assert [loop() for loop in loops] == [None] * LOOPS
    assert len(raw.client_list()) == before


# ------------------------------------------------------------------ cancellation


class Stubborn(WordEmbeddings):
    """A model that swallows a cancellation, as clients of some services do, and answers."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.wait = False

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.wait:
            self.asked.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        return self.embed_documents(texts)


async def test_a_cancellation_that_was_swallowed_on_the_way_is_honoured(server: EmbeddedRedis, prefix: str) -> None:
    model = Stubborn()
    async with Memory(server.url, key_prefix=prefix, embeddings=model, recall=RecallOptions()) as memory:
        await memory.asetup()
        model.wait = True
        task = asyncio.create_task(memory.history.aappend([HELLO], thread_id="t", user_id="u"))
        await model.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await memory.history.amessages("t") == []


async def test_every_cancellation_of_a_long_call_is_honoured(server: EmbeddedRedis, prefix: str) -> None:
    async with Memory(server.url, key_prefix=prefix, embeddings=WordEmbeddings(), recall=RecallOptions()) as memory:
        for thread in range(20):
            messages = [HumanMessage(f"message {number}") for number in range(50)]
            await memory.history.aappend(messages, thread_id=f"t{thread}", user_id="u")
        loop, chance = asyncio.get_running_loop(), random.Random(0)
        began = loop.time()
        await memory.recall.areindex(progress=False)
        whole = loop.time() - began
        swallowed = cancelled = 0
        for _ in range(60 if NIGHTLY else 15):
            task = asyncio.create_task(memory.recall.areindex(progress=False))
            await asyncio.sleep(whole * chance.random() * 0.7)
            if task.cancel():
                try:
                    await task
                    swallowed += 1
                except asyncio.CancelledError:
                    cancelled += 1
        assert swallowed == 0
        assert cancelled
        assert await memory.recall.areindex(progress=False) == 0
