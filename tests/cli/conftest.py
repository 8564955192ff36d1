"""The program as people call it: in this process, or as a process of its own for signals and terminals."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from typer.main import get_command
from typer.testing import CliRunner

from langchain_workingmem import LocalEmbeddings, Memory, RecallOptions
from langchain_workingmem.cli import app
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.programs import Forked

Run = Callable[..., Any]
EVIL = "[red]\x1b]0;owned\x07\x9b31m\u202e[/]"  # markup, a title of the window, a colour, another direction


@pytest.fixture(scope="session")
def local() -> LocalEmbeddings:
    return LocalEmbeddings()


MADE = cache(get_command)  # typer makes all commands anew at each call, which takes longer than most of them


@pytest.fixture(autouse=True)
def made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the commands once for all tests."""
    monkeypatch.setattr("typer.testing._get_command", MADE)


@pytest.fixture(autouse=True)
def one_model(monkeypatch: pytest.MonkeyPatch, local: LocalEmbeddings) -> None:
    """Load the model once for all tests instead of once for each memory."""
    monkeypatch.setattr("langchain_workingmem.embeddings.LocalEmbeddings", lambda: local)


@pytest.fixture
def run(server: EmbeddedRedis, prefix: str, tmp_path: Path) -> Run:
    """Call the program on the memory of the test."""

    def call(*words: str, input: str | None = None, **environment: str | None) -> Any:
        usual = {
            "COLUMNS": "200",
            "REDIS_URL": server.url,
            "XDG_DATA_HOME": str(tmp_path),
            "OPENAI_API_KEY": None,
        }
        return CliRunner().invoke(app, [*words, "--key-prefix", prefix], input=input, env={**usual, **environment})

    return call


@pytest.fixture
def outside(server: EmbeddedRedis, prefix: str, local: LocalEmbeddings) -> Iterator[Memory]:
    """The memory of the program whose data the commands work on."""
    with Memory(server.url, key_prefix=prefix, embeddings=local, recall=RecallOptions()) as memory:
        yield memory


@pytest.fixture
def talked(outside: Memory) -> Memory:
    """Two conversations of Maya's and one of Jonas's."""
    outside.threads.create(user_id="maya", thread_id="dog", title="A dog")
    for thread_id, user_id, question, answer in (
        ("dog", "maya", "My dog is called Nougat.", "Hello Nougat!"),
        ("trip", "maya", "Book me a hut near Cortina.", "Done: a bed for 12 July."),
        ("boat", "jonas", "My boat is called Kestrel.", "A fine name."),
    ):
        messages = [HumanMessage(question, id=f"{thread_id}-q"), AIMessage(answer, id=f"{thread_id}-a")]
        outside.save_turn(messages, thread_id=thread_id, user_id=user_id)
    return outside


# a program whose model takes a minute and writes a file when it is asked: format it with the url and the prefix
SLOW = """
import pathlib, time
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_workingmem import *

class Slow(DeterministicFakeEmbedding):
    def embed_query(self, text):
        pathlib.Path(f"{{__file__}}.waits").touch()
        time.sleep(60)
        return super().embed_query(text)

memory = Memory({url!r}, key_prefix={prefix!r}, embeddings=Slow(size=8))
"""

PROGRAM = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell takes from what it runs in the background
runpy.run_module("langchain_workingmem.cli", run_name="__main__", alter_sys=True)
"""


def started(*words: str, terminal: bool = False, fresh: bool = False, **environment: str) -> subprocess.Popen[str]:
    """Start the program as a process of its own, in a terminal if wanted: what comes then is in `.stdout`.

    A `fresh` one imports all by itself, as for a user; else it is a fork of a process that has.
    """
    begin: type[subprocess.Popen[str]] = subprocess.Popen if fresh else Forked
    command = [sys.executable, "-W", "error", "-c", PROGRAM, *words]
    kept = {name: value for name, value in os.environ.items() if name not in {"REDIS_URL", "OPENAI_API_KEY"}}
    env = {**kept, "COLUMNS": "200", **environment}
    pipe = subprocess.PIPE
    if not terminal:
        return begin(command, stdin=pipe, stdout=pipe, stderr=pipe, env=env, bufsize=1, text=True)
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, 200))  # without a width, a progress bar is empty
    process = begin(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, text=True)
    os.close(theirs)
    process.stdin = os.fdopen(os.dup(ours), "w", buffering=1)
    process.stdout = os.fdopen(ours, errors="replace")
    return process


def read_until(process: subprocess.Popen[str], expected: str) -> str:
    """Read what a program says until something stands in it."""
    seen = ""
    while expected not in seen:
        one = _read(process)
        assert one, f"the program ended without {expected!r}: {seen}"
        seen += one
    return seen


def interrupt(process: subprocess.Popen[str]) -> None:
    """Press Ctrl-C until the program does something: a signal between the prompt and the wait for a line is lost."""
    assert process.stdout
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        if select.select([process.stdout], [], [], 2)[0]:
            return


def read_all(process: subprocess.Popen[str]) -> str:
    """Read what a program says until it ends."""
    return "".join(iter(lambda: _read(process), ""))


def _read(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    try:
        return process.stdout.read(1)
    except OSError:  # a terminal whose other end is closed
        return ""


def ended(process: subprocess.Popen[str]) -> int:
    """Wait for the end, close all that stands open, and return the exit code."""
    code = process.wait(timeout=20)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            stream.close()
    return code
