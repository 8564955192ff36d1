from __future__ import annotations

import asyncio
import multiprocessing
import re
import socket
import socketserver
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage

from langchain_workingmem import (
    IdError,
    Memory,
    MessageNotFoundError,
    OptionError,
    Page,
    RedisConnectionError,
    StoredMessage,
    ThreadNotFoundError,
    ThreadOwnershipError,
)
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.plans.keys import Keys
from tests.conftest import Trips, WordEmbeddings

NASTY_IDS = [
    *("a|b", "a,b", "a, b", "A", "a", "a*", "*", "{a}", "a}b", "{}", "a{b", "a:b", " a ", "a ", " ", "@resource:{a}"),
    *("%7B", "%", "%7b", "a\\b", "a'b", 'a"b', "a-b", "a.b", "a~b", "a_b", "a\nb", "a\r\nb", "a\tb", "the", "and", "nan"),
    *("-1", "1", "01", "1e0", "+1", "$x", "a=>b", "(a)", "[a", "😀", "é", "e\u0301", "\u202ea", "\x7f", "١", "'; --"),
    *("x" * 512, "x" * 511 + "y", "é" * 256, "é" * 255 + "ée"[1:] + "e", "😀" * 128),
]
BAD_IDS = ["", "a\0b", "\0", "x" * 513, "é" * 257, "\ud800", 5, b"a", None, ["a"]]


def said(*texts: str) -> list[BaseMessage]:
    return [HumanMessage(text, id=text) for text in texts]


def texts(messages: list[BaseMessage]) -> list[str]:
    return [str(message.content) for message in messages]


def rows_of(memory: Memory, thread_id: str = "t") -> list[StoredMessage]:
    return memory.history.page(thread_id, limit=10_000).items


def vectors(raw: redis.Redis, prefix: str) -> dict[str, str]:
    """The text behind each vector that is stored, by key."""
    keys = sorted(key.decode() for key in raw.scan_iter(f"{prefix}:vector:*", count=1000))
    return {key: raw.hget(key, "text").decode() for key in keys}  # type: ignore[union-attr]


def append(memory: Memory, *words: str, thread_id: str = "t", resource_id: str = "u") -> None:
    memory.history.append(said(*words), thread_id=thread_id, resource_id=resource_id)


def all_pages(read: Callable[[str | None], Page[StoredMessage]]) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    cursor: str | None = None
    while True:
        page = read(cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


# ---------------------------------------------------------------------- append


def test_append_creates_the_thread_and_returns_what_is_stored(plain: Memory) -> None:
    stored = plain.history.append(said("hi", "there"), thread_id="t", resource_id="u")
    assert stored == plain.history.messages("t") == said("hi", "there")
    thread = plain.threads.get("t")
    assert thread is not None
    assert (thread.resource_id, thread.title, thread.metadata, thread.message_count) == ("u", None, {}, 2)


def test_append_sets_missing_ids_on_the_messages_that_were_passed(plain: Memory) -> None:
    mine = [HumanMessage("a"), AIMessage("b")]
    stored = plain.history.append(mine, thread_id="t", resource_id="u")
    assert [message.id for message in mine] == [message.id for message in stored]
    assert len({message.id for message in mine if message.id}) == 2


def test_append_twice_stores_once(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    mine = [HumanMessage("a cat"), AIMessage("a dog")]
    memory.history.append(mine, thread_id="t", resource_id="u")
    before, thread = rows_of(memory), memory.threads.get("t")
    memory.history.append(mine, thread_id="t", resource_id="u")
    assert rows_of(memory) == before
    assert memory.threads.get("t") == thread
    assert sorted(vectors(raw, prefix).values()) == ["a cat", "a dog"]


class _Loses(socketserver.ThreadingUnixStreamServer):
    """Stands before Redis, and cuts the connection instead of passing on the reply to what holds `marker`."""

    daemon_threads = True
    block_on_close = False
    target = ""
    marker = b"lost"
    left = 4  # as often as the client tries by itself, and once more


class _Relay(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _Loses)
        with socket.socket(socket.AF_UNIX) as upstream:
            upstream.connect(server.target)
            while data := self.request.recv(1 << 16):
                upstream.sendall(data)
                reply = upstream.recv(1 << 16)
                if server.marker in data and server.left and not reply.startswith(b"-NOSCRIPT"):
                    server.left -= 1
                    return
                self.request.sendall(reply)


@contextmanager
def loses_replies(url: str) -> Iterator[tuple[str, _Loses]]:
    with tempfile.TemporaryDirectory() as folder, _Loses(f"{folder}/s", _Relay) as server:
        server.target = unquote(urlsplit(url).path)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"unix://{quote(str(Path(folder, 's')))}", server
        server.shutdown()


def test_append_again_after_the_reply_was_lost_stores_once(
    server: EmbeddedRedis, make_memory: Callable[..., Memory]
) -> None:
    with loses_replies(server.url) as (url, proxy):
        memory = make_memory(url)
        mine: list[BaseMessage] = [HumanMessage("lost one"), AIMessage("lost two")]
        for _ in range(6):
            with suppress(RedisConnectionError):
                memory.history.append(mine, thread_id="t", resource_id="u")
        assert proxy.left == 0
        assert memory.history.messages("t") == mine
        assert [row.seq for row in rows_of(memory)] == [0, 1]


def test_append_of_an_equal_id_replaces_in_place(plain: Memory) -> None:
    append(plain, "a", "b", "c")
    before = rows_of(plain)
    plain.history.append([HumanMessage("new", id="b"), *said("d")], thread_id="t", resource_id="u")
    after = rows_of(plain)
    assert texts([row.message for row in after]) == ["a", "new", "c", "d"]
    assert [(row.seq, row.stored_at) for row in after[:3]] == [(row.seq, row.stored_at) for row in before]
    assert plain.threads.get("t").message_count == 4  # type: ignore[union-attr]


def test_append_of_an_equal_id_replaces_its_vectors(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    long = " ".join(f"word{number}" for number in range(900))
    append(memory, "a", "b")
    for text in (long, "short", "", "a little longer than short", long[::-1]):
        memory.history.append([HumanMessage(text, id="b")], thread_id="t", resource_id="u")
        stored = [found for found in vectors(raw, prefix).values() if found != "a"]
        assert "".join(sorted("".join(stored).split())) == "".join(sorted("".join(text.split())))
        assert bool(stored) is bool(text)


def test_append_without_recall_takes_the_vectors_of_what_it_replaces(
    make_memory: Callable[..., Memory], memory: Memory, raw: redis.Redis, prefix: str
) -> None:
    append(memory, "a", "b")
    make_memory().history.append([HumanMessage("new", id="a")], thread_id="t", resource_id="u")
    assert list(vectors(raw, prefix).values()) == ["b"]


def test_append_with_the_same_id_twice_in_one_call_keeps_the_later_at_the_first_place(plain: Memory) -> None:
    twice = [HumanMessage("old", id="1"), HumanMessage("between", id="2"), HumanMessage("new", id="1")]
    plain.history.append(twice, thread_id="t", resource_id="u")
    assert texts(plain.history.messages("t")) == ["new", "between"]
    assert plain.threads.get("t").message_count == 2  # type: ignore[union-attr]


def test_message_ids_are_per_thread(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    for thread_id in ("t1", "t2"):
        append(memory, "same", thread_id=thread_id)
    memory.history.update([HumanMessage("changed", id="same")], thread_id="t1")
    assert texts(memory.history.messages("t2")) == ["same"]
    memory.history.delete(["same"], thread_id="t1")
    assert texts(memory.history.messages("t2")) == ["same"]
    assert list(vectors(raw, prefix).values()) == ["same"]


def test_append_skips_prompts_summaries_and_what_memory_injected(plain: Memory) -> None:
    kept = said("kept")
    skipped = [
        SystemMessage("you are helpful"),
        HumanMessage("a summary", additional_kwargs={"lc_source": "summarization"}),
        AIMessage("recalled", additional_kwargs={"lc_source": "langchain_workingmem"}),
        RemoveMessage(id="x"),
    ]
    assert plain.history.append([*skipped, *kept], thread_id="t", resource_id="u") == kept
    assert plain.history.messages("t") == kept


def test_append_of_nothing_worth_keeping_makes_no_thread(plain: Memory) -> None:
    assert plain.history.append([SystemMessage("x")], thread_id="t", resource_id="u") == []
    assert plain.history.append([], thread_id="t", resource_id="u") == []
    assert plain.threads.get("t") is None


def test_append_accepts_whatever_langchain_accepts_as_messages(plain: Memory) -> None:
    given: list[Any] = [{"role": "user", "content": "a"}, ("assistant", "b"), "c", HumanMessage("d")]
    plain.history.append((item for item in given), thread_id="t", resource_id="u")
    plain.history.append(HumanMessage("e"), thread_id="t", resource_id="u")  # type: ignore[arg-type]
    stored = plain.history.messages("t")
    assert [(message.type, message.content) for message in stored] == [
        *(("human", "a"), ("ai", "b"), ("human", "c"), ("human", "d"), ("human", "e"))
    ]


def test_append_refuses_a_lone_text(plain: Memory) -> None:
    with pytest.raises(OptionError, match=r"pass \[HumanMessage\(text\)\]"):
        plain.history.append("hello", thread_id="t", resource_id="u")


@pytest.mark.parametrize("lone", [{"role": "user", "content": "hello"}, ("user", "hello")])
def test_append_takes_a_lone_message_like_value_as_one_message(plain: Memory, lone: Any) -> None:
    # the values of a dict and the halves of a pair are no messages of their own
    with suppress(OptionError):
        plain.history.append(lone, thread_id="t", resource_id="u")
    assert texts(plain.history.messages("t")) in ([], ["hello"])


def test_a_tool_call_without_results_is_kept_and_completed_later(plain: Memory) -> None:
    call = AIMessage("", id="1", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "c1"}])
    result = ToolMessage("42", tool_call_id="c1", id="2")
    plain.history.append([call], thread_id="t", resource_id="u")
    assert plain.history.messages("t") == [call]
    plain.history.append([call, result], thread_id="t", resource_id="u")
    assert plain.history.messages("t") == [call, result]


def test_sequence_numbers_are_dense_and_times_rise_strictly(plain: Memory) -> None:
    append(plain, *map(str, range(300)))
    append(plain, *map(str, range(300, 310)))
    rows = rows_of(plain)
    assert [row.seq for row in rows] == list(range(310))
    times = [row.stored_at for row in rows]
    assert times == sorted(set(times))
    assert {row.thread_id for row in rows} == {"t"}
    assert times[0].tzinfo is UTC


# ---------------------------------------------------------------------- at the same time


def _append_alone(url: str, prefix: str, face: str, worker: int) -> None:
    batches = [said(f"{worker}-{number}") for number in range(50)]

    async def run() -> None:
        async with Memory(url, key_prefix=prefix) as memory:
            for batch in batches:
                await memory.history.aappend(batch, thread_id="t", resource_id="u")

    if face == "async":
        asyncio.run(run())
        return
    with Memory(url, key_prefix=prefix) as memory:
        for batch in batches:
            memory.history.append(batch, thread_id="t", resource_id="u")


def test_appends_of_many_processes_lose_nothing_and_keep_one_order(
    plain: Memory, server: EmbeddedRedis, prefix: str, face: str
) -> None:
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_append_alone, args=(server.url, prefix, face, worker)) for worker in range(8)]
    for process in workers:
        process.start()
    for process in workers:
        process.join()
    assert [process.exitcode for process in workers] == [0] * 8
    rows = rows_of(plain)
    assert [row.seq for row in rows] == list(range(400))
    assert [row.stored_at for row in rows] == sorted({row.stored_at for row in rows})
    for worker in range(8):
        mine = [row.message.id for row in rows if str(row.message.id).startswith(f"{worker}-")]
        assert mine == [f"{worker}-{number}" for number in range(50)]
    assert plain.threads.get("t").message_count == 400  # type: ignore[union-attr]


def test_the_same_messages_appended_by_many_threads_at_once_are_stored_once(
    server: EmbeddedRedis, plain: Memory, prefix: str, embeddings: WordEmbeddings, raw: redis.Redis
) -> None:
    from langchain_workingmem import RecallOptions

    batch = said("one cat", "two dogs", "three birds")
    with (
        Memory(server.url, key_prefix=prefix, embeddings=embeddings, recall=RecallOptions()) as shared,
        ThreadPoolExecutor(8) as pool,
    ):
        list(pool.map(lambda _: shared.history.append(batch, thread_id="t", resource_id="u"), range(40)))
    assert plain.history.messages("t") == batch
    assert [row.seq for row in rows_of(plain)] == [0, 1, 2]
    assert sorted(vectors(raw, prefix).values()) == ["one cat", "three birds", "two dogs"]


async def test_appends_of_many_tasks_lose_nothing(server: EmbeddedRedis, prefix: str) -> None:
    async with Memory(server.url, key_prefix=prefix) as memory:
        batches = [said(f"{number}a", f"{number}b") for number in range(60)]
        await asyncio.gather(
            *(memory.history.aappend(batch, thread_id="t", resource_id="u") for batch in batches)
        )
        rows = (await memory.history.apage("t", limit=1000)).items
    assert [row.seq for row in rows] == list(range(120))
    order = [str(row.message.id) for row in rows]
    assert sorted(order) == sorted(str(message.id) for batch in batches for message in batch)
    assert all(order[at][:-1] == order[at + 1][:-1] for at in range(0, 120, 2))  # a batch is one step


def test_deletions_at_the_same_time_count_each_message_once(server: EmbeddedRedis, plain: Memory, prefix: str) -> None:
    append(plain, *map(str, range(100)))
    with Memory(server.url, key_prefix=prefix) as shared, ThreadPoolExecutor(8) as pool:
        ids = [str(number) for number in range(90)]
        counts = pool.map(lambda _: shared.history.delete(ids, thread_id="t"), range(8))
        assert sum(counts) == 90
    assert texts(plain.history.messages("t")) == [str(number) for number in range(90, 100)]
    assert plain.threads.get("t").message_count == 10  # type: ignore[union-attr]
