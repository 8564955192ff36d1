"""Two processes talk and observe at once; one of them is killed at random moments. What must hold, holds afterwards."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import pytest

from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embedded import read
from tests.helpers.examples import NIGHTLY, sample
from tests.helpers.programs import Forked
from tests.observations import checks
from tests.observations.life import Life
from tests.observations.worker import OWNER, THREADS
from tests.observations.world import Config

pytestmark = pytest.mark.programs

KILLS = 25 if NIGHTLY else 3


@pytest.mark.in_turn("deletes")
@pytest.mark.parametrize(
    "deletes", sample([True, False], 1), ids=lambda deletes: "saying and deleting" if deletes else "saying"
)
@pytest.mark.parametrize("scope", sample(["thread", "user"], 1))
def test_two_processes_one_of_which_is_killed(
    server: EmbeddedRedis, prefix: str, tmp_path: Path, scope: Literal["thread", "user"], deletes: bool
) -> None:
    journal = tmp_path / "journal"
    chance = random.Random(f"{scope} {deletes}")

    def start(number: int, seconds: float) -> subprocess.Popen[str]:
        arguments = [server.url, prefix, scope, str(number), str(journal), str(seconds), str(int(deletes))]
        command = [sys.executable, "-m", "tests.observations.worker", *arguments]
        worker = stack.enter_context(Forked(command, of="library", stdout=subprocess.PIPE))
        stack.callback(worker.kill)
        return worker

    with ExitStack() as stack:
        steady = start(1, 1.0 * KILLS)
        for number in range(KILLS):
            victim = start(2 + number, 60)
            assert read(victim) == "ready"
            time.sleep(chance.uniform(0.05, 0.6))
            victim.kill()
            victim.wait()
        assert [read(steady), read(steady)] == ["ready", "done"], "the other process goes on"
        steady.wait()
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    with asyncio.Runner() as runner:
        life = Life(server.url, prefix, Config(scope=scope), runner)
        life.model.has_low = False
        try:
            check(life, lines)
        finally:
            life.close()


def check(life: Life, lines: list[list[str]]) -> None:
    """Read the journal, observe what is left, and look at everything."""
    life.said |= {text for kind, *texts in lines if kind == "saying" for text in texts}
    deleted = {word for kind, *words in lines if kind == "deleted" for word in words}
    life.threads = {thread: OWNER for thread in THREADS if life.plain.threads.get(thread) is not None}
    life.truth = checks.truth_of(life)
    assert not deleted & {word for truth in life.truth.values() for word in truth.stored}
    life.probe_all()
    checks.check_server(life)
    for key in [*life.raw.scan_iter(f"{life.prefix}:observations:*", _type="HASH")]:
        life.raw.hdel(key, "lease", "leased_until")  # as after a while: a killed process holds its lease
    until = time.monotonic() + 20
    for thread in life.threads:
        while True:
            life.model.calls.clear()
            life.faces[0].observations.observe(thread, user_id=OWNER)
            try:
                life.check_done(thread, life.log(thread))
                break
            except checks.ViolationError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
    life.probe_all()
    checks.check_server(life)
    calls = [
        set(shown)
        for _, asked, shown, _, is_usable in (line for line in lines if line[0] == "call")
        if asked == "observe" and is_usable
    ]
    problems = [line[3] for line in lines if line[0] == "call" and line[3]]
    assert not problems
    assert calls
    if not deleted:  # which open messages again
        seen: Counter[str] = Counter()
        again = 0
        for shown in calls:
            again += any(seen[word] for word in shown)
            seen.update(shown)
        assert again <= 3 * KILLS, "at most the answers that a killed process had under way are paid twice"
    life.end()
