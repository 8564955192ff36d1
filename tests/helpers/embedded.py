"""What the tests of the embedded server ask of its processes and of its files."""

import contextlib
import fcntl
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from langchain_workingmem._engine import child
from langchain_workingmem.embedded import EmbeddedRedis, chosen_engine


def read(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def wait_until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def is_free(path: Path, kind: int = fcntl.LOCK_EX) -> bool:
    """Tell whether a lock could be taken."""
    try:
        lock = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        return child.locked(lock, kind)
    finally:
        os.close(lock)


def is_shareable(path: Path) -> bool:
    return is_free(path, fcntl.LOCK_SH)


def is_stopped(directory: Path) -> bool:
    return is_free(directory / "server.lock") and is_shareable(directory / "users.lock")


def server_pid(directory: Path) -> int:
    return int((directory / "redis.pid").read_text())


def kill_server(directory: Path) -> None:
    """End a server as a system does that runs out of memory, and wait until it is gone."""
    os.kill(server_pid(directory), signal.SIGKILL)
    wait_until(lambda: is_stopped(directory))


def parent_pid(directory: Path) -> int:
    ps = ["ps", "-o", "ppid=", "-p", str(server_pid(directory))]
    return int(subprocess.run(ps, capture_output=True, text=True, check=True).stdout)


def connect(embedded: EmbeddedRedis) -> Any:
    """A client that does not send again what may have arrived."""
    return redis.Redis.from_url(embedded.url, decode_responses=True, retry=Retry(NoBackoff(), 0))


def executable(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def free_port() -> int:
    """Find a port below those that the system gives away by itself, such as to the clients of other tests."""
    while True:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", random.randrange(10_000, 30_000)))
            return int(probe.getsockname()[1])


class BareServers:
    """Servers without modules, on ports of their own; called, it starts one and returns its port."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def __call__(self, *arguments: str, port: int | None = None) -> int:
        """Start a server; with the port of one that was killed, on its data."""
        port = port or free_port()
        folder = self._root / str(port)
        folder.mkdir(exist_ok=True)
        command = [str(chosen_engine().binary), *arguments, "--port", str(port), "--bind", "127.0.0.1", "--dir", "."]
        self._running[port] = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
        wait_until(lambda: is_open(port))
        return port

    @property
    def running(self) -> set[int]:
        return set(self._running)

    def pid(self, port: int) -> int:
        return self._running[port].pid

    def kill(self, port: int) -> None:
        process = self._running.pop(port)
        process.kill()
        process.wait()

    def close(self) -> None:
        for port in list(self._running):
            self.kill(port)


@contextlib.contextmanager
def full_memory(raw: Any) -> Iterator[None]:
    """Let a server have more in memory than it may."""
    raw.config_set("maxmemory", "1")
    try:
        yield
    finally:
        raw.config_set("maxmemory", "0")


@contextlib.contextmanager
def search_on_oom(raw: Any, policy: str) -> Iterator[None]:
    """Set what Search does when memory is full; the test is skipped where Search has no such setting."""
    before = raw.config_get("search-on-oom")
    if not before:
        pytest.skip("this Search answers when memory is full, whatever is set")
    raw.config_set("search-on-oom", policy)
    try:
        yield
    finally:
        raw.config_set(*before, *before.values())


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
