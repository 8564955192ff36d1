"""Fixtures that several files here need."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import HistoryOptions, Memory, RecallOptions
from langchain_workingmem.io.runners import AsyncRunner, Runner
from langchain_workingmem.io.server import chosen_engine
from langchain_workingmem.plans.effects import Command, Send
from tests.conftest import WordEmbeddings
from tests.server.embedded_helpers import free_port, is_free, wait_until
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
        history=HistoryOptions(last_messages=2),
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
            return perform(self, effect, *rest)

        monkeypatch.setattr(kind, "_perform", watched)

    watch(Runner)
    watch(AsyncRunner)
    return sent


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Start bare servers, without modules, and return their ports."""
    running: list[subprocess.Popen[bytes]] = []

    def run(*arguments: str, port: int | None = None) -> int:
        port = port or free_port()
        folder = tmp_path / str(port)
        folder.mkdir()
        command = [str(chosen_engine().binary), *arguments, "--port", str(port), "--bind", "127.0.0.1", "--dir", "."]
        running.append(subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL))
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                time.sleep(0.01)
            else:
                return port
        raise TimeoutError(command)

    yield run
    for process in running:
        process.kill()
        process.wait()
