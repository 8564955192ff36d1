"""Eight processes at work for a minute, while the server is killed five times: nothing acknowledged is lost.

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
from typing import Any

import pytest

from langchain_workingmem import Memory
from tests.helpers.embedded import go_on, read, server_pid
from tests.house.soak import open_memory

SECONDS = float(os.environ.get("WORKINGMEM_SOAK_SECONDS", "60"))
PROCESSES = 8
KILLS = 5


@pytest.mark.nightly
@pytest.mark.alone
def test_nothing_acknowledged_is_lost_when_the_server_is_killed(scratch: Path) -> None:
    path = scratch / "data"
    command = [sys.executable, "-m", "tests.house.soak"]
    with open_memory(str(path)) as memory, ExitStack() as stack:
        workers = []
        for number in range(PROCESSES):
            worker = subprocess.Popen(
                [*command, str(number), str(path), str(SECONDS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(worker)
            stack.callback(worker.kill)
            workers.append(worker)
        assert [read(worker) for worker in workers] == ["ready"] * PROCESSES
        for worker in workers:
            go_on(worker)
        for _ in range(KILLS):
            time.sleep(SECONDS / (KILLS + 1))
            os.kill(server_pid(path), signal.SIGKILL)  # somebody may start it again at once
            memory.threads.get("shared")
        reports = [json.loads(read(worker)) for worker in workers]
        check(memory, reports)


def check(memory: Memory, reports: list[dict[str, Any]]) -> None:
    facts = memory.working_memory.get(user_id="all")
    shared = memory.threads.get("shared")
    assert shared is not None
    for number, report in enumerate(reports):
        for thread, said in report["said"].items():
            stored = [str(message.id) for message in memory.history.messages(thread)]
            assert len(stored) == len(set(stored))
            assert [id for id in stored if id.startswith(f"{number}-")] == said
        assert report["facts"].items() <= facts.value.facts.items()
        assert report["labels"].items() <= shared.metadata.items()
    rows = memory.history.page("shared", limit=shared.message_count + 1).items
    assert [row.seq for row in rows] == list(range(shared.message_count))
    # each merge writes something new, so one that happened twice, or not at all, would show
    assert facts.revision == sum(report["done"]["merge"] for report in reports)
    assert memory.recall.reindex(progress=False) == 0
