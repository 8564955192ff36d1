"""One real Redis for the whole run, a key prefix per test, and every test through both faces."""

from __future__ import annotations

import asyncio
import inspect
import re
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast
from uuid import uuid4

import numpy as np
import pytest
import redis
import redis.asyncio.connection
import redis.connection
from hypothesis import settings
from langchain_core.embeddings import Embeddings

from langchain_workingmem import Memory, RecallOptions
from langchain_workingmem._engine import effects
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.store import RedisMemoryStore

settings.register_profile("usual", deadline=None)  # what an example takes depends on what else the machine does
settings.register_profile("nightly", max_examples=10_000, deadline=None)  # make nightly
settings.load_profile("usual")


class WordEmbeddings(Embeddings):
    """A small real model: a text is the sum of its words' directions, so texts that share words are near."""

    def __init__(self, dims: int = 64, model: str = "words") -> None:
        self.dims = dims
        self.model = model
        self.calls: list[list[str]] = []  # the texts of each call of the model
        self.broken: Exception | None = None  # raised instead of an answer

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.broken is not None:
            raise self.broken
        self.calls.append(list(texts))
        return [self._vector(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    def _vector(self, text: str) -> list[float]:
        total = np.full(self.dims, 1e-6)
        for word in re.findall(r"\w+", text.lower()):
            total += np.random.default_rng(zlib.crc32(word.encode())).standard_normal(self.dims)
        return cast("list[float]", (total / np.linalg.norm(total)).tolist())


async def _all_of(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


class _AsyncFace:
    """Looks like a Memory or a part of it, and answers every call with the async twin."""

    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self._target = target
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        twin = getattr(self._target, f"a{name}", None)
        if twin is not None:

            def call(*args: Any, **kwargs: Any) -> Any:
                made = twin(*args, **kwargs)
                return self._runner.run(_all_of(made) if inspect.isasyncgen(made) else made)

            return call
        value = getattr(self._target, name)
        is_part = type(value).__module__.endswith(".api")
        return _AsyncFace(value, self._runner) if is_part and not inspect.isroutine(value) else value


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture(scope="session")
def loop_runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def prefix(server: EmbeddedRedis) -> Iterator[str]:
    """A key prefix of the test's own; what it has left goes, or the server slows down with thousands of indexes."""
    prefix = f"t{uuid4().hex[:12]}"
    yield prefix
    with redis.Redis.from_url(server.url) as client:
        bare: Any = client
        for index in bare.execute_command("FT._LIST"):
            if index.startswith(prefix.encode()):
                bare.execute_command("FT.DROPINDEX", index)
        if keys := list(client.scan_iter(f"{prefix}*", count=1000)):
            client.unlink(*keys)


@pytest.fixture
def raw(server: EmbeddedRedis) -> Iterator[redis.Redis]:
    """A bare client, to look at what is stored."""
    with redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture(params=["sync", "async"])
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_memory(
    server: EmbeddedRedis, prefix: str, face: str, loop_runner: asyncio.Runner
) -> Iterator[Callable[..., Memory]]:
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
        return memory if face == "sync" else cast("Memory", _AsyncFace(memory, loop_runner))

    yield make
    for memory in made:
        loop_runner.run(memory.aclose())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat at once what failed: for servers that do not come back."""
    monkeypatch.setattr(effects, "PAUSES", (0.001, 0.001, 0.001))


@pytest.fixture
def embeddings() -> WordEmbeddings:
    return WordEmbeddings()


@pytest.fixture
def memory(make_memory: Callable[..., Memory], embeddings: WordEmbeddings) -> Memory:
    """A memory with recall."""
    return make_memory(embeddings=embeddings, recall=RecallOptions())


@pytest.fixture
def plain(make_memory: Callable[..., Memory]) -> Memory:
    """A memory without recall, hence without a model."""
    return make_memory()


class Trips:
    """Counts round trips where they happen: what is written to a socket at once is one."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, call: Callable[[], Any]) -> int:
        """Return how many round trips a call makes, after a first one that sets everything up."""
        call()
        before = self.count
        call()
        return self.count - before


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Trips:
    counter = Trips()
    send: Any = redis.connection.AbstractConnection.send_packed_command
    asend = redis.asyncio.connection.AbstractConnection.send_packed_command

    def counted(self: Any, command: Any, check_health: bool = True) -> None:
        counter.count += 1
        send(self, command, check_health)

    async def acounted(self: Any, command: Any, check_health: bool = True) -> None:
        counter.count += 1
        await asend(self, command, check_health)

    monkeypatch.setattr(redis.connection.AbstractConnection, "send_packed_command", counted)
    monkeypatch.setattr(redis.asyncio.connection.AbstractConnection, "send_packed_command", acounted)
    return counter


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
        return store if face == "sync" else cast("RedisMemoryStore", _AsyncFace(store, loop_runner))

    yield make
    for store in made:
        loop_runner.run(store.aclose())


@pytest.fixture
def store(make_store: Callable[..., RedisMemoryStore]) -> RedisMemoryStore:
    """A store without vectors."""
    return make_store()
