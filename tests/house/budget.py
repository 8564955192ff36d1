"""What a warm call does, in counts that do not depend on the machine; test_budget.py holds it to a table.

python -m tests.house.budget  # prints the table as it is now
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import re
import selectors
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from inspect import CO_COROUTINE
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

import langchain_workingmem
from langchain_workingmem import HistoryOptions, Memory, RecallOptions, WorkingMemoryOptions
from langchain_workingmem._engine.effects import SCRIPT_SOURCES
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.proxy import Proxy

PACKAGE = str(Path(langchain_workingmem.__file__).parent)
OTHERS = (str(Path(__file__).parents[1]), str(Path(asyncio.__file__).parent), selectors.__file__)  # tests, event loop
INLINED = {"<listcomp>", "<dictcomp>", "<setcomp>"}  # are no calls from Python 3.12 on
WARM_UP, CALLS = 3, 5
MESSAGES, THREADS = 500, 5
CALLED = re.compile(rb"EVALSHA\r\n\$40\r\n(\w{40})")
VERSIONS = ", ".join(f"{name} {version(name)}" for name in ("redis", "langchain-core"))


class Prepared(WordEmbeddings):
    """A model that has computed before what it will be asked."""

    def __init__(self) -> None:
        super().__init__(384)
        self._known: dict[str, list[float]] = {}

    def prepare(self, texts: Iterable[str]) -> None:
        self._known |= {text: super(Prepared, self)._vector(text) for text in texts}

    def _vector(self, text: str) -> list[float]:
        return self._known.get(text) or super()._vector(text)

    async def aembed_query(self, text: str) -> list[float]:
        return self._known[text]  # the inherited one goes through a thread


class Counts(NamedTuple):
    """Of one call: the mean of `CALLS`."""

    sent: float  # bytes
    received: float  # bytes
    commands: float  # those of scripts too
    script_lines: float  # of the scripts that are called: Redis runs all of a script's definitions each time
    calls: float  # of Python functions of the package, and resumptions of its generators
    all_calls: float  # of Python functions of all packages, which depends on `VERSIONS`


class Ledger:
    """Counts what passes the proxy, what the server executes, and what this process calls."""

    def __init__(self, url: str, proxy: Proxy) -> None:
        self._client: Any = redis.Redis.from_url(url)
        self._proxy = proxy
        self._calls = self._all_calls = 0
        self._starts: dict[CodeType, int] = {}  # of coroutines: where their first instruction is

    def see(self, frame: FrameType, event: str, _: object) -> None:
        """Be the profiler of each thread."""
        code = frame.f_code
        if code.co_flags & CO_COROUTINE and self._starts.setdefault(code, frame.f_lasti) != frame.f_lasti:
            return  # how often a coroutine goes on is a matter of when replies come
        if event == "call" and code.co_name not in INLINED and not code.co_filename.startswith(OTHERS):
            self._all_calls += 1
            self._calls += code.co_filename.startswith(PACKAGE)

    def _commands(self) -> int:
        stats = self._client.info("commandstats")
        return sum(one["calls"] for name, one in stats.items() if name != "cmdstat_info")

    def of(self, calls: list[Callable[[], object]]) -> Counts:
        for call in calls[:WARM_UP]:
            call()
        before = self._commands(), self._calls, self._all_calls
        self._proxy.arm(None)
        for call in calls[WARM_UP:]:
            call()
        after = self._calls, self._all_calls
        passed = self._proxy.arm(None)
        scripts = (SCRIPT_SOURCES[sha.decode()] for sha in CALLED.findall(passed.request))
        lines = sum(line.strip()[:2] not in {"", "--"} for source in scripts for line in source.splitlines())
        commands = self._commands() - before[0]
        counted = (len(passed.request), len(passed.reply), commands, lines, after[0] - before[1], after[1] - before[2])
        return Counts(*(one / CALLS for one in counted))


@contextmanager
def profiled(see: Any) -> Iterator[None]:
    """Profile this thread and those that start from here on, without collections of garbage."""
    gc.disable()
    before = sys.getprofile()
    threading.setprofile(see)
    sys.setprofile(see)
    try:
        yield
    finally:
        sys.setprofile(before)
        threading.setprofile(before)
        gc.enable()


def texts() -> Iterator[str]:
    """Make texts as of a conversation: words by Zipf's law, a few topics, the same in each run."""
    rng = random.Random(31)
    words = [f"{rng.choice('bdfgklmnprst')}{rng.choice('aeiou')}{place:x}" for place in range(2_000)]
    weights = [1 / (place + 5) for place in range(len(words))]
    while True:
        topic = rng.choices(words, k=20)
        for _ in range(10):
            length = rng.randint(8, 45)
            yield " ".join([*rng.choices(words, weights, k=length), *rng.choices(topic, k=length // 4)])


def measured() -> dict[str, Counts]:
    """Measure on a private server."""
    with EmbeddedRedis() as server:
        path = server.url.removeprefix("unix://").partition("?")[0]

        def connect() -> socket.socket:
            there = socket.socket(socket.AF_UNIX)
            there.connect(path)
            return there

        with Proxy(connect) as proxy, asyncio.Runner() as loop:
            ledger = Ledger(server.url, proxy)
            with profiled(ledger.see):
                return {name: ledger.of(calls) for name, calls in operations(proxy.url, loop)}


def operations(url: str, loop: asyncio.Runner) -> Iterator[tuple[str, list[Callable[[], object]]]]:
    """Fill, then prepare the calls of each operation."""
    model, text, ids = Prepared(), texts(), itertools.count()

    def memory(**recall: Any) -> Memory:
        return Memory(
            url,
            embeddings=model,
            history=HistoryOptions(last_messages=10),
            recall=RecallOptions(embedding_cache_size=0, **recall),
            working_memory=WorkingMemoryOptions(template="", max_bytes=10_000),
        )

    def messages(number: int) -> list[BaseMessage]:
        said = list(itertools.islice(text, number))
        model.prepare(said)
        return [(HumanMessage, AIMessage)[at % 2](one, id=f"{next(ids):08}") for at, one in enumerate(said)]

    five: Any = {"top_k": 5, "message_range": 2, "max_tokens": None}
    semantic, hybrid, default = memory(search="semantic", **five), memory(**five), memory()
    threads: list[Any] = [{"resource_id": "user", "thread_id": f"thread {at}"} for at in range(THREADS)]
    here, there = threads[:2]
    for thread in threads:
        semantic.history.append(messages(MESSAGES // THREADS), **thread)
    semantic.working_memory.update("The user is called Sam.", **here)
    stored = itertools.islice(texts(), 7, MESSAGES, MESSAGES // (WARM_UP + CALLS))
    asked = [" ".join(one.split()[-6:]) for one in stored]
    model.prepare(asked)
    semantic.context(asked[0], **here)
    semantic.settled()  # has learned the scale of the model, which the others read
    turns, parts = ([messages(number) for _ in asked] for number in (2, 100))
    yield "context, semantic", [partial(semantic.context, one, **here) for one in asked]
    yield "context, hybrid", [partial(hybrid.context, one, **here) for one in asked]
    yield "context, default options", [partial(default.context, one, **here) for one in asked]
    yield "acontext, hybrid", [partial(wait, loop, partial(hybrid.acontext, one, **here)) for one in asked]
    yield "save_turn", [partial(semantic.save_turn, one, **here) for one in turns]
    yield "append of 100", [partial(semantic.history.append, one, **there) for one in parts]
    files = semantic.files
    owner: Any = {"resource_id": "user"}
    for at in range(112):  # the first has as many revisions as are kept
        files.write(f"/notes/{max(at - 12, 0):02}.md", "a line of a note\n" * 50 + f"version {at}", **owner)
    plan = ["/notes/00.md"] * len(asked)
    yield "files.write", [partial(files.write, one, f"new {at}\n" * 50, **owner) for at, one in enumerate(plan)]
    files.write(plan[0], "\n".join(f"<{at}> {'words ' * 10}" for at in range(50)), **owner)
    yield "files.edit", [partial(files.edit, one, f"<{at}>", f"({at})", **owner) for at, one in enumerate(plan)]
    yield "files.read", [partial(files.read, one, **owner) for one in plan]
    yield "files.list of 100", [partial(files.list, "/notes", **owner) for _ in plan]
    yield "files.glob of 100", [partial(files.glob, "*.md", **owner) for _ in plan]
    for one in (semantic, hybrid, default):
        loop.run(one.aclose())


def wait(loop: asyncio.Runner, call: Callable[[], Any]) -> object:
    return loop.get_loop().run_until_complete(call())  # `run` writes the whole task into an error of its own


def table(counts: dict[str, Counts]) -> str:
    """Write the table of test_budget.py."""
    lines = (f'    "{name}": ({", ".join(f"{one:_.10g}" for one in of)}),' for name, of in counts.items())
    return "\n".join([f'MEASURED = "{datetime.now(UTC):%Y-%m-%d}"', f'WITH = "{VERSIONS}"', "BUDGET = {", *lines, "}"])


if __name__ == "__main__":
    print(table(measured()))  # noqa: T201
