"""What a turn costs beside the same Redis commands sent with bare redis-py; README.md says how to read the table."""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import inspect
import platform
import pstats
import random
import time
import zlib
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from uuid import uuid4

import numpy as np
import redis
import redis.asyncio
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import HistoryOptions, Memory, RecallOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.plans import history, recall, turn
from langchain_workingmem.plans.codec import drafts
from langchain_workingmem.plans.effects import Embed, Send
from langchain_workingmem.plans.keys import Keys
from langchain_workingmem.plans.recall import Query
from langchain_workingmem.plans.space import Space

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_workingmem.plans.effects import Command, Plan

    Trips: TypeAlias = "list[Sequence[Command]]"  # what is sent, one item per round trip
    Pair: TypeAlias = "tuple[Callable[[], object], Callable[[], object]]"  # one call of ours, and its bare commands

BATCH = 100  # messages a call while filling
RECALL = RecallOptions(top_k=5, message_range=2)
HYBRID = RecallOptions(top_k=5, message_range=2, search="hybrid")
PREFIX = "bench"
# The words that Search leaves out, in about the order of English: the head of every distribution of words.
STOPWORDS = (
    *("the", "of", "and", "to", "in", "a", "is", "that", "it", "was", "for", "on", "are", "as", "with", "they"),
    *("be", "at", "this", "or", "not", "by", "but", "an", "will", "no", "if", "their", "there", "then", "into"),
)


# ---------------------------------------------------------------------- material


class Slices(Embeddings):
    """A model that costs next to nothing: a text's vector is a slice of random numbers prepared in advance."""

    model = "slices"

    def __init__(self, dims: int) -> None:
        self._dims = dims
        self._numbers = np.random.default_rng(1).standard_normal(1_000_000 + dims, dtype=np.float32)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        starts = (zlib.crc32(text.encode()) % 1_000_000 for text in texts)
        return cast("list[list[float]]", [self._numbers[start : start + self._dims] for start in starts])

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    async def aembed_query(self, text: str) -> list[float]:
        return self.embed_query(text)  # the inherited one goes through a thread


class Words:
    """Texts of a vocabulary of 20,000 words whose frequencies follow Zipf's law."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(2)
        syllables = [first + second for first in "bcdfghjklmnprstvwz" for second in "aeiou"]
        made = {"".join(self._rng.choice(syllables, size=size)) for size in self._rng.integers(2, 5, 40_000)}
        self._words = np.array([*STOPWORDS, *sorted(made, key=lambda word: (len(word), word))][:20_000])
        self._ends = np.cumsum(1 / np.arange(1, len(self._words) + 1))

    def texts(self, number: int, shortest: int = 5, longest: int = 60) -> list[str]:
        sizes = self._rng.integers(shortest, longest + 1, number)
        places = np.searchsorted(self._ends, self._rng.random(sizes.sum()) * self._ends[-1])
        return [" ".join(part) for part in np.split(self._words[places], np.cumsum(sizes)[:-1])]

    def messages(self, number: int) -> list[BaseMessage]:
        return [AIMessage(text) if at % 2 else HumanMessage(text) for at, text in enumerate(self.texts(number))]


# ---------------------------------------------------------------------- bare redis-py


def record(plan: Plan[Any], model: Slices, client: Any | None) -> Trips:
    """Drive a plan by hand and return what it sends; without a client it stops short of the first round trip."""
    trips: Trips = []
    result: Any = None
    try:
        while True:
            match plan.send(result):
                case Embed(texts):
                    result = np.stack(model.embed_documents(list(texts)))
                case Send(commands):
                    trips.append(commands)
                    if client is None:
                        return trips
                    result = replay(client, [commands])
    except StopIteration:
        return trips
    finally:
        plan.close()


def replay(client: Any, trips: Trips) -> list[Any]:
    """Send as the runner does, and leave the replies as they are; those of the last round trip come back."""
    replies: list[Any] = []
    for commands in trips:
        if len(commands) == 1:
            replies = [client.execute_command(*commands[0])]
            continue
        with client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            replies = pipe.execute()
    return replies


async def areplay(client: Any, trips: Trips) -> None:
    for commands in trips:
        if len(commands) == 1:
            await client.execute_command(*commands[0])
            continue
        async with client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            await pipe.execute()


# ---------------------------------------------------------------------- measuring


@dataclass
class Case:
    """One row of the table, in seconds."""

    name: str
    pair: Callable[[], Pair]  # prepares, untimed, the next call of ours and the commands that it comes down to
    ours: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)

    async def step(self) -> None:
        """Time both sides, in an order left to chance: what disturbs the machine disturbs both alike."""
        ours, bare = self.pair()
        sides = [(ours, self.ours), (bare, self.bare)]
        random.shuffle(sides)
        for call, times in sides:
            start = time.perf_counter()
            result = call()
            if inspect.isawaitable(result):
                await result
            times.append(time.perf_counter() - start)

    def row(self, skip: int) -> str:
        parts = [np.percentile(times[skip:], part) * 1000 for times in (self.ours, self.bare) for part in (50, 95)]
        return f"{self.name:<32}{''.join(f'{part:10.3f}' for part in parts)}{parts[0] / parts[2]:9.2f}"


class Bench:
    """Two servers: `large` is filled through the package, `small` with bare redis-py by a tenth of the resources."""

    def __init__(self, args: argparse.Namespace, large: str, small: str) -> None:
        self.args, self.tenth = args, max(1, args.resources // 10)
        self.model, self.words = Slices(args.dims), Words()
        self.large: Any = redis.Redis.from_url(large)
        self.small: Any = redis.Redis.from_url(small)
        self.alarge = redis.asyncio.Redis.from_url(large)
        self.memory, self.few, self.hybrid = self.open(large), self.open(small), self.open(large, HYBRID)
        self.amemory = self.open(large)  # its own, so that it does not find its questions in the twin's cache

    def open(self, url: str, options: RecallOptions = RECALL) -> Memory:
        memory = Memory(url, embeddings=self.model, recall=options, key_prefix=PREFIX)
        memory.setup()
        messages = self.words.messages(BATCH)
        memory.save_turn(messages, thread_id="warm-up", resource_id="nobody")  # the server keeps the scripts
        memory.context(str(messages[0].text), thread_id="warm-up", resource_id="nobody")
        memory.threads.delete("warm-up")
        return memory

    def space(self, options: RecallOptions = RECALL) -> Space:
        """Give plans what `Memory` would, everything set up."""
        return Space(keys=Keys(PREFIX), recall=options, model="slices", threads_ready=True, dims=self.args.dims)

    def ids(self, resource: int, thread: int) -> dict[str, Any]:
        return {"thread_id": f"thread-{resource}-{thread}", "resource_id": f"user-{resource}"}

    def pick(self, resources: int) -> dict[str, Any]:
        return self.ids(random.randrange(resources), random.randrange(self.args.threads))

    def question(self) -> str:
        """Make a text that was not asked before, so that the cache of embeddings does not serve it."""
        return f"{uuid4()} {self.words.texts(1, 4, 12)[0]}"

    # ------------------------------------------------------------------ pairs of calls

    def append(self, messages: list[BaseMessage], ids: dict[str, Any]) -> Trips:
        prepared = drafts(messages, RECALL, lambda: str(uuid4()))
        return record(history.write(self.space(), prepared, **ids, mode="append"), self.model, None)

    def save(self) -> Pair:
        ids = self.pick(self.args.resources)
        trips = self.append(self.words.messages(2), ids)
        return partial(self.memory.save_turn, self.words.messages(2), **ids), partial(replay, self.large, trips)

    def fill_batch(self, ids: dict[str, Any], number: int) -> Pair:
        messages = self.words.messages(number)
        trips = self.append([message.model_copy() for message in messages], ids)
        return partial(self.memory.save_turn, messages, **ids), partial(replay, self.small, trips)

    def context(self, call: Callable[..., object], client: Any, resources: int, send: Any = replay) -> Pair:
        ids, text = self.pick(resources), self.question()
        query = Query.of(RECALL, text, **ids)
        plan = turn.context(self.space(), [HumanMessage(text)], **ids, history=HistoryOptions(), query=query)
        trips = record(plan, self.model, client)
        return partial(call, text, **ids), partial(send, self.alarge if send is areplay else client, trips)

    def search(self, memory: Memory, options: RecallOptions) -> Pair:
        user, text = self.pick(self.args.resources)["resource_id"], self.question()
        plan = recall.search(self.space(options), Query.of(options, text, resource_id=user))
        trips = record(plan, self.model, self.large)
        return partial(memory.recall.search, text, resource_id=user), partial(replay, self.large, trips)

    # ------------------------------------------------------------------ the run

    async def fill(self) -> None:
        args, spent = self.args, 0.0
        each = args.messages // (args.resources * args.threads)
        before = self.large.info("memory")["used_memory"]
        beside = Case("", lambda: self.fill_batch(ids, number))
        for resource, thread, at in product(range(args.resources), range(args.threads), range(0, each, BATCH)):
            ids, number = self.ids(resource, thread), min(BATCH, each - at)
            if resource < self.tenth:
                await beside.step()
                continue
            messages = self.words.messages(number)
            start = time.perf_counter()
            self.memory.history.append(messages, **ids)
            spent += time.perf_counter() - start
        total, both = each * args.threads * args.resources, each * args.threads * self.tenth
        ours, bare = sum(beside.ours), sum(beside.bare)
        used = (self.large.info("memory")["used_memory"] - before) / total
        print(
            f"ingest by {min(BATCH, each)}: {total / (spent + ours):,.0f} messages/s, {used:,.0f} bytes each in Redis;"
        )
        print(f"  the first {both:,}: {both / ours:,.0f}/s, bare {both / bare:,.0f}/s, ratio {ours / bare:.2f}\n")

    async def turns(self) -> None:
        everyone, memory, large = self.args.resources, self.memory, self.large
        context = partial(self.context, memory.context, large, everyone)
        cases = [
            Case("context", context),
            Case(
                "acontext, bare: redis.asyncio", partial(self.context, self.amemory.acontext, large, everyone, areplay)
            ),
            Case(
                f"context, of {self.tenth} resources", partial(self.context, self.few.context, self.small, self.tenth)
            ),
            Case("save_turn of 2 messages", self.save),
            Case("recall.search, semantic", partial(self.search, memory, RECALL)),
            Case("recall.search, hybrid", partial(self.search, self.hybrid, HYBRID)),
        ]
        warm_up = max(5, self.args.turns // 10)
        for _ in range(self.args.turns + warm_up):
            for case in random.sample(cases, len(cases)):
                await case.step()
        print(f"{'milliseconds':<32}{'ours p50':>10}{'p95':>10}{'bare p50':>10}{'p95':>10}{'ratio':>9}")
        print("\n".join(case.row(warm_up) for case in cases))
        if self.args.profile:
            for name, pair in (("context", context), ("save_turn", self.save)):
                calls = [pair()[0] for _ in range(self.args.turns)]
                profiler = cProfile.Profile()
                for call in calls:
                    profiler.runcall(call)
                print(f"\n{name}, {self.args.turns} calls")
                pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(25)

    async def run(self) -> None:
        texts = self.words.texts(1000)
        start = time.perf_counter()
        self.model.embed_documents(texts)
        print(
            f"(the stub model takes {(time.perf_counter() - start) * 1000:.1f} us a text of ours, bare has its vectors)"
        )
        await self.fill()
        await self.turns()
        await self.amemory.aclose()
        await self.alarge.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("messages", 100_000), ("resources", 100), ("threads", 5), ("dims", 384), ("turns", 500)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--profile", action="store_true", help="show where the time of ours goes (cProfile)")
    args = parser.parse_args()
    random.seed(3)
    with EmbeddedRedis() as large, EmbeddedRedis() as small:
        with redis.Redis.from_url(large.url) as client:
            server = client.info("server")
        print(
            f"{args.messages:,} messages of {args.resources} resources x {args.threads} threads, {args.dims} dimensions; "
            f"Python {platform.python_version()}, redis-py {redis.__version__}, "
            f"{server.get('server_name', 'redis')} {server.get('valkey_version', server['redis_version'])}"
        )
        asyncio.run(Bench(args, large.url, small.url).run())


if __name__ == "__main__":
    main()
