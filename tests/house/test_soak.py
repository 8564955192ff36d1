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
from collections import Counter
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
        recoveries = []
        for _ in range(KILLS):
            time.sleep(SECONDS / (KILLS + 1))
            began = kill(path)
            memory.threads.get("shared")
            recoveries.append(time.monotonic() - began)
        reports = [json.loads(read(worker)) for worker in workers]
        print(figures(reports, recoveries))  # noqa: T201 - for `pytest -s`
        check(memory, reports)


def kill(path: Path) -> float:
    """End the server, and return when: somebody may start it again at once."""
    began = time.monotonic()
    os.kill(server_pid(path), signal.SIGKILL)
    return began


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


def figures(reports: list[dict[str, Any]], recoveries: list[float]) -> str:
    done = sum((Counter(report["done"]) for report in reports), Counter[str]())
    messages = sum(len(said) for report in reports for said in report["said"].values())
    return (
        f"soak: {done.total()} operations ({dict(done)}), {messages} messages, {len(recoveries)} kills, "
        f"served again after {min(recoveries):.2f} to {max(recoveries):.2f} s, longest call "
        f"{max(report['longest'] for report in reports):.2f} s, errors {sum(report['errors'] for report in reports)}"
    )
