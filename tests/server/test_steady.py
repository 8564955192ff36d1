"""Many turns of one process: its memory, descriptors, threads and connections stay as they are.

WORKINGMEM_TURNS sets how many turns; `make nightly` takes 50,000.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import HistoryOptions, Memory, RecallOptions, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.conftest import WordEmbeddings

TURNS = int(os.environ.get("WORKINGMEM_TURNS", "500"))
PARTS = 10  # as many times it is looked at; in the async run each part has an event loop of its own
OF_A_THREAD = 10  # turns
GROWTH = 24 * 2**20  # bytes: pages of an allocator, caches that fill; a leak of 1 kB a turn is 50 MB in the nightly run


class Figures(NamedTuple):
    turns: int
    memory: int  # bytes, resident
    descriptors: int
    threads: int
    connections: int


class Forgetful(WordEmbeddings):
    """A model that keeps no list of what it was asked."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self._vector(text) for text in texts]


def resident() -> int:
    return int(re.findall(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[0]) * 1024


def figures(client: redis.Redis, turns: int) -> Figures:
    gc.collect()
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return Figures(turns, resident(), descriptors, threading.active_count(), len(client.client_list()))


def turn(number: int) -> dict[str, Any]:
    thread = number // OF_A_THREAD
    return {"thread_id": f"thread {thread}", "resource_id": f"user {thread % 50}"}


def said(number: int) -> list[HumanMessage | AIMessage]:
    return [HumanMessage(f"question {number} about topic{number % 97}"), AIMessage(f"answer {number}")]


def in_sync(memory: Memory, numbers: range) -> None:
    (tool,) = memory.tools(include=["update_working_memory"])
    for number in numbers:
        question, answer = said(number)
        memory.context([question], **turn(number))
        memory.save_turn([question, answer], **turn(number))
        if not number % OF_A_THREAD:
            note = {"memory": f"The user asked about topic{number % 97}."}
            assert "available" not in tool.invoke(note, {"configurable": turn(number)})
            memory.recall.search("topic1", resource_id=turn(number)["resource_id"], top_k=2)


async def in_async(memory: Memory, numbers: range) -> None:
    (tool,) = memory.tools(include=["update_working_memory"])
    for number in numbers:
        question, answer = said(number)
        await memory.acontext([question], **turn(number))
        await memory.asave_turn([question, answer], **turn(number))
        if not number % OF_A_THREAD:
            note = {"memory": f"The user asked about topic{number % 97}."}
            assert "available" not in await tool.ainvoke(note, {"configurable": turn(number)})
            await memory.recall.asearch("topic1", resource_id=turn(number)["resource_id"], top_k=2)


@pytest.fixture
def fresh() -> Iterator[EmbeddedRedis]:
    """A server whose connections are all ours."""
    with EmbeddedRedis() as server:
        yield server


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_many_turns_leave_a_process_as_it_was(fresh: EmbeddedRedis, face: str) -> None:
    memory = Memory(
        fresh.url,
        embeddings=Forgetful(),
        history=HistoryOptions(last_messages=10),
        recall=RecallOptions(top_k=2),
        working_memory=WorkingMemoryOptions(template="", max_bytes=2_000_000),
    )
    work: Callable[[range], None] = (
        (lambda numbers: in_sync(memory, numbers))
        if face == "sync"
        else (lambda numbers: asyncio.run(in_async(memory, numbers)))
    )
    size = TURNS // PARTS
    began = time.monotonic()
    with redis.Redis.from_url(fresh.url) as client:
        seen = []
        for part in range(PARTS):
            work(range(part * size, (part + 1) * size))
            seen.append(figures(client, (part + 1) * size))
        print(report(face, seen, time.monotonic() - began))  # noqa: T201 - for `pytest -s`
        memory.close()
    warm = seen[1]
    assert {(one.descriptors, one.threads, one.connections) for one in seen[1:]} == {warm[2:]}
    assert seen[-1].memory - warm.memory < GROWTH


def report(face: str, seen: list[Figures], seconds: float) -> str:
    lines = [f"steady, {face}: {seen[-1].turns} turns in {seconds:.0f} s"]
    lines += [
        f"  {one.turns:>6} turns: {one.memory / 2**20:6.1f} MB, {one.descriptors} descriptors, {one.threads} threads, "
        f"{one.connections} connections"
        for one in seen
    ]
    return "\n".join(lines)
