"""Edits of files under rivals: threads, tasks and processes that write at once, and processes that are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from langchain_workingmem import FileConflictError, Memory
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import FileMissingError, FilePathError
from langchain_workingmem.files import Files
from tests.files.checks import check_stored
from tests.files.writer import OWNER, Log
from tests.helpers.examples import NIGHTLY
from tests.helpers.programs import Forked

ANN: dict[str, Any] = {"user_id": "ann"}
COUNT = 10


@pytest.fixture
def files(server: EmbeddedRedis, prefix: str) -> Iterator[Files]:
    with Memory(server.url, key_prefix=prefix) as memory:
        yield memory.files


def at_once(work: Callable[[int], Any], count: int = COUNT) -> list[Any]:
    """Let threads do the work at the same time."""
    barrier = threading.Barrier(count)

    def run(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_ten_edits_at_once_are_ten_edits(files: Files) -> None:
    text = "".join(f"<{number}>\nbetween\n" for number in range(COUNT))
    base = files.write("/a", text, **ANN).info.revision
    at_once(lambda number: files.edit("/a", f"<{number}>", f"done {number}", **ANN))
    found = files.read("/a", **ANN)
    assert found.text.split("\n")[:-1:2] == [f"done {number}" for number in range(COUNT)]
    assert found.revision == base + COUNT


def test_of_writers_that_expect_no_file_one_wins(files: Files) -> None:
    def write(number: int) -> bool:
        with suppress(FilePathError, FileConflictError):
            options: dict[str, Any] = {"if_exists": "error"} if number % 2 else {"base_revision": 0}
            return files.write("/a", f"{number}", **options, **ANN).changed
        return False

    assert at_once(write).count(True) == 1
    assert files.read("/a", **ANN).revision == 1


def test_renames_deletions_and_reverts_at_once_leave_one_file(files: Files, raw: Any, prefix: str) -> None:
    files.write("/start", "x", **ANN)

    def happens(call: Callable[..., Any], *words: str) -> bool:
        with suppress(FileMissingError, FilePathError):
            return bool(call(*words, **ANN))
        return False

    assert at_once(lambda number: happens(files.rename, "/start", f"/to/{number}")).count(True) == 1
    (info,) = files.glob("**", **ANN)
    at_once(lambda _: happens(files.delete, info.path))
    assert files.glob("**", **ANN) == []
    at_once(lambda _: files.revert(info.path, 1, **ANN))
    assert files.read(info.path, **ANN).content == "x"
    check_stored(raw, prefix, "ann")


def test_a_directory_that_is_renamed_while_others_write_keeps_every_file(files: Files, raw: Any, prefix: str) -> None:
    names = [f"{number}" for number in range(30)]
    for name in names:
        files.write(f"/a/{name}", name, **ANN)

    def work(number: int) -> None:
        if number:
            files.write(f"/a/more/{number}", f"more/{number}", **ANN)
        else:
            files.rename("/a", "/b", **ANN)

    at_once(work)
    if files.list("/a", **ANN):  # written behind the last slice
        for info in files.glob("**", path="/a", **ANN):
            files.rename(info.path, f"/b{info.path[2:]}", **ANN)
    names += [f"more/{number}" for number in range(1, COUNT)]
    assert {info.path: files.read(info.path, **ANN).content for info in files.glob("**", **ANN)} == {
        f"/b/{name}": name for name in names
    }
    check_stored(raw, prefix, "ann")


# ---------------------------------------------------------------------- processes that are killed


class Process:
    """A process of `writer.py`, whose report is read while it works."""

    def __init__(self, url: str, prefix: str, writers: list[int], seed: int) -> None:
        words = [sys.executable, "-m", "tests.files.writer", url, prefix, ",".join(map(str, writers)), str(seed)]
        self.process = Forked(words, of="library", stdout=subprocess.PIPE)
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines += self.process.stdout

    def kill(self) -> list[dict[str, Any]]:
        """End it in the middle of something, and return what it has told."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return [json.loads(line) for line in self.lines if line.endswith("\n")]


def test_nothing_acknowledged_is_lost_or_applied_twice_when_writers_are_killed(
    server: EmbeddedRedis, files: Files, raw: Any, prefix: str
) -> None:
    """Three writers in two processes, which are killed and start again."""
    log = Log(files, 3)
    rounds, seconds = (40, 2.0) if NIGHTLY else (2, 0.4)
    for turn in range(rounds):
        processes = [Process(server.url, prefix, [0, 1], turn), Process(server.url, prefix, [2], turn)]
        deadline = time.monotonic() + 30
        while not all(len(one.lines) > 20 for one in processes) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(random.uniform(0.2, 1) * seconds)
        for process in processes:
            log.add(process.kill())
        log.check(files)
        check_stored(raw, prefix, OWNER)
    assert log.acknowledged > 40 * rounds
