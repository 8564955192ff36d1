"""kill -9 in the middle: what was acknowledged is there, and what was half done is healed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Literal

import pytest
import redis
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, RecallOptions, RedisConnectionError
from langchain_workingmem.embedded import EmbeddedRedis
from tests.conftest import WordEmbeddings

WRITER = """
import sys
from langchain_core.messages import HumanMessage
from langchain_workingmem import Memory
with Memory(sys.argv[1]) as memory:
    for place in range(100_000):
        memory.history.append([HumanMessage(str(place))], thread_id="t", resource_id="u")
        print(place, flush=True)
"""


@pytest.mark.parametrize("appendfsync", ["always", "everysec"])
def test_killing_the_server_loses_no_acknowledged_message(
    tmp_path: Path, appendfsync: Literal["always", "everysec"]
) -> None:
    with EmbeddedRedis(tmp_path / "data", appendfsync=appendfsync) as server:
        memory = Memory(server.url)
        acknowledged: list[str] = []
        under_way = threading.Event()

        def write() -> None:
            for place in range(100_000):
                try:
                    memory.history.append([HumanMessage(str(place))], thread_id="t", resource_id="u")
                except RedisConnectionError:
                    return
                acknowledged.append(str(place))
                if place == 200:
                    under_way.set()

        writer = threading.Thread(target=write)
        writer.start()
        assert under_way.wait(30)
        with redis.Redis.from_url(server.url) as client:
            os.kill(client.info("server")["process_id"], signal.SIGKILL)
        writer.join()
        memory.close()

        server.start()
        with Memory(server.url) as memory:
            stored = [str(message.content) for message in memory.history.messages("t")]
            # at most one more: written, but its reply did not arrive
            assert stored[: len(acknowledged)] == acknowledged
            assert len(stored) - len(acknowledged) <= 1
            rows = memory.history.page("t", limit=len(stored)).items
            assert [row.seq for row in rows] == list(range(len(stored)))


def test_killing_the_writer_loses_no_acknowledged_message(server: EmbeddedRedis, tmp_path: Path) -> None:
    with (
        EmbeddedRedis(tmp_path / "data") as private,
        subprocess.Popen([sys.executable, "-c", WRITER, private.url], stdout=subprocess.PIPE, text=True) as writer,
        Memory(private.url) as memory,
    ):
        assert writer.stdout is not None
        acknowledged = [writer.stdout.readline().strip() for _ in range(200)]
        writer.kill()
        acknowledged += writer.stdout.read().split()
        stored = [str(message.content) for message in memory.history.messages("t")]
        assert stored[: len(acknowledged)] == acknowledged
        assert memory.threads.get("t").message_count == len(stored)  # type: ignore[union-attr]


def test_indexes_and_vectors_come_back_with_the_server(tmp_path: Path) -> None:
    embeddings = WordEmbeddings()
    with EmbeddedRedis(tmp_path / "data") as server:
        memory = Memory(server.url, embeddings=embeddings, recall=RecallOptions())
        texts = [f"message number {place} about topic{place % 7}" for place in range(300)]
        memory.history.append([HumanMessage(text) for text in texts], thread_id="t", resource_id="u")
        before = memory.recall.search("topic3", resource_id="u", top_k=40)
        with redis.Redis.from_url(server.url) as client:
            os.kill(client.info("server")["process_id"], signal.SIGKILL)
        wait_for_end(memory)
        server.start()
        after = memory.recall.search("topic3", resource_id="u", top_k=40)
        assert [hit.message.id for hit in after] == [hit.message.id for hit in before]
        assert memory.recall.reindex(progress=False) == 0
        memory.close()


def wait_for_end(memory: Memory) -> None:
    """Return when the killed server does not answer any more."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            memory.threads.get("t")
        except RedisConnectionError:
            return
    raise TimeoutError
