"""One process of the soak: it works until told to stop, and prints what was acknowledged.

python -m tests.house.soak <number> <directory> <seconds>
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from typing import Any

from langchain_core.messages import HumanMessage
from pydantic import BaseModel

from langchain_workingmem import Memory, RecallOptions, RedisConnectionError, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embeddings import WordEmbeddings

KEYS = 20  # of working memory, for each process


class Facts(BaseModel):
    facts: dict[str, int] = {}


def open_memory(url_or_path: str) -> Memory:
    options: dict[str, Any] = {
        "embeddings": WordEmbeddings(),
        "recall": RecallOptions(),
        "working_memory": WorkingMemoryOptions(schema=Facts),
    }
    if url_or_path.startswith("unix://"):
        return Memory(url_or_path, **options)
    return Memory.embedded(url_or_path, **options)


class Worker:
    """Keeps what was acknowledged: messages in order by thread, and the latest number under each key."""

    def __init__(self, memory: Memory, number: int) -> None:
        self.memory = memory
        self.number = number
        self.random = random.Random(number)
        self.said: dict[str, list[str]] = {"shared": [], f"own {number}": []}
        self.facts: dict[str, int] = {}
        self.labels: dict[str, int] = {}
        self.done: Counter[str] = Counter()

    def append(self, count: int) -> None:
        thread = self.random.choice(list(self.said))
        ids = [f"{self.number}-{count}-{part}" for part in range(self.random.randint(1, 3))]
        messages = [HumanMessage(f"number {id} of {thread}", id=id) for id in ids]
        owner = "all" if thread == "shared" else f"user {self.number}"
        self.memory.history.append(messages, thread_id=thread, user_id=owner)
        self.said[thread] += ids

    def merge(self, count: int) -> None:
        key = f"{self.number}-{count % KEYS}"
        self.memory.working_memory.update({"facts": {key: count}}, user_id="all")
        self.facts[key] = count

    def label(self, count: int) -> None:
        key = f"{self.number}-{count % KEYS}"
        self.memory.threads.update("shared", metadata={key: count})
        self.labels[key] = count

    def look(self, count: int) -> None:
        """What was acknowledged is shown."""
        thread = f"own {self.number}"
        context = self.memory.context("number", thread_id=thread, user_id=f"user {self.number}")
        stored = [message.id for message in context.messages[:-1]]
        assert stored[-1:] == self.said[thread][-1:], (count, stored, self.said[thread][-3:])

    def recall(self, count: int) -> None:
        if said := self.said[f"own {self.number}"]:
            text = f"number {said[count % len(said)]} of own {self.number}"
            assert self.memory.recall.search(text, user_id=f"user {self.number}").hits

    def work(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        jobs = [self.append] * 4 + [self.merge] * 2 + [self.label, self.look, self.recall]
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
            self.done[job.__name__] += 1


def main(number: int, directory: str, seconds: float) -> None:
    server = EmbeddedRedis(directory)  # a claim, so that the socket stays
    server.start()
    # half of them start a server again that they miss, the others wait until somebody does
    worker = Worker(open_memory(directory if number % 2 else server.url), number)
    worker.memory.setup()
    worker.memory.history.append([HumanMessage("hello", id="hello")], thread_id="shared", user_id="all")
    print("ready", flush=True)  # noqa: T201 - read by the test
    sys.stdin.readline()
    worker.work(seconds)
    names = ("said", "facts", "labels", "done")
    print(json.dumps({name: getattr(worker, name) for name in names}), flush=True)  # noqa: T201
    worker.memory.close()
    server.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
