"""Whatever happens around an append, lost replies and many writers, each message is stored once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote, urlsplit

import pytest
import redis
import redis.asyncio
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from langchain_workingmem import Memory, RecallOptions, RedisConnectionError
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.proxy import Fault, Proxy
from tests.helpers.threads import rows_of, said, texts, thread_of, vectors

pytestmark = pytest.mark.in_turn("face")


def test_append_again_after_a_lost_reply_stores_once(
    server: EmbeddedRedis, make_memory: Callable[..., Memory], loop_runner: asyncio.Runner, plain: Memory
) -> None:
    def connect() -> socket.socket:
        there = socket.socket(socket.AF_UNIX)
        there.connect(unquote(urlsplit(server.url).path))
        return there

    mine: list[BaseMessage] = [HumanMessage("lost one"), AIMessage("lost two")]
    with Proxy(connect) as proxy, redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0)) as client:
        async_client = redis.asyncio.Redis.from_url(proxy.url, retry=AsyncRetry(NoBackoff(), 0))
        memory = make_memory(client=client, async_client=async_client)
        memory.history.append(said("before"), thread_id="t", user_id="u")  # the server has the script
        proxy.arm(Fault("close", "reply", 1))
        with pytest.raises(RedisConnectionError):
            memory.history.append(mine, thread_id="t", user_id="u")
        assert plain.history.messages("t")[1:] == mine  # the reply alone was lost
        memory.history.append(mine, thread_id="t", user_id="u")
        loop_runner.run(async_client.aclose())
    assert plain.history.messages("t")[1:] == mine
    assert [row.seq for row in rows_of(plain)] == [0, 1, 2]


def test_of_an_id_that_comes_twice_the_last_message_is_stored(plain: Memory) -> None:
    turn = [HumanMessage("one", id="q"), HumanMessage("two", id="q"), AIMessage("yes", id="a")]
    plain.save_turn(turn, thread_id="t", user_id="u")
    assert plain.history.messages("t") == turn[1:]
    plain.history.delete(["q"], thread_id="t")
    assert plain.history.messages("t") == turn[2:]


def test_the_same_messages_appended_by_many_threads_at_once_are_stored_once(
    server: EmbeddedRedis, plain: Memory, prefix: str, embeddings: WordEmbeddings, raw: redis.Redis
) -> None:
    batch = said("one cat", "two dogs", "three birds")
    with (
        Memory(server.url, key_prefix=prefix, embeddings=embeddings, recall=RecallOptions()) as shared,
        ThreadPoolExecutor(8) as pool,
    ):
        list(pool.map(lambda _: shared.history.append(batch, thread_id="t", user_id="u"), range(40)))
    assert plain.history.messages("t") == batch
    assert [row.seq for row in rows_of(plain)] == [0, 1, 2]
    assert list(vectors(raw, prefix).values()) == ["one cat", "two dogs", "three birds"]


def test_edits_by_many_threads_at_once_leave_the_vectors_of_the_last(
    server: EmbeddedRedis, plain: Memory, prefix: str, embeddings: WordEmbeddings, raw: redis.Redis
) -> None:
    def edit(number: int) -> None:
        text = f"word{number} " * (1 + 400 * (number % 3))
        shared.history.append([HumanMessage(text, id="m")], thread_id="t", user_id="u")

    with (
        Memory(server.url, key_prefix=prefix, embeddings=embeddings, recall=RecallOptions()) as shared,
        ThreadPoolExecutor(8) as pool,
    ):
        list(pool.map(edit, range(60)))
    (text,) = texts(plain.history.messages("t"))
    assert " ".join(vectors(raw, prefix).values()).split() == text.split()


async def test_appends_of_many_tasks_lose_nothing(server: EmbeddedRedis, prefix: str) -> None:
    async with Memory(server.url, key_prefix=prefix) as memory:
        batches = [said(f"{number}a", f"{number}b") for number in range(60)]
        await asyncio.gather(*(memory.history.aappend(batch, thread_id="t", user_id="u") for batch in batches))
        rows = (await memory.history.apage("t", limit=1000)).items
    assert [row.seq for row in rows] == list(range(120))
    assert [row.stored_at for row in rows] == sorted({row.stored_at for row in rows})
    order = [str(row.message.id) for row in rows]
    assert sorted(order) == sorted(str(message.id) for batch in batches for message in batch)
    assert all(order[at][:-1] == order[at + 1][:-1] for at in range(0, 120, 2))  # a batch is one step


def test_deletions_at_the_same_time_count_each_message_once(server: EmbeddedRedis, plain: Memory, prefix: str) -> None:
    plain.history.append(said(*map(str, range(100))), thread_id="t", user_id="u")
    with Memory(server.url, key_prefix=prefix) as shared, ThreadPoolExecutor(8) as pool:
        ids = [str(number) for number in range(90)]
        counts = pool.map(lambda _: shared.history.delete(ids, thread_id="t"), range(8))
        assert sum(counts) == 90
    assert texts(plain.history.messages("t")) == [str(number) for number in range(90, 100)]
    assert thread_of(plain).message_count == 10
