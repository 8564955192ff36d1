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
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, product
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import redis
import redis.asyncio
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory, RecallOptions
from langchain_workingmem.embedded import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Command: TypeAlias = tuple[Any, ...]
    Trips: TypeAlias = "list[Sequence[Command]]"  # what is sent, one item per round trip
    Pair: TypeAlias = "tuple[Callable[[], object], Callable[[], object]]"  # one call of ours, and its bare commands

BATCH = 100  # messages a call while filling
SEMANTIC = RecallOptions(top_k=5, message_range=2, search="semantic")
HYBRID = RecallOptions(top_k=5, message_range=2, search="hybrid")
# Words that Search leaves out of its index, in about the order of English: the head of the distribution.
STOP_WORDS = ("the", "of", "and", "to", "in", "a", "is", "that", "it", "for", "on", "are", "as", "with", "they", "be")


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
        self._words = np.array([*STOP_WORDS, *sorted(made, key=lambda word: (len(word), word))][:20_000])
        self._ends = np.cumsum(1 / np.arange(1, len(self._words) + 1))

    def texts(self, number: int, shortest: int = 5, longest: int = 60) -> list[str]:
        sizes = self._rng.integers(shortest, longest + 1, number)
        places = np.searchsorted(self._ends, self._rng.random(sizes.sum()) * self._ends[-1])
        return [" ".join(part) for part in np.split(self._words[places], np.cumsum(sizes)[:-1])]

    def messages(self, number: int) -> list[BaseMessage]:
        return [AIMessage(text) if at % 2 else HumanMessage(text) for at, text in enumerate(self.texts(number))]


class Recorder:
    """A client for `Memory` that notes what is sent."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.trips: Trips = []
        self.dry = False  # answer single commands, which write a turn, instead of sending them

    def execute_command(self, *command: Any, **_: Any) -> Any:
        self.trips.append([command])
        return [0, 0, 1] if self.dry else self._client.execute_command(*command)

    @contextmanager
    def pipeline(self, *, transaction: bool) -> Iterator[Any]:
        with self._client.pipeline(transaction=transaction) as pipe:
            send = pipe.execute_command
            self.trips.append(commands := [])

            def note(*command: Any, **_: Any) -> None:
                commands.append(command)
                send(*command)

            pipe.execute_command = note
            yield pipe


def replay(client: Any, trips: Trips) -> None:
    """Send as the runner does, and leave the replies as they are."""
    for commands in trips:
        if len(commands) == 1:
            client.execute_command(*commands[0])
        else:
            pipeline(client, commands).execute()


async def areplay(client: Any, trips: Trips) -> None:
    for commands in trips:
        await (client.execute_command(*commands[0]) if len(commands) == 1 else pipeline(client, commands).execute())


def pipeline(client: Any, commands: Sequence[Command]) -> Any:
    pipe = client.pipeline(transaction=False)
    for command in commands:
        pipe.execute_command(*command)
    return pipe


class Target:
    """A server as `Memory` sees it, and as a bare client does; a twin of the memory says what the client must send."""

    def __init__(self, url: str, model: Slices, words: Words, options: RecallOptions = SEMANTIC) -> None:
        self.client: Any = redis.Redis.from_url(url)
        self._recorder = Recorder(self.client)
        self.memory = Memory(url, embeddings=model, recall=options)
        self._twin = Memory(client=cast("redis.Redis", self._recorder), embeddings=model, recall=options)
        messages = words.messages(BATCH)
        for memory in (self.memory, self._twin):  # the server keeps the scripts, the objects know the indexes
            memory.setup()
            memory.save_turn(messages, thread_id="warm-up", resource_id="nobody")
            memory.context(str(messages[0].text), thread_id="warm-up", resource_id="nobody")
        self.memory.threads.delete("warm-up")

    def trips(self, call: Callable[[Memory], object], *, dry: bool = False) -> Trips:
        """Return what a call sends, one item per round trip; a dry one writes nothing."""
        self._recorder.trips, self._recorder.dry = [], dry
        call(self._twin)
        return self._recorder.trips


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
        return f"{self.name:<35}{''.join(f'{part:10.3f}' for part in parts)}{parts[0] / parts[2]:9.2f}"


class Bench:
    """Two servers: `large` is filled through the package, `small` with bare redis-py by a tenth of the resources."""

    def __init__(self, args: argparse.Namespace, large: str, small: str) -> None:
        self.args, self.tenth = args, max(1, args.resources // 10)
        self.model, self.words, self.asked = Slices(args.dims), Words(), count()
        self.large, self.small = Target(large, self.model, self.words), Target(small, self.model, self.words)
        self.hybrid = Target(large, self.model, self.words, HYBRID)
        self.memory = Memory(large, embeddings=self.model, recall=SEMANTIC)  # for async, with a cache of its own
        self.client = redis.asyncio.Redis.from_url(large)

    def ids(self, resource: int, thread: int) -> dict[str, Any]:
        return {"thread_id": f"thread-{resource}-{thread}", "resource_id": f"user-{resource}"}

    def pick(self, resources: int) -> dict[str, Any]:
        return self.ids(random.randrange(resources), random.randrange(self.args.threads))

    def question(self) -> str:
        """Make a text that was not asked before, so that the cache of embeddings does not serve it."""
        return f"{self.words.texts(1, 4, 12)[0]} {next(self.asked)}"

    def append(self, target: Target, number: int, ids: dict[str, Any]) -> Pair:
        """Let ours write to `large`, and the bare client as much to the target."""
        messages, others = self.words.messages(number), self.words.messages(number)
        trips = target.trips(lambda memory: memory.save_turn(others, **ids), dry=True)
        return partial(self.large.memory.save_turn, messages, **ids), partial(replay, target.client, trips)

    def save(self) -> Pair:
        return self.append(self.large, 2, self.pick(self.args.resources))

    def context(self, target: Target, resources: int) -> Pair:
        ids, text = self.pick(resources), self.question()
        trips = target.trips(lambda memory: memory.context(text, **ids))
        return partial(target.memory.context, text, **ids), partial(replay, target.client, trips)

    def acontext(self) -> Pair:
        ids, text = self.pick(self.args.resources), self.question()
        trips = self.large.trips(lambda memory: memory.context(text, **ids))
        return partial(self.memory.acontext, text, **ids), partial(areplay, self.client, trips)

    def search(self, target: Target) -> Pair:
        user, text = self.pick(self.args.resources)["resource_id"], self.question()
        trips = target.trips(lambda memory: memory.recall.search(text, resource_id=user))
        return partial(target.memory.recall.search, text, resource_id=user), partial(replay, target.client, trips)

    async def fill(self) -> None:
        args, spent = self.args, 0.0
        each = args.messages // (args.resources * args.threads)
        before = self.large.client.info("memory")["used_memory"]
        beside = Case("", lambda: self.append(self.small, number, ids))
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
        used = (self.large.client.info("memory")["used_memory"] - before) / total
        print(f"ingest by {min(BATCH, each)}: {total / (spent + ours):,.0f} messages/s of {used:,.0f} bytes in Redis")
        print(f"  the first {both:,}: {both / ours:,.0f}/s, bare {both / bare:,.0f}/s, ratio {ours / bare:.2f}\n")

    async def turns(self) -> None:
        context = Case("context, semantic", partial(self.context, self.large, self.args.resources))
        hybrid = Case("context, hybrid", partial(self.context, self.hybrid, self.args.resources))
        save = Case("save_turn of 2 messages", self.save)
        cases = [
            context,
            hybrid,
            Case("acontext, semantic, bare: asyncio", self.acontext),
            Case(f"context, semantic, {self.tenth} resources", partial(self.context, self.small, self.tenth)),
            save,
            Case("recall.search, semantic", partial(self.search, self.large)),
            Case("recall.search, hybrid", partial(self.search, self.hybrid)),
        ]
        warm_up = max(5, self.args.turns // 10)
        for _ in range(self.args.turns + warm_up):
            for case in random.sample(cases, len(cases)):
                await case.step()
        print(f"{'milliseconds':<35}{'ours p50':>10}{'p95':>10}{'bare p50':>10}{'p95':>10}{'ratio':>9}")
        print("\n".join(case.row(warm_up) for case in cases))
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
        with redis.Redis.from_url(large.url) as client:
            server = client.info("server")
        engine = f"{server.get('server_name', 'redis')} {server.get('valkey_version', server['redis_version'])}"
        print(f"Python {platform.python_version()}, redis-py {redis.__version__}, {engine}")
        print(f"{args.messages:,} messages, {args.resources} resources x {args.threads} threads, {args.dims} dims")
        asyncio.run(Bench(args, large.url, small.url).run())


if __name__ == "__main__":
    main()
