"""A real application: sixty turns of one user who moves, changes job, takes things back, is quoted, and edits a message."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from contextlib import ExitStack
from time import sleep
from typing import Any

import pytest
import redis

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.keeping.keeper import runs
from tests.helpers.crashes import ends_within
from tests.helpers.embedded import read
from tests.helpers.examples import NIGHTLY
from tests.helpers.programs import Forked
from tests.helpers.types import Make
from tests.keeping.application import (
    EDIT,
    FACTS,
    THREADS,
    TURNS,
    USER,
    Person,
    check,
    message_id,
    save,
)
from tests.keeping.scripted import knows

LAST = len(TURNS)


def memory_of(make: Make, keeper: Any, **options: Any) -> Memory:
    more = options.pop("more", {})
    return make(working_memory=WorkingMemoryOptions(schema=Person, keeper=keeper, **options), **more)


class Times(list[int]):
    """When the turns were said, as the store has it."""

    def __init__(self, raw: redis.Redis, prefix: str) -> None:
        self._raw, self._prefix = raw, prefix
        super().__init__()

    def upto(self, progress: int) -> Times:
        for number in range(len(self), progress):
            key = f"{self._prefix}:messages:{{{TURNS[number].thread}}}"
            self.append(json.loads(self._raw.hget(key, message_id(number)) or "")["stored_at"])
        return self


def test_the_table_tells_a_whole_story() -> None:
    assert (LAST, len({turn.thread for turn in TURNS})) == (60, 8)
    assert len(FACTS) == len([turn for turn in (*TURNS, EDIT) if turn.operations])


def test_after_each_turn_all_is_as_the_table_says(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    keeper, times = knows(FACTS), Times(raw, prefix)
    memory = memory_of(make_memory, keeper)
    for number in range(LAST):
        save(memory, number)
        memory.settled()
        check(memory, number + 1, times.upto(number + 1))
    assert len(keeper.asked) == LAST + 1


def free(raw: redis.Redis, prefix: str, user: str) -> None:
    """Let the lease of a run that was killed end, as its time would."""
    raw.hdel(f"{prefix}:values:u:{{{user}}}", "lease", "leased_until")


@pytest.mark.parametrize("seed", range(1000 if NIGHTLY else 2))
def test_it_is_the_same_in_any_order_doubled_and_killed(
    make_memory: Make, raw: redis.Redis, prefix: str, seed: int
) -> None:
    chance, times = random.Random(seed), Times(raw, prefix)
    memories: list[Any] = [memory_of(make_memory, knows(FACTS), background=False) for _ in range(2)]

    def keep(thread: str) -> None:
        memory = chance.choice(memories)
        plan = runs.keep(memory._core.state, thread, USER)
        if chance.random() < 0.5:
            ends_within(memory, plan, chance.randrange(12))
            free(raw, prefix, USER)
        else:
            memory._core.run(plan)

    for number in range(LAST):
        save(memories[number % 2], number)
        if chance.random() < 0.3:
            keep(chance.choice(THREADS))
    for thread in chance.sample([*THREADS, *THREADS], 2 * len(THREADS)):
        keep(thread)
    for thread in THREADS:
        memories[0].working_memory.keep(thread, user_id=USER)
    check(memories[0], LAST, times.upto(LAST))


@pytest.mark.programs
def test_it_is_the_same_from_two_processes_one_of_which_is_killed(
    make_memory: Make, server: EmbeddedRedis, raw: redis.Redis, prefix: str
) -> None:
    memory = memory_of(make_memory, knows(FACTS), background=False)
    with ExitStack() as stack:
        for number in range(LAST):
            save(memory, number)
        keepers = []
        for number in range(3):
            words = [sys.executable, "-m", "tests.keeping.worker", server.url, prefix, str(number)]
            keepers.append(stack.enter_context(Forked(words, of="library", stdout=subprocess.PIPE)))
        victim, *others = keepers
        assert read(victim) == "kept"
        victim.kill()
        victim.wait()
        while any(one.poll() is None for one in others):
            free(raw, prefix, USER)
            sleep(0.05)
        assert [one.returncode for one in others] == [0, 0]
    check(memory, LAST, Times(raw, prefix).upto(LAST))
