"""Fixtures that several files here need."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import HistoryOptions, Memory, RecallOptions
from langchain_workingmem._engine.effects import Command, Scan, Send
from langchain_workingmem._engine.runners import AsyncRunner, Runner
from langchain_workingmem._engine.server import socket_of
from langchain_workingmem.embedded import EmbeddedRedis
from tests.conftest import WordEmbeddings
from tests.server.embedded_helpers import BareServers, is_free, wait_until
from tests.server.operations import Bench
from tests.server.proxy import Proxy
from tests.server.working_memory_samples import Person, with_memory

Make = Callable[..., Memory]


@pytest.fixture
def ten(plain: Memory) -> Memory:
    """A thread t of the messages 0 to 9, every third of them of an ai."""
    messages = [(AIMessage if number % 3 == 2 else HumanMessage)(str(number), id=str(number)) for number in range(10)]
    plain.history.append(messages, thread_id="t", resource_id="u")
    return plain


@pytest.fixture
def brief(make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    """Shows two messages of the history, and recalls one without its neighbours."""
    return make_memory(
        embeddings=embeddings,
        recall=RecallOptions(top_k=1, message_range=0),
        history=HistoryOptions(last_messages=2, step=1),
    )


@pytest.fixture
def person(make_memory: Make) -> Memory:
    return with_memory(make_memory, schema=Person)


@pytest.fixture
def notes(make_memory: Make) -> Memory:
    """Free text, one for each thread."""
    return with_memory(make_memory, template="", scope="thread")


@pytest.fixture
def shared(make_memory: Make) -> Memory:
    """Free text, one for each resource."""
    return with_memory(make_memory, template="")


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory of our own, whose last server must be gone and which must be empty at the end."""
    root = Path(tempfile.mkdtemp(prefix="wm-"))
    monkeypatch.setattr(tempfile, "tempdir", str(root))
    monkeypatch.setenv("TMPDIR", str(root))
    yield root
    for directory, _, _ in list(os.walk(root)):
        wait_until(functools.partial(is_free, Path(directory, "guardian.lock")))
    assert not list(root.glob("workingmem-*"))
    shutil.rmtree(root)


@pytest.fixture
def data(scratch: Path) -> Path:
    return scratch / "data"


@pytest.fixture
def runner(face: str, loop_runner: asyncio.Runner) -> asyncio.Runner | None:
    """Run the async calls of what has no face of its own: tools, nodes, retrievers."""
    return loop_runner if face == "async" else None


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[Command]:
    """Record every command that is sent to Redis."""
    sent: list[Command] = []

    def watch(kind: Any) -> None:
        perform = kind._perform

        def watched(self: Any, effect: Any, *rest: Any) -> Any:
            if isinstance(effect, Send):
                sent.extend(effect.commands)
            elif isinstance(effect, Scan):
                sent.append(("SCAN", effect.cursor))
            return perform(self, effect, *rest)

        monkeypatch.setattr(kind, "_perform", watched)

    watch(Runner)
    watch(AsyncRunner)
    return sent


@pytest.fixture(scope="module")
def private() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(private: EmbeddedRedis) -> Iterator[Proxy]:
    assert private.path is not None
    place = str(socket_of(private.path))

    def connect() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(place)
        return connection

    with Proxy(connect) as proxy:
        yield proxy


@pytest.fixture
def make_bench(
    private: EmbeddedRedis, proxy: Proxy, make_memory: Callable[..., Memory], impatient: None
) -> Iterator[Callable[..., Bench]]:
    with ExitStack() as stack:
        yield lambda **timeout: stack.enter_context(closing(Bench(private, proxy, make_memory, **timeout)))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[BareServers]:
    servers = BareServers(tmp_path)
    yield servers
    servers.close()
