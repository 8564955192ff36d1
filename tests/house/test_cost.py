"""What a turn costs in counts that no machine changes: bytes, commands, and the code that a reader of it has to read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import redis

from langchain_workingmem import LocalEmbeddings, Memory, ThreadIds, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.engine.conftest import to_socket
from tests.helpers.proxy import Exchange, Proxy

IDS: ThreadIds = {"thread_id": "t", "user_id": "maya"}
FUNCTIONS, FILES, CALLS = 170, 30, 460

# in a process of its own: here others watch what is called
TRACED = """
import sys, threading
from collections import Counter
from pathlib import Path
import langchain_workingmem
from langchain_workingmem import Memory, WorkingMemoryOptions
ROOT, IDS = str(Path(langchain_workingmem.__file__).parent), {"thread_id": "t", "user_id": "maya"}
calls = Counter()
def watch(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(ROOT) and not code.co_name.endswith(("comp>", "<genexpr>")):
        calls[code.co_filename, code.co_qualname] += 1
memory = Memory(sys.argv[1], key_prefix=sys.argv[2], embeddings="local", working_memory=WorkingMemoryOptions())
def turn(text, answer):
    context = memory.context(text, **IDS)
    memory.save_turn([context.messages[-1], ("assistant", answer)], **IDS)
    return context
for number in range(15):
    turn(f"My dog Nougat ate shoe number {number} today.", f"Shoe {number}, oh dear!")
memory.settled()
sys.setprofile(watch), threading.setprofile(watch)
found = turn("Which shoe did my dog Nougat eat first?", "Number 0.").recalled.hits
sys.setprofile(None), threading.setprofile(None)
memory.close()
assert found
print(len(calls), len({file for file, _ in calls}), sum(calls.values()))
"""


def test_a_turn_runs_no_more_code_than_a_reader_was_told(server: EmbeddedRedis, prefix: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TRACED, server.url, prefix],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    functions, files, calls = map(int, done.stdout.split())
    assert (functions <= FUNCTIONS, files <= FILES, calls <= CALLS) == (True,) * 3, done.stdout


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
