"""WORKINGMEM_TURNS turns of a process (this file): its memory, descriptors, threads and connections stay as they are."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.faces import AsyncFace

pytestmark = [pytest.mark.in_turn("face"), pytest.mark.nightly]

TURNS = int(os.environ.get("WORKINGMEM_TURNS", "200"))
GROWTH = 24 * 2**20  # bytes: pages of an allocator, caches that fill; a leak of 1 kB a turn is 50 MB in the nightly run
PARTS = 10  # as many times it is looked at; in the async run each part has an event loop of its own
OF_A_THREAD = 10  # turns


def figures(client: redis.Redis) -> list[int]:
    """Return what this process holds: bytes, descriptors, threads, and connections."""
    gc.collect()
    resident = int(re.findall(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[0]) * 1024
    return [resident, len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), len(client.client_list())]


def work(memory: Any, numbers: range) -> None:
    for number in numbers:
        thread = number // OF_A_THREAD
        ids = {"thread_id": f"thread {thread}", "user_id": f"user {thread % 50}"}
        said = [HumanMessage(f"question {number} about topic{number % 97}"), AIMessage(f"answer {number}")]
        memory.context(said[:1], **ids)
        memory.save_turn(said, **ids)
        if not number % OF_A_THREAD:
            memory.working_memory.update(f"The user asked about topic{number % 97}.", **ids)
            memory.recall.search("topic1", user_id=ids["user_id"], top_k=2)


def main(url: str, face: str, turns: int) -> None:
    """Print after each part what the process holds."""
    memory = Memory(url, embeddings="local", working_memory=WorkingMemoryOptions(template="", max_bytes=2_000_000))
    size = turns // PARTS
    with redis.Redis.from_url(url) as client:
        for part in range(PARTS):
            numbers = range(part * size, (part + 1) * size)
            with asyncio.Runner() as runner:
                work(memory if face == "sync" else AsyncFace(memory, runner), numbers)
            print(json.dumps(figures(client)), flush=True)  # noqa: T201 - read by the test
    memory.close()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_many_turns_leave_a_process_as_it_was(face: str) -> None:
    with EmbeddedRedis() as server:  # whose connections are all of that process
        command = [sys.executable, "-m", "tests.house.test_steady", server.url, face, str(TURNS)]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    _, first, *rest = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(rest) == PARTS - 2
    assert [one[1:] for one in rest] == [first[1:]] * len(rest)
    assert rest[-1][0] - first[0] < GROWTH


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
