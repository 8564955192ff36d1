"""What the benchmarks share: a stub model, texts, and the same commands sent with bare redis-py."""

from __future__ import annotations

import platform
import random
import time
import zlib
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import redis
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import HistoryOptions, Memory, RecallOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Command: TypeAlias = tuple[Any, ...]
    Trips: TypeAlias = "list[Sequence[Command]]"  # what is sent, one item per round trip
    Pair: TypeAlias = "tuple[Callable[[], object], Callable[[], object]]"  # one call of ours, and its bare commands

BATCH = 100  # messages a call while filling
# with vectors of a stub all is far: the floor of a turn would leave everything out
SEMANTIC = RecallOptions(top_k=5, message_range=2, search="semantic", threshold=0.0, max_tokens=None)
HYBRID = RecallOptions(top_k=5, message_range=2, search="hybrid", threshold=0.0, max_tokens=None)
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

    def messages(self, number: int, shortest: int = 5, longest: int = 60) -> list[BaseMessage]:
        texts = self.texts(number, shortest, longest)
        return [AIMessage(text) if at % 2 else HumanMessage(text) for at, text in enumerate(texts)]


EXACT = HistoryOptions(step=1)  # the last 10, neither more nor fewer, so that turns can be compared


class Recorder:
    """A client for `Memory` that notes what is sent."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.trips: Trips = []

    def execute_command(self, *command: Any, **_: Any) -> Any:
        return self._sent([command], partial(self._client.execute_command, *command))

    def pipeline(self, *, transaction: bool) -> Any:
        pipe = self._client.pipeline(transaction=transaction)
        queue, execute = pipe.execute_command, pipe.execute
        commands: list[Command] = []

        def note(*command: Any, **_: Any) -> None:
            commands.append(command)
            queue(*command)

        pipe.execute_command = note
        pipe.execute = lambda **options: self._sent(commands, partial(execute, **options))
        return pipe

    def _sent(self, commands: Sequence[Command], send: Callable[[], Any]) -> Any:
        self.trips.append(commands)
        return send()


def replay(client: Any, trips: Trips) -> None:
    """Send as the runner does, and leave the replies as they are."""
    for commands in trips:
        if len(commands) == 1:
            client.execute_command(*commands[0])
        else:
            pipeline(client, commands).execute()


def pipeline(client: Any, commands: Sequence[Command]) -> Any:
    pipe = client.pipeline(transaction=False)
    for command in commands:
        pipe.execute_command(*command)
    return pipe


class Target:
    """A server as `Memory` sees it, and as a bare client does; a twin of the memory says what the client must send."""

    def __init__(self, url: str, model: Slices, words: Words, options: RecallOptions) -> None:
        self.client: Any = redis.Redis.from_url(url)
        self._recorder = Recorder(self.client)
        self._words, self._asked = words, count()
        others: Any = {"embeddings": model, "recall": options, "history": EXACT}
        self.memory = Memory(url, **others)
        self._twin = Memory(client=cast("redis.Redis", self._recorder), **others)
        messages = words.messages(BATCH)
        for memory in (self.memory, self._twin):  # the server keeps the scripts, the objects know the indexes
            memory.setup()
            memory.save_turn(messages, thread_id="warm-up", user_id="nobody")
            memory.context(str(messages[0].text), thread_id="warm-up", user_id="nobody")
        self.memory.threads.delete("warm-up")

    def trips(self, call: Callable[[Memory], object]) -> Trips:
        """Return what a call sends, one item per round trip."""
        self._recorder.trips = []
        call(self._twin)
        return self._recorder.trips

    def question(self) -> str:
        """Make a text that was not asked before, so that the cache of embeddings does not serve it."""
        return f"{self._words.texts(1, 4, 12)[0]} {next(self._asked)}"

    def context(self, **ids: Any) -> Pair:
        text = self.question()
        trips = self.trips(lambda memory: memory.context(text, **ids))
        return partial(self.memory.context, text, **ids), partial(replay, self.client, trips)

    def used_memory(self) -> int:
        return int(self.client.info("memory")["used_memory"])


@dataclass
class Case:
    """One row of the table, in seconds."""

    name: str
    pair: Callable[[], Pair]  # prepares, untimed, the next call of ours and the commands that it comes down to
    ours: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)

    def step(self) -> None:
        """Time both sides, in an order left to chance: what disturbs the machine disturbs both alike."""
        ours, bare = self.pair()
        sides = [(ours, self.ours), (bare, self.bare)]
        random.shuffle(sides)
        for call, times in sides:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)

    def p50s(self, skip: int) -> tuple[float, float]:
        """Return the medians of ours and bare, in milliseconds."""
        ours, bare = (float(np.median(times[skip:])) * 1000 for times in (self.ours, self.bare))
        return ours, bare

    def ratio(self, skip: int) -> tuple[float, float, float]:
        """Return the ratio of the medians, and its interval."""
        return ratio_of_medians(self.ours[skip:], self.bare[skip:])


def ratio_of_medians(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Return the ratio of the medians of as many rounds, and its 95 % interval by bootstrap over the rounds."""
    one, other = np.array(ours), np.array(theirs)
    drawn = np.random.default_rng(4).integers(0, len(one), (2000, len(one)))
    low, high = np.quantile(np.median(one[drawn], 1) / np.median(other[drawn], 1), (0.025, 0.975))
    return float(np.median(one) / np.median(other)), float(low), float(high)


def alternate(cases: Sequence[Case], rounds: int, warm_up: int) -> None:
    """Step every case so often, in an order left to chance."""
    for _ in range(rounds + warm_up):
        for case in random.sample(cases, len(cases)):
            case.step()


def environment(url: str) -> str:
    """Say what is measured."""
    return f"{clients()}, {engine_of(url)}"


def clients() -> str:
    """Name what runs on the side of the program."""
    return f"Python {platform.python_version()}, redis-py {redis.__version__}"


def engine_of(url: str) -> str:
    """Name a server and its Search."""
    with redis.Redis.from_url(url) as client:
        server: Any = client.info("server")
        modules: Any = client.module_list()
    name = f"{server.get('server_name', 'redis')} {server.get('valkey_version', server['redis_version'])}"
    number = next(int(module[b"ver"]) for module in modules if module[b"name"] == b"search")
    return f"{name} with Search {number // 10_000}.{number // 100 % 100}.{number % 100}"


def row(*cells: object) -> str:
    """Write a row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"
