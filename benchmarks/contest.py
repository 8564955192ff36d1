"""Lets contestants do the same, each in a process of its own with a server of its own, and compares their processor time.

turn.py and scaling.py use it; docs/benchmarks.md describes the method.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from cProfile import Profile
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import redis
from contestants import Floor, Package
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from texts import Talk, WordVectors

from langchain_workingmem.embedded import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BATCH = 100  # messages a call


@dataclass(frozen=True)
class Shape:
    """What a server is filled with."""

    users: int
    threads: int  # of each user
    each: int  # messages of a thread

    @property
    def messages(self) -> int:
        return self.users * self.threads * self.each


class Cost(NamedTuple):
    """Milliseconds of processor time of a call."""

    client: float
    server: float

    @property
    def both(self) -> float:
        return self.client + self.server


def processor_time(pid: int) -> float:
    """Return how long all threads of a process ran, in milliseconds; waiting for a busy core does not count."""
    return sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6


class Stage:
    """The process of a contestant: fills its server, and runs what it is asked for."""

    def __init__(self, kind: str, shape: Shape, url: str) -> None:
        self._shape, self._model, self._fresh, self._talk = shape, WordVectors(), 0, cache(Talk)
        self._client: Any = redis.Redis.from_url(url)
        self._server = int(self._client.info("server")["process_id"])
        self._one = (Floor if kind == "floor" else Package)(url, self._model)

    def fill(self) -> float:
        """Return the bytes that a message takes."""
        shape, before = self._shape, self._client.info("memory")["used_memory"]
        for at in range(shape.users * shape.threads):
            user, thread = divmod(at, shape.threads)
            for start in range(0, shape.each, BATCH):
                said = self._said(f"user-{user}", f"{thread} {start}", min(BATCH, shape.each - start))
                self._one.call("bulk", "", said, f"user-{user}-{thread}", f"user-{user}")()
        self._one.finish(f"user-{user}" for user in range(shape.users))
        return float(self._client.info("memory")["used_memory"] - before) / shape.messages

    def _said(self, user: str, place: str, number: int) -> list[BaseMessage]:
        texts = self._talk(user).texts(place, number)
        return [(HumanMessage, AIMessage)[at % 2](text, id=f"{place} {at}") for at, text in enumerate(texts)]

    def _given(self, what: str, at: int) -> tuple[list[BaseMessage], str, str]:
        """Choose what a call is about: one user after the other, and each user's threads."""
        number = at % self._shape.users
        user, thread = f"user-{number}", f"user-{number}-{at // self._shape.users * 31 % self._shape.threads}"
        if what in {"save", "bulk"}:
            self._fresh += 1
            said = self._said(user, f"new {self._fresh}", 2 if what == "save" else BATCH)
            return said, thread if what == "save" else f"new-{self._fresh}", user
        return [HumanMessage(self._talk(user).question(at))], thread, user

    def run(self, row: str, first: int, number: int) -> Cost:
        what, _, how = row.partition("_")
        given = [self._given(what, at) for at in range(first, first + number)]
        self._model.prepare([str(message.content) for said, *_ in given for message in said])
        calls = [self._one.call(what, how, *one) for one in given]
        server, client = processor_time(self._server), time.process_time()
        for call in calls:
            call()
        client = time.process_time() - client
        return Cost(client * 1000 / number, (processor_time(self._server) - server) / number)


def perform(kind: str, shape: str, profile: str) -> None:
    """Answer the lines of the referee until they end."""
    with EmbeddedRedis() as server:
        stage, profiler = Stage(kind, Shape(**json.loads(shape)), server.url), Profile()
        print(json.dumps(stage.fill()), flush=True)
        run: Callable[..., Cost] = profiler.runcall if profile else lambda run, *given: run(*given)
        for line in sys.stdin:
            print(json.dumps(run(stage.run, *json.loads(line))), flush=True)
        if profile:
            profiler.dump_stats(profile)


class Team:
    """The process of a contestant, as the referee sees it."""

    bytes: float  # that a message takes

    def __init__(self, kind: str, shape: Shape, checkout: Path = Path(__file__).parents[1], profile: str = "") -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout.resolve()), "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-W", "ignore", __file__, kind, json.dumps(asdict(shape)), profile]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen(command, env=environment, **pipes)

    def __enter__(self) -> Self:
        self.bytes = self._read()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def _read(self) -> Any:
        line = cast("Any", self._process.stdout).readline()
        return json.loads(line) if line else sys.exit("A contestant ended early; its error stands above.")

    def run(self, row: str, first: int, number: int) -> Cost:
        pipe = cast("Any", self._process.stdin)
        pipe.write(json.dumps([row, first, number]) + "\n")
        pipe.flush()
        return Cost(*self._read())


Costs = dict[str, dict[str, list[Cost]]]  # by row and team


def contest(teams: dict[str, Team], rows: Sequence[str], batches: int, calls: int) -> Costs:
    """Let all teams do the same in each batch, in an order that rotates: what disturbs the machine disturbs all alike."""
    names = [*teams]
    costs: Costs = {row: {name: [] for name in names} for row in rows}
    for batch in range(batches + 1):  # the first one warms up
        for at, row in enumerate(rows):
            number = 1 if row == "bulk" else calls
            turned = (batch + at) % len(names)
            for name in names[turned:] + names[:turned]:
                costs[row][name].append(teams[name].run(row, batch * number, number))
    return {row: {name: seen[1:] for name, seen in of.items()} for row, of in costs.items()}


class Ratio(NamedTuple):
    """A median, and its 95 % interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def ratio(
    ours: Sequence[Cost], others: Sequence[Cost], since: tuple[Sequence[Cost], Sequence[Cost]] = ((), ())
) -> Ratio:
    """Compare batch by batch; `since`: how the ratio has grown since those."""
    large, small = quotients(ours, others), quotients(*since) or [1.0]
    drawn = sorted(one / other for one, other in zip(medians(large, 1), medians(small, 2), strict=True))
    return Ratio(median(large) / median(small), drawn[25], drawn[974])


def quotients(ours: Sequence[Cost], others: Sequence[Cost]) -> list[float]:
    return [one.both / other.both for one, other in zip(ours, others, strict=True)]


def medians(values: Sequence[float], seed: int) -> list[float]:
    """Return a thousand medians, each of as many values drawn from these (bootstrap)."""
    rng = random.Random(seed)
    return [median(rng.choices(values, k=len(values))) for _ in range(1000)]


if __name__ == "__main__":
    perform(*sys.argv[1:])
