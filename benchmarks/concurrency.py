"""How many turns a second does one process serve to many tasks, and to threads? README.md says how to read the table.

    python benchmarks/concurrency.py
    PYTHONPATH=<another checkout> python benchmarks/concurrency.py     the same of another version

A turn is a hybrid context and a save of two messages, by a model that costs nothing. Each caller begins its next turn when the
last one has ended. A process runs Python on one core, whatever the number of callers: the processor time of a turn in the
client is the limit, and with it the latency grows with the callers. So p99 is to be read beside p50: their ratio is 1 where
all callers are served alike.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import redis
from common import BATCH, EXACT, HYBRID, Slices, Words, environment, row
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Iterator


class AsyncSlices(Slices):
    """The model that costs nothing, for async calls too: the inherited ones go through a thread."""

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.embed_documents(texts)


class Bench:
    """A memory with users, and the turns of many callers."""

    def __init__(self, args: argparse.Namespace, url: str) -> None:
        self.args, self.words = args, Words()
        self.server: Any = redis.Redis.from_url(url)
        self.memory = Memory(url, embeddings=AsyncSlices(args.dims), recall=HYBRID, history=EXACT)
        self.memory.setup()
        for user, at in product(range(args.users), range(0, args.messages, BATCH)):
            number = min(BATCH, args.messages - at)
            self.memory.history.append(self.words.messages(number), thread_id=f"t{user}", user_id=f"u{user}")
        self.texts = self.words.texts(1000, 4, 12)
        self.serial = 0

    def turns(self, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Give so many questions, none asked before, and whose they are."""
        for _ in range(number):
            self.serial += 1
            user = random.randrange(self.args.users)
            yield (
                f"{self.texts[self.serial % 1000]} {self.serial}",
                {"thread_id": f"t{user}", "user_id": f"u{user}"},
            )

    async def of_tasks(self, tasks: int, number: int) -> list[float]:
        """Serve turns to so many tasks; return how many seconds each context took."""
        turns, seconds = self.turns(number), list[float]()

        async def serve() -> None:
            for question, ids in turns:
                began = time.perf_counter()
                await self.memory.acontext([HumanMessage(question)], **ids)
                seconds.append(time.perf_counter() - began)
                await self.memory.asave_turn([HumanMessage(question), AIMessage(question)], **ids)

        await asyncio.gather(*(serve() for _ in range(tasks)))
        return seconds

    def of_threads(self, threads: int, number: int) -> list[float]:
        """Serve turns to so many threads."""
        turns, seconds = [*self.turns(number)], list[float]()

        def serve(question: str, ids: dict[str, Any]) -> None:
            began = time.perf_counter()
            self.memory.context([HumanMessage(question)], **ids)
            seconds.append(time.perf_counter() - began)
            self.memory.save_turn([HumanMessage(question), AIMessage(question)], **ids)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda turn: serve(*turn), turns))
        return seconds

    def spent(self) -> tuple[float, float, float]:
        """Return what has passed: wall time, and processor time of client and server."""
        used = self.server.info("cpu")
        return time.perf_counter(), time.process_time(), used["used_cpu_sys"] + used["used_cpu_user"]

    def line(self, name: str, number: int, before: tuple[float, float, float], seconds: list[float]) -> str:
        wall, client, server = (now - then for now, then in zip(self.spent(), before, strict=True))
        p50, p99 = (float(np.percentile(seconds, part)) * 1000 for part in (50, 99))
        each = (f"{spent / number * 1000:.2f}" for spent in (client, server))
        rates = f"{number / wall:.0f}", f"{number / client:.0f}"
        return row(name, *rates, *each, f"{p50:.1f}", f"{p99:.1f}", f"{p99 / p50:.1f}")

    async def run_tasks(self) -> None:
        await self.of_tasks(64, 64)
        for tasks in self.args.tasks:
            number = max(self.args.turns, 4 * tasks)
            before = self.spent()
            seconds = await self.of_tasks(tasks, number)
            print(self.line(f"{tasks} tasks", number, before, seconds))
        await self.memory.asettled()

    def run(self) -> None:
        heads = "turns/s", "turns/s of a core", "client ms", "server ms", "context p50 ms", "p99 ms", "p99 / p50"
        print(row("callers", *heads))
        print(row("---", *["--:"] * len(heads)))
        asyncio.run(self.run_tasks())
        self.of_threads(8, 64)
        for threads in self.args.threads:
            before = self.spent()
            seconds = self.of_threads(threads, self.args.turns)
            print(self.line(f"{threads} threads", self.args.turns, before, seconds))
        self.memory.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("users", 20), ("messages", 1000), ("dims", 384), ("turns", 1500)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tasks", type=int, nargs="*", default=[1, 8, 64, 512])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 8])
    args = parser.parse_args()
    random.seed(3)
    with EmbeddedRedis() as server:
        print(environment(server.url))
        print(f"{args.users} users of {args.messages:,} messages, {args.dims} dims\n")
        Bench(args, server.url).run()


if __name__ == "__main__":
    main()
