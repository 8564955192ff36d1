"""Eight processes (this file) at work for WORKINGMEM_SOAK_SECONDS, while the server is killed: nothing is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, RedisConnectionError, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embedded import go_on, read, server_pid
from tests.helpers.embeddings import WordEmbeddings

SECONDS = float(os.environ.get("WORKINGMEM_SOAK_SECONDS", "60"))
PROCESSES = 8
KILLS = 5
KEYS = 20  # of working memory, for each process


def open_memory(url_or_path: str) -> Memory:
    make = Memory if url_or_path.startswith("unix://") else Memory.embedded
    facts = WorkingMemoryOptions(schema={"type": "object"})
    return make(url_or_path, embeddings=WordEmbeddings(), working_memory=facts)


class Worker:
    """Keeps what was acknowledged: messages in order by thread, and the latest number under each key."""

    def __init__(self, memory: Memory, number: int) -> None:
        self.memory = memory
        self.number = number
        self.random = random.Random(number)
        self.said: dict[str, list[str]] = {"shared": [], f"own {number}": []}
        self.facts: dict[str, int] = {}
        self.merged = 0

    def append(self, count: int) -> None:
        thread = self.random.choice(list(self.said))
        ids = [f"{self.number}-{count}-{part}" for part in range(self.random.randint(1, 3))]
        messages = [HumanMessage(f"number {id} of {thread}", id=id) for id in ids]
        owner = "all" if thread == "shared" else f"user {self.number}"
        self.memory.history.append(messages, thread_id=thread, user_id=owner)
        self.said[thread] += ids

    def merge(self, count: int) -> None:
        key = f"{self.number}-{count % KEYS}"
        self.memory.working_memory.update({key: count}, user_id="all")
        self.facts[key] = count
        self.merged += 1

    def look(self, count: int) -> None:
        """What was acknowledged is shown."""
        thread = f"own {self.number}"
        context = self.memory.context("number", thread_id=thread, user_id=f"user {self.number}")
        stored = [message.id for message in context.messages[:-1]]
        assert stored[-1:] == self.said[thread][-1:], (count, stored, self.said[thread][-3:])

    def work(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        jobs = [self.append] * 4 + [self.merge] * 2 + [self.look]
        count = 0
        while time.monotonic() < end:
            job, count = self.random.choice(jobs), count + 1
            state = self.random.getstate()
            until = time.monotonic() + 30
            while True:
                try:
                    job(count)
                except RedisConnectionError:  # the same once more: it may have happened
                    self.random.setstate(state)
                    assert time.monotonic() < until
                else:
                    break


def main(number: int, directory: str, seconds: float) -> None:
    """Work until told to stop, and print what was acknowledged."""
    server = EmbeddedRedis(directory)  # a claim, so that the socket stays
    server.start()
    # half of them start a server again that they miss, the others wait until somebody does
    worker = Worker(open_memory(directory if number % 2 else server.url), number)
    worker.memory.setup()
    worker.memory.history.append([HumanMessage("hello", id="hello")], thread_id="shared", user_id="all")
    print("ready", flush=True)  # noqa: T201 - read by the test
    sys.stdin.readline()
    worker.work(seconds)
    print(json.dumps({"said": worker.said, "facts": worker.facts, "merged": worker.merged}), flush=True)  # noqa: T201
    worker.memory.close()
    server.close()


@pytest.mark.nightly
@pytest.mark.alone
def test_nothing_acknowledged_is_lost_when_the_server_is_killed(scratch: Path) -> None:
    path = scratch / "data"
    command = [sys.executable, "-m", "tests.house.test_soak"]
    with open_memory(str(path)) as memory, ExitStack() as stack:
        workers = []
        for number in range(PROCESSES):
            words, pipe = [*command, str(number), str(path), str(SECONDS)], subprocess.PIPE
            worker = stack.enter_context(subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True))
            stack.callback(worker.kill)
            workers.append(worker)
        assert [read(worker) for worker in workers] == ["ready"] * PROCESSES
        for worker in workers:
            go_on(worker)
        for _ in range(KILLS):
            time.sleep(SECONDS / (KILLS + 1))
            os.kill(server_pid(path), signal.SIGKILL)  # somebody may start it again at once
            memory.threads.get("shared")
        reports = [json.loads(read(worker)) for worker in workers]
        check(memory, reports)


def check(memory: Memory, reports: list[dict[str, Any]]) -> None:
    facts = memory.working_memory.get(user_id="all")
    shared = memory.threads.get("shared")
    assert shared is not None
    for number, report in enumerate(reports):
        for thread, said in report["said"].items():
            stored = [str(message.id) for message in memory.history.messages(thread)]
            assert len(stored) == len(set(stored))
            assert [id for id in stored if id.startswith(f"{number}-")] == said
        assert report["facts"].items() <= facts.value.items()
    rows = memory.history.page("shared", limit=shared.message_count + 1).items
    assert [row.seq for row in rows] == list(range(shared.message_count))
    # each merge writes something new, so one that happened twice, or not at all, would show
    assert facts.revision == sum(report["merged"] for report in reports)
    assert memory.recall.reindex(progress=False) == 0


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
