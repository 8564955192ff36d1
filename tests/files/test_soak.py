"""Writers of files at work while their server is killed: nothing acknowledged is lost, and nothing is applied twice.

WORKINGMEM_SOAK_SECONDS sets how long.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from langchain_workingmem import Memory
from tests.files.checks import check_stored
from tests.files.writer import OWNER, Log
from tests.helpers.embedded import server_pid

SECONDS = float(os.environ.get("WORKINGMEM_SOAK_SECONDS", "60"))
KILLS = 5


@pytest.mark.nightly
@pytest.mark.alone
def test_no_edit_is_lost_when_the_server_is_killed(scratch: Path) -> None:
    path = scratch / "data"
    with Memory.embedded(path, key_prefix="soak") as memory, ExitStack() as stack:
        files = memory.files
        log = Log(files, 3)
        # a writer that sees no reply does not know whether its step happened, and looks: other processes start the server again
        words = [sys.executable, "-m", "tests.files.writer", str(path), "soak"]
        workers, reports = [], [scratch / "first", scratch / "second"]
        for report, numbers in zip(reports, ("0,1", "2"), strict=True):
            told = stack.enter_context(report.open("w"))
            worker = subprocess.Popen([*words, numbers, "1", str(SECONDS)], stdout=told)
            stack.enter_context(worker)
            stack.callback(worker.kill)
            workers.append(worker)
        for _ in range(KILLS):
            time.sleep(SECONDS / (KILLS + 1))
            os.kill(server_pid(path), signal.SIGKILL)
        for worker, report in zip(workers, reports, strict=True):
            assert worker.wait(SECONDS + 60) == 0
            log.add([json.loads(line) for line in report.read_text().splitlines()])
        assert not log.open
        log.check(files)
        with redis.Redis(unix_socket_path=str(next(path.glob("*.sock")))) as raw:
            check_stored(raw, "soak", OWNER)
        print(f"soak of files: {log.acknowledged} steps, {KILLS} kills")  # noqa: T201 - for `pytest -s`
    assert log.acknowledged > 20 * SECONDS
