"""Fixtures that tests of several rooms need: one real Redis for the whole run, and a key prefix for each test."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
import redis
import redis.utils
from hypothesis import HealthCheck, settings
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import LocalEmbeddings, Memory, RecallOptions
from langchain_workingmem._engine import plan
from langchain_workingmem._engine.plan import Command, Send
from langchain_workingmem._engine.run import AsyncRunner, Runner
from langchain_workingmem._redis.indexes import LAYOUT
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embedded import BareServers, is_stopped, wait_until
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.faces import AsyncFace
from tests.helpers.models import Bench
from tests.helpers.selection import left_out
from tests.helpers.trips import Trips, counted_trips
from tests.helpers.types import Invoke, Make

# what an example takes depends on what else the machine does
unhurried: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("usual", max_examples=12, **unhurried)
settings.register_profile("nightly", max_examples=10_000, **unhurried)  # make nightly
settings.load_profile("usual")

# redis-py reads its version from a file for each connection
redis.utils.get_lib_version = functools.cache(redis.utils.get_lib_version)

get_temp_dir()  # of the programs that tests start; made before a test has a directory of its own


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture(scope="session")
def cleaner(server: EmbeddedRedis) -> Iterator[redis.Redis]:
    """One client for all that `prefix` does."""
    with redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture(scope="session")
def loop_runner() -> Iterator[asyncio.Runner]:
    # while Python's own handler is set, each run sets another one, which makes a repr of the task with all its messages
    before = signal.signal(signal.SIGINT, functools.partial(signal.default_int_handler))
    with asyncio.Runner() as runner:
        yield runner
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def prefix(cleaner: redis.Redis) -> Iterator[str]:
    """A key prefix of the test's own; what it has left goes, or the server slows down with thousands of indexes."""
    prefix = f"t{uuid4().hex[:12]}"
    cleaner.hset(f"{prefix}:layout", mapping={"version": LAYOUT, "secret": "s"})  # as in a database that is in use
    yield prefix
    looking: Any = cleaner.pipeline(transaction=False)
    looking.execute_command("FT._LIST")
    looking.scan(match=f"{prefix}*", count=10_000)
    indexes, (cursor, keys) = looking.execute()
    going: Any = cleaner.pipeline(transaction=False)
    for index in indexes:
        if index.startswith(prefix.encode()):
            going.execute_command("FT.DROPINDEX", index)
    if cursor:
        keys = list(cleaner.scan_iter(f"{prefix}*", count=10_000))
    if keys:
        going.unlink(*keys)
    going.execute()


@pytest.fixture
def raw(server: EmbeddedRedis) -> Iterator[redis.Redis]:
    """A bare client, to look at what is stored."""
    with redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
def face(request: pytest.FixtureRequest) -> str:
    """The face that a test calls: "sync", and "async" in a second run of what is marked `both_faces` or `in_turn`."""
    return str(getattr(request, "param", "sync"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "face" in metafunc.fixturenames:
        in_turn = metafunc.definition.get_closest_marker("in_turn")
        if metafunc.definition.get_closest_marker("both_faces") or (in_turn and in_turn.args == ("face",)):
            metafunc.parametrize("face", ["sync", "async"], indirect=True)


def pytest_collection() -> None:
    gc.disable()  # imports and cases make millions of objects, none of them garbage


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    from tests.helpers.examples import NIGHTLY  # the plug-in of hypothesis has loaded the profile by now

    if not NIGHTLY and not any("::" in word for word in config.args):
        if left := left_out(items):
            config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()  # a collection that a test asks for looks at what the tests have made, not at modules and cases


@pytest.fixture
def runner(face: str, loop_runner: asyncio.Runner) -> asyncio.Runner | None:
    """Run the async calls of what has no face of its own: tools, nodes, retrievers."""
    return loop_runner if face == "async" else None


@pytest.fixture
def make_memory(server: EmbeddedRedis, prefix: str, face: str, loop_runner: asyncio.Runner) -> Iterator[Make]:
    """Make memories on the test server; in the async run their sync methods are the async twins."""
    made: list[Memory] = []

    def make(redis_url: str | None = None, **options: Any) -> Memory:
        options.setdefault("key_prefix", prefix)
        borrowed = "client" in options or "async_client" in options
        if "path" in options:
            memory = Memory.embedded(**options)
        else:
            memory = Memory(redis_url if borrowed else redis_url or server.url, **options)
        made.append(memory)
        return memory if face == "sync" else cast("Memory", AsyncFace(memory, loop_runner))

    yield make
    for memory in made:
        loop_runner.run(memory.aclose())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat at once what failed: for servers that do not come back."""
    monkeypatch.setattr(plan, "PAUSES", (0.001, 0.001, 0.001))


@pytest.fixture(scope="session")
def local_model() -> LocalEmbeddings:
    """The model of the extra `local`, which takes 50 ms to load."""
    return LocalEmbeddings()


@pytest.fixture
def embeddings() -> WordEmbeddings:
    return WordEmbeddings()


@pytest.fixture
def memory(make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    """A memory with recall."""
    return make_memory(embeddings=embeddings, recall=RecallOptions())


@pytest.fixture
def plain(make_memory: Make) -> Memory:
    """A memory without recall, hence without a model."""
    return make_memory()


@pytest.fixture
def make_store(
    server: EmbeddedRedis, prefix: str, face: str, loop_runner: asyncio.Runner
) -> Iterator[Callable[..., RedisMemoryStore]]:
    """Make stores on the test server; in the async run their sync methods are the async twins."""
    made: list[RedisMemoryStore] = []

    def make(**options: Any) -> RedisMemoryStore:
        borrowed = "client" in options or "async_client" in options
        options.setdefault("key_prefix", prefix)
        store = RedisMemoryStore(options.pop("redis_url", None if borrowed else server.url), **options)
        made.append(store)
        return store if face == "sync" else cast("RedisMemoryStore", AsyncFace(store, loop_runner))

    yield make
    for store in made:
        loop_runner.run(store.aclose())


@pytest.fixture
def store(make_store: Callable[..., RedisMemoryStore]) -> RedisMemoryStore:
    """A store without vectors."""
    return make_store()


@pytest.fixture
def trips() -> Iterator[Trips]:
    with counted_trips() as trips:
        yield trips


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[Command]:
    """Record every command that is sent to Redis."""
    sent: list[Command] = []

    def watch(kind: Any) -> None:
        send = kind.send

        def watched(self: Any, effect: Send) -> Any:
            sent.extend(effect.commands)
            return send(self, effect)

        monkeypatch.setattr(kind, "send", watched)

    watch(Runner)
    watch(AsyncRunner)
    return sent


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory of our own, whose last server must be gone and which must be empty at the end."""
    root = Path(tempfile.mkdtemp(prefix="wm-"))
    monkeypatch.setattr(tempfile, "tempdir", str(root))
    monkeypatch.setenv("TMPDIR", str(root))
    yield root
    for directory, _, _ in list(os.walk(root)):
        wait_until(functools.partial(is_stopped, Path(directory)))
    assert not list(root.glob("workingmem-*"))
    shutil.rmtree(root)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[BareServers]:
    servers = BareServers(tmp_path)
    yield servers
    servers.close()


@pytest.fixture
def invoke(face: str, loop_runner: asyncio.Runner) -> Invoke:
    """Call a tool, an agent or a graph by `invoke` or by `ainvoke`."""

    def call(target: Any, *arguments: Any, **more: Any) -> Any:
        if face == "sync":
            return target.invoke(*arguments, **more)
        return loop_runner.run(target.ainvoke(*arguments, **more))

    return call


@pytest.fixture
def bench(server: EmbeddedRedis, prefix: str, face: str, loop_runner: asyncio.Runner) -> Iterator[Bench]:
    bench = Bench(server.url, prefix, face, loop_runner)
    yield bench
    bench.close()


@pytest.fixture(params=["checkpointer", "no checkpointer"])
def saver(request: pytest.FixtureRequest) -> InMemorySaver | None:
    return InMemorySaver() if request.param == "checkpointer" else None
