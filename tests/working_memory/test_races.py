"""Working memory under rivals: nothing is lost, whoever writes at the same time, and whatever dies in between."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage

from langchain_workingmem import (
    Memory,
    RedisConnectionError,
    ThreadOwnershipError,
    WorkingMemoryConflictError,
    WorkingMemoryOptions,
    WorkingMemoryState,
)
from langchain_workingmem._engine.plan import Plan, Send, Sleep
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.working_memory import store as plans
from langchain_workingmem.working_memory.store import WorkingMemory
from tests.helpers.plans import plan_of
from tests.helpers.programs import Forked

ANY = {"type": "object"}

WRITER = """
import asyncio, sys
from langchain_workingmem import Memory, WorkingMemoryOptions
url, prefix, who = sys.argv[1:]
memory = Memory(url, key_prefix=prefix, working_memory=WorkingMemoryOptions(schema={"type": "object"}))
async def write():
    for number in range(50):
        await memory.working_memory.aupdate({f"{who}-{number}": number}, user_id="ann")
print("ready", flush=True)
sys.stdin.readline()
if int(who) % 2:
    asyncio.run(write())
else:
    for number in range(50):
        memory.working_memory.update({f"{who}-{number}": number}, user_id="ann")
memory.close()
"""


@pytest.fixture
def memory(server: EmbeddedRedis, prefix: str) -> Iterator[Memory]:
    with Memory(server.url, key_prefix=prefix, working_memory=WorkingMemoryOptions(schema=ANY)) as memory:
        yield memory


@pytest.fixture
def notes(server: EmbeddedRedis, prefix: str) -> Iterator[Memory]:
    """Free text, one for each thread."""
    options = WorkingMemoryOptions(template="", scope="thread")
    with Memory(server.url, key_prefix=prefix, working_memory=options) as memory:
        yield memory


def at_once(count: int, work: Callable[[int], object]) -> list[object]:
    """Let threads do the work at the same time."""
    barrier = threading.Barrier(count)

    def run(number: int) -> object:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


# ---------------------------------------------------------------------- many at once


def test_four_processes_with_50_merges_each_keep_200_keys(memory: Memory, server: EmbeddedRedis, prefix: str) -> None:
    command = [sys.executable, "-W", "error", "-c", WRITER, server.url, prefix]
    writers = [
        Forked([*command, str(who)], of="library", stdin=subprocess.PIPE, stdout=subprocess.PIPE) for who in range(4)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=50)
        assert writer.returncode == 0
    state = memory.working_memory.get(user_id="ann")
    assert state.value == {f"{who}-{number}": number for who in range(4) for number in range(50)}
    assert state.revision == 200


async def test_a_hundred_tasks_keep_a_hundred_keys(memory: Memory) -> None:
    part = memory.working_memory
    await asyncio.gather(*(part.aupdate({str(number): number}, user_id="ann") for number in range(100)))
    state = await part.aget(user_id="ann")
    await memory.aclose()
    assert state.value == {str(number): number for number in range(100)}
    assert state.revision == 100


def test_of_rivals_with_one_expected_revision_a_single_one_wins(memory: Memory) -> None:
    def write(number: int) -> bool:
        with suppress(WorkingMemoryConflictError):
            memory.working_memory.update({"winner": number}, user_id="ann", expected_revision=0)
            return True
        return False

    assert at_once(30, write).count(True) == 1
    assert memory.working_memory.get(user_id="ann").revision == 1


def test_first_writes_to_the_memory_of_a_new_thread_are_all_kept(notes: Memory) -> None:
    def write(number: int) -> None:
        if number % 5:
            notes.working_memory.update(f"fact {number}", thread_id="t", user_id="ann")
        else:
            notes.history.append([HumanMessage(str(number), id=str(number))], thread_id="t", user_id="ann")

    at_once(20, write)
    kept = notes.working_memory.get(thread_id="t", user_id="ann").text.splitlines()
    assert {line for line in kept if line} == {f"fact {number}" for number in range(20) if number % 5}
    assert len(notes.history.messages("t")) == 4


# ---------------------------------------------------------------------- exactly these conflicts


class Watched:
    """Runs a plan, with something else in front of some of its effects; counts them, and leaves pauses out."""

    def __init__(self, *, before: Mapping[int, Callable[[], object]]) -> None:
        self.before = before
        self.trips = 0
        self.pauses: list[Sleep] = []

    def through(self, plan: Plan[Any]) -> Plan[Any]:
        try:
            effect = next(plan)
            while True:
                if isinstance(effect, Sleep):
                    self.pauses.append(effect)
                    effect = plan.send(None)
                    continue
                if isinstance(effect, Send):
                    self.trips += 1
                    self.before.get(self.trips, lambda: None)()
                effect = plan.send((yield effect))
        except StopIteration as done:
            return done.value


def run(memory: Memory, plan: Plan[Any]) -> Any:
    return memory._core.run(plan)


def merging(memory: Memory, patch: dict[str, Any], expected: int | None = None) -> Plan[WorkingMemoryState]:
    plan: Plan[WorkingMemoryState] = plan_of(
        WorkingMemory.update, memory, patch, user_id="ann", expected_revision=expected
    )
    return plan


def test_what_was_deleted_meanwhile_does_not_come_back_where_another_began(memory: Memory) -> None:
    memory.working_memory.update({"old": 1}, user_id="ann")

    def rival() -> None:
        memory.users.delete("ann")
        memory.working_memory.update({"theirs": 1}, user_id="ann")  # has the same revision

    state = run(memory, Watched(before={2: rival}).through(merging(memory, {"mine": 1})))
    assert state.value == {"theirs": 1, "mine": 1}


def test_a_writer_that_always_loses_gives_up_with_both_revisions(memory: Memory) -> None:
    memory.working_memory.update({"old": 0}, user_id="ann")
    numbers = iter(range(1, 10_000))
    rival = lambda: memory.working_memory.update({"old": next(numbers)}, user_id="ann")  # noqa: E731
    watched = Watched(before=dict.fromkeys(range(2, 1000), rival))
    with pytest.raises(WorkingMemoryConflictError) as caught:
        run(memory, watched.through(merging(memory, {"mine": 1})))
    assert caught.value.actual > caught.value.expected
    state = memory.working_memory.get(user_id="ann")
    assert caught.value.actual == state.revision
    assert "mine" not in state.value
    assert max(pause.seconds for pause in watched.pauses) <= plans.LONGEST_PAUSE
    assert watched.trips <= 2 * plans.ATTEMPTS


def test_a_thread_that_somebody_else_makes_meanwhile_is_theirs(notes: Memory) -> None:
    notes.working_memory.update("x", thread_id="other")  # the scripts are loaded
    for number in (2, 3):  # in front of the write; in front of making the thread
        theirs = f"t{number}"
        change = plan_of(WorkingMemory.update, notes, "mine", thread_id=theirs, user_id="ann")
        take = {number: partial(notes.working_memory.update, "theirs", thread_id=theirs, user_id="bob")}
        with pytest.raises(ThreadOwnershipError):
            run(notes, Watched(before=take).through(change))
        assert notes.working_memory.get(thread_id=theirs, user_id="bob").text == "theirs"


def test_a_thread_that_is_deleted_meanwhile_keeps_nothing_of_its_old_memory(notes: Memory) -> None:
    notes.working_memory.update("old", thread_id="t", user_id="ann")
    watched = Watched(before={2: lambda: notes.threads.delete("t")})
    state = run(notes, watched.through(plan_of(WorkingMemory.update, notes, "new", thread_id="t", user_id="ann")))
    assert (state.text, state.revision) == ("new", 1)


# ---------------------------------------------------------------------- a server that dies


def kill(url: str) -> None:
    """Kill a server, and return when it is gone."""
    with redis.Redis.from_url(url) as client:
        os.kill(client.info("server")["process_id"], signal.SIGKILL)
        with suppress(redis.ConnectionError):
            while True:
                client.ping()


def test_a_server_that_dies_among_writes_keeps_every_one_that_was_acknowledged(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "data") as server:
        memory = Memory(server.url, working_memory=WorkingMemoryOptions(schema=ANY))
        acknowledged: list[int] = []
        under_way = threading.Event()

        def write() -> None:
            with suppress(RedisConnectionError):
                for number in range(1, 100_000):
                    state = memory.working_memory.update({"number": number}, user_id="ann")
                    acknowledged.append(state.revision)
                    if number == 100:
                        under_way.set()

        writer = threading.Thread(target=write)
        writer.start()
        assert under_way.wait(30)
        kill(server.url)
        writer.join()
        server.start()
        state = memory.working_memory.get(user_id="ann")
        # one more at most: written, but its reply did not arrive
        assert acknowledged[-1] <= state.revision <= acknowledged[-1] + 1
        assert json.loads(state.text) == {"number": state.revision}
        assert memory.working_memory.revisions(user_id="ann")[0] == state
        memory.close()
