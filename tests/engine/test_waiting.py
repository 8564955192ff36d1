"""Whom a call waits for, and not without end; what ends is let go, and what is cancelled ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage

from langchain_workingmem import EmbeddingError, Memory, RecallOptions, RedisConnectionError
from langchain_workingmem._engine import calls
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embeddings import WordEmbeddings

LOOPS = 10
HELLO = HumanMessage("hello", id="1")
SHORT = timedelta(milliseconds=100)


class Hanging(WordEmbeddings):
    """A model that answers until it hangs; it may swallow a cancellation, as some clients do, and answer."""

    hangs = swallows = False
    asked: asyncio.Event

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.hangs:
            self.asked.set()
            with suppress(asyncio.CancelledError) if self.swallows else nullcontext():
                await asyncio.sleep(3600)
        return self.embed_documents(texts)

    async def aembed_query(self, text: str) -> list[float]:
        return (await self.aembed_documents([text]))[0]


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Hanging:
    monkeypatch.setattr(calls, "SECONDS_A_TEXT", 0.0)
    model = Hanging()
    model.asked = asyncio.Event()
    return model


@pytest.mark.both_faces
@pytest.mark.parametrize("name", ["get", "delete"])  # the second is not repeated
def test_a_connection_that_never_gets_free_is_not_waited_for_without_end(
    server: EmbeddedRedis, prefix: str, face: str, loop_runner: asyncio.Runner, name: str
) -> None:
    memory = Memory(f"{server.url}?max_connections=1", key_prefix=prefix, timeout=SHORT)

    async def talk() -> None:
        is_sync = face == "sync"
        pool = (memory._core.runner.client if is_sync else await memory._core.async_runner.client()).connection_pool
        taken: Any = pool.get_connection()
        taken = taken if is_sync else await taken
        with pytest.raises(RedisConnectionError, match=r"every connection .* in use.*max_connections") as caught:
            getattr(memory.threads, name)("t") if is_sync else await getattr(memory.threads, f"a{name}")("t")
        assert "nothing was sent" in str(caught.value)
        assert (caught.value.timed_out, caught.value.repeats) == (True, 0)
        released: Any = pool.release(taken)
        if not is_sync:
            await released
        assert (memory.threads.get("t") if is_sync else await memory.threads.aget("t")) is None
        await memory.aclose()

    loop_runner.run(talk())


async def test_tasks_that_want_more_connections_than_there_are_are_served_in_turn(
    server: EmbeddedRedis, prefix: str
) -> None:
    served = list[int]()
    async with Memory(f"{server.url}?max_connections=2", key_prefix=prefix) as memory:
        await memory.asetup()

        async def ask(caller: int) -> None:
            for _ in range(10):
                await memory.threads.aget("t")
                served.append(caller)

        await asyncio.gather(*(ask(caller) for caller in range(8)))
    rounds = [served[start : start + 8] for start in range(0, 80, 8)]
    assert [len({*callers}) >= 7 for callers in rounds] == [True] * 10, served


async def test_a_hanging_model_is_an_error_that_names_the_option_or_costs_the_vectors_only(
    server: EmbeddedRedis, prefix: str, hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    options: Any = {"embeddings": hanging, "recall": RecallOptions(embedding_timeout=SHORT), "key_prefix": prefix}
    async with Memory(server.url, **options) as memory, Memory(server.url, **options, on_error="log") as agent:
        await memory.asetup()
        hanging.hangs = True
        asking: list[Callable[[], Any]] = [
            lambda: memory.recall.asearch("hello", user_id="u"),
            lambda: memory.history.aappend([HELLO], thread_id="t", user_id="u"),
        ]
        for call in asking:
            with pytest.raises(EmbeddingError, match=r"did not answer within 0\.1 s.*embedding_timeout") as caught:
                await call()
        assert "reindex" in caught.value.__notes__[0]
        said = HumanMessage("go on", id="2")
        with caplog.at_level(logging.WARNING, "langchain_workingmem"):
            assert await agent.asave_turn([said], thread_id="t", user_id="u") == [said]
            context = await agent.acontext("next", thread_id="t", user_id="u")
        assert context.messages[:2] == [HELLO, said]
        assert "did not answer within" in caplog.text
        hanging.hangs = False
        assert await memory.recall.areindex(progress=False) == 2


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


async def test_a_cancellation_that_was_swallowed_on_the_way_is_honoured(
    server: EmbeddedRedis, prefix: str, hanging: Hanging
) -> None:
    async with Memory(server.url, key_prefix=prefix, embeddings=hanging) as memory:
        await memory.asetup()
        hanging.hangs = hanging.swallows = True
        task = asyncio.create_task(memory.history.aappend([HELLO], thread_id="t", user_id="u"))
        await hanging.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await memory.history.amessages("t") == []


async def test_others_have_their_turn_while_a_dead_server_is_restarted(prefix: str) -> None:
    memory, waiting = Memory("redis://127.0.0.1:1?max_connections=1", key_prefix=prefix), list[bool]()
    link, pool = memory._core.async_runner.link, (await memory._core.async_runner.client()).connection_pool
    link.revive = lambda: waiting.append(pool.turns.locked())
    with pytest.raises(RedisConnectionError):
        await memory.threads.aget("t")
    assert waiting
    assert not any(waiting)
    link.revive = None
    await memory.aclose()
