"""What a turn costs in counts that no machine changes: bytes, commands, and the code that a reader of it has to read."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest
import redis

from langchain_workingmem import LocalEmbeddings, Memory, ThreadIds, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.proxy import Exchange, Proxy

IDS: ThreadIds = {"thread_id": "t", "user_id": "maya"}
FUNCTIONS, FILES, CALLS = 185, 38, 500

# in a process of its own: here others watch what is called


@pytest.fixture
def counted(server: EmbeddedRedis, raw: redis.Redis, prefix: str) -> Iterator[Callable[..., tuple[int, int, int]]]:
    """Count the bytes and commands of a call of a memory that has talked before."""
    path = server.url.removeprefix("unix://").partition("?")[0]

    def connect() -> socket.socket:
        there = socket.socket(socket.AF_UNIX)
        there.connect(path)
        return there

    with Proxy(connect) as proxy:
        options = WorkingMemoryOptions(template="")
        with Memory(proxy.url, key_prefix=prefix, embeddings=LocalEmbeddings(), working_memory=options) as memory:
            for number in range(30):
                memory.save_turn([("user", f"{number} cats sleep"), ("assistant", f"I see {number} cats")], **IDS)
            memory.context("cats?", **IDS)
            memory.settled()

            def commands() -> int:
                stats = raw.info("commandstats")
                return sum(one["calls"] for name, one in stats.items() if name != "cmdstat_info")

            def count(call: Callable[[Memory], object]) -> tuple[int, int, int]:
                before = commands()
                proxy.arm(None)
                call(memory)
                passed: Exchange = proxy.arm(None)
                return len(passed.request), len(passed.reply), commands() - before

            yield count


def test_a_context_sends_and_reads_few_bytes(counted: Callable[..., tuple[int, int, int]]) -> None:
    sent, received, commands = counted(lambda memory: memory.context("how many cats?", **IDS))
    assert sent < 3_500
    assert received < 40_000
    assert commands < 40
