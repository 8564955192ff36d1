"""What a turn costs in counts that no machine changes: bytes and commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from langchain_workingmem import LocalEmbeddings, Memory, ThreadIds, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.engine.conftest import to_socket
from tests.helpers.proxy import Exchange, Proxy

IDS: ThreadIds = {"thread_id": "t", "user_id": "maya"}


@pytest.fixture
def counted(server: EmbeddedRedis, raw: redis.Redis, prefix: str) -> Iterator[Callable[..., tuple[int, int, int]]]:
    """Count the bytes and commands of a call of a memory that has talked before."""
    with Proxy(to_socket(server)) as proxy:
        options = WorkingMemoryOptions(template="")
        with Memory(proxy.url, key_prefix=prefix, embeddings=LocalEmbeddings(), working_memory=options) as memory:
            for number in range(30):
                memory.save_turn([("user", f"{number} cats sleep"), ("assistant", f"I see {number} cats")], **IDS)
            memory.context("cats?", **IDS)
            memory.settled()

            def count(call: Callable[[Memory], object]) -> tuple[int, int, int]:
                raw.config_resetstat()
                proxy.arm(None)
                call(memory)
                passed: Exchange = proxy.arm(None)
                commands = sum(one["calls"] for name, one in raw.info("commandstats").items() if "config" not in name)
                return len(passed.request), len(passed.reply), commands

            yield count


def test_a_turn_sends_and_reads_few_bytes_by_few_commands(counted: Callable[..., tuple[int, int, int]]) -> None:
    sent, received, commands = counted(lambda memory: memory.context("how many cats?", **IDS))
    assert (sent < 3_500, received < 40_000, commands < 40) == (True,) * 3, (sent, received, commands)
    turn = [("user", "one more cat"), ("assistant", "noted")]
    sent, received, commands = counted(lambda memory: memory.save_turn(turn, **IDS))
    assert (sent < 3_500, received < 200, commands < 25) == (True,) * 3, (sent, received, commands)
