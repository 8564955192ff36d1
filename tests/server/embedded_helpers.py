"""What the tests of the embedded server ask of its processes and of its files."""

import fcntl
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.io import guardian


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


def is_free(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        return guardian.locked(lock)
    finally:
        os.close(lock)


def is_shareable(path: Path) -> bool:
    lock = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def is_stopped(directory: Path) -> bool:
    return is_free(directory / "server.lock") and is_free(directory / "guardian.lock")


def server_pid(directory: Path) -> int:
    return int((directory / "server.lock").read_text())


def guardian_pid(directory: Path) -> int:
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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
