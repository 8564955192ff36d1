"""What a turn costs beside the same Redis commands sent with bare redis-py; README.md says how to read the table."""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import random
import time
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import redis.asyncio
from common import (
    BATCH,
    EXACT,
    HYBRID,
    NEVER,
    SEMANTIC,
    Case,
    Fifth,
    Slices,
    Target,
    Words,
    alternate,
    areplay,
    environment,
    replay,
    replay_to_messages,
    row,
)

from langchain_workingmem import Memory, ObservationOptions
from langchain_workingmem.embedded import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Callable

    from common import Pair, Trips


class Bench:
    """Two servers: `large` is filled through the package, `small` with bare redis-py by a tenth of the resources."""

    def __init__(self, args: argparse.Namespace, large: str, small: str) -> None:
        self.args, self.tenth = args, max(1, args.resources // 10)
        self.model, self.words = Slices(args.dims), Words()
        self.large, self.small = Target(large, self.model, self.words), Target(small, self.model, self.words)
        self.hybrid = Target(large, self.model, self.words, HYBRID)
        log = ObservationOptions(model=Fifth(), message_tokens=NEVER, keep_tokens=400, observation_tokens=NEVER)
        self.observed = Target(large, self.model, self.words, SEMANTIC, log)
        self.memory = Memory(
            large, embeddings=self.model, recall=SEMANTIC, history=EXACT
        )  # for async, with a cache of its own
        self.client = redis.asyncio.Redis.from_url(large)

    def ids(self, resource: int, thread: int) -> dict[str, Any]:
        return {"thread_id": f"thread-{resource}-{thread}", "resource_id": f"user-{resource}"}

    def pick(self, resources: int) -> dict[str, Any]:
        return self.ids(random.randrange(resources), random.randrange(self.args.threads))

    def context(self, target: Target, resources: int, bare: Callable[[Any, Trips], object] = replay) -> Pair:
        return target.context(bare, **self.pick(resources))

    def acontext(self) -> Pair:
        ids, text = self.pick(self.args.resources), self.large.question()
        trips = self.large.trips(lambda memory: memory.context(text, **ids))
        return partial(self.memory.acontext, text, **ids), partial(areplay, self.client, trips)

    def save(self) -> Pair:
        return self.large.append(2, **self.pick(self.args.resources))

    def search(self, target: Target) -> Pair:
        return target.search(self.pick(self.args.resources)["resource_id"])

    async def fill(self) -> None:
        args, spent = self.args, 0.0
        each = args.messages // (args.resources * args.threads)
        before = self.large.used_memory()
        beside = Case("", lambda: self.large.append(number, bare=self.small, **ids))
        for resource, thread, at in product(range(args.resources), range(args.threads), range(0, each, BATCH)):
            ids, number = self.ids(resource, thread), min(BATCH, each - at)
            if resource < self.tenth:
                await beside.step()
                continue
            messages = self.words.messages(number)
            start = time.perf_counter()
            self.large.memory.history.append(messages, **ids)
            spent += time.perf_counter() - start
        total, both = each * args.threads * args.resources, each * args.threads * self.tenth
        ours, bare = sum(beside.ours), sum(beside.bare)
        used = (self.large.used_memory() - before) / total
        print(f"ingest by {min(BATCH, each)}: {total / (spent + ours):,.0f} messages/s of {used:,.0f} bytes in Redis")
        print(f"  the first {both:,}: {both / ours:,.0f}/s, bare {both / bare:,.0f}/s, ratio {ours / bare:.2f}\n")

    def observe(self) -> tuple[Case, Case]:
        """Make two threads with long logs, one to read and one to write."""
        reads, writes = self.ids(-1, 0), self.ids(-1, 1)
        for ids in (reads, writes):
            log = self.observed.fill_log(**ids)
        print(f"observations: {len(log):,} of {log.tokens:,} tokens\n")
        return (
            Case("context, semantic, with a log", lambda: self.observed.context(**reads)),
            Case("save_turn of 2 messages, with a log", lambda: self.observed.append(2, **writes)),
        )

    async def turns(self) -> None:
        context = Case("context, semantic", partial(self.context, self.large, self.args.resources))
        hybrid = Case("context, hybrid", partial(self.context, self.hybrid, self.args.resources))
        save = Case("save_turn of 2 messages", self.save)
        cases = [
            context,
            Case(
                "context, semantic, bare: to messages",
                partial(self.context, self.large, self.args.resources, replay_to_messages),
            ),
            hybrid,
            Case(
                "context, hybrid, bare: to messages",
                partial(self.context, self.hybrid, self.args.resources, replay_to_messages),
            ),
            Case("acontext, semantic, bare: asyncio", self.acontext),
            Case(f"context, semantic, {self.tenth} resources", partial(self.context, self.small, self.tenth)),
            save,
            *self.observe(),
            Case("recall.search, semantic", partial(self.search, self.large)),
            Case("recall.search, hybrid", partial(self.search, self.hybrid)),
        ]
        warm_up = max(5, self.args.turns // 10)
        await alternate(cases, self.args.turns, warm_up)
        print(row("p50 and p95 in milliseconds", "ours", "p95", "bare", "p95", "ratio"))
        print(row("---", *["--:"] * 5))
        for case in cases:
            parts = [
                np.percentile(times[warm_up:], part) * 1000 for times in (case.ours, case.bare) for part in (50, 95)
            ]
            print(row(case.name, *(f"{part:.2f}" for part in parts), f"{parts[0] / parts[2]:.2f}"))
        for case in (context, hybrid, save) if self.args.profile else ():
            profiler = cProfile.Profile()
            for ours, _ in [case.pair() for _ in range(self.args.turns)]:
                profiler.runcall(ours)
            print(f"\n{case.name}, {self.args.turns} calls")
            pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(25)

    async def run(self) -> None:
        texts = self.words.texts(1000)
        start = time.perf_counter()
        self.model.embed_documents(texts)
        print(f"the stub model takes {(time.perf_counter() - start) * 1000:.1f} us a text, counted to ours alone")
        await self.fill()
        await self.turns()
        await self.memory.aclose()
        await self.client.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("messages", 100_000), ("resources", 100), ("threads", 5), ("dims", 384), ("turns", 500)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--profile", action="store_true", help="show where the time of ours goes (cProfile)")
    args = parser.parse_args()
    random.seed(3)
    with EmbeddedRedis() as large, EmbeddedRedis() as small:
        print(environment(large.url))
        print(f"{args.messages:,} messages, {args.resources} resources x {args.threads} threads, {args.dims} dims")
        asyncio.run(Bench(args, large.url, small.url).run())


if __name__ == "__main__":
    main()
