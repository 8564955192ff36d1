"""Others at work while a guest becomes a user: in this process step by step, in other processes, and one that is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, UserDeletedError, WorkingMemoryOptions
from langchain_workingmem._engine.plan import Plan
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.users import merge
from tests.helpers.embedded import read
from tests.helpers.examples import NIGHTLY
from tests.helpers.programs import Forked
from tests.helpers.threads import thread_of
from tests.helpers.types import Make
from tests.users.guests import ANY, GUEST, USER, everything, naming, talk

KEEPS = WorkingMemoryOptions(schema=ANY)
STAGES = range(30) if NIGHTLY else range(0, 16, 2)


def interrupted(plan: Plan[Any], stage: int, event: Callable[[], object]) -> Plan[Any]:
    """Perform a plan, with something else in front of one of its effects; or behind all of them."""
    effect = next(plan)
    for number in count():
        if number == stage:
            event()
        try:
            effect = plan.send((yield effect))
        except StopIteration as done:
            if number < stage:
                event()
            return done.value


def merging(memory: Memory, stage: int, event: Callable[[], object]) -> Any:
    return memory._core.run(interrupted(merge(memory._core.state, GUEST, USER, "first"), stage, event))


@pytest.fixture
def kept(make_memory: Make) -> Memory:
    """A guest with a thread and two fields of working memory, and a user with one."""
    memory = make_memory(working_memory=KEEPS)
    talk(memory, "I live in Lisbon", "I like Ginjinha", thread="g", owner=GUEST)
    memory.working_memory.update({"city": "Lisbon", "drink": "Ginjinha"}, user_id=GUEST)
    talk(memory, "I am Maya", thread="u", owner=USER)
    memory.working_memory.update({"name": "Maya"}, user_id=USER)
    return memory


# ---------------------------------------------------------------------- step by step


@pytest.mark.parametrize("stage", STAGES)
def test_a_deletion_of_the_guest_wins_over_the_merge(kept: Memory, raw: redis.Redis, prefix: str, stage: int) -> None:
    """What the user has by then is the user's; nothing else is left."""
    with suppress(UserDeletedError):
        merging(kept, stage, lambda: kept.users.delete(GUEST))
    assert naming(raw, prefix, GUEST) == []
    thread = kept.threads.get("g")
    assert thread is None or thread.user_id == USER
    kept.users.merge(GUEST, into=USER)
    kept.history.append([HumanMessage("x")], thread_id="again", user_id=GUEST)


@pytest.mark.parametrize("stage", STAGES)
def test_a_deletion_of_the_user_wins_over_the_merge(kept: Memory, raw: redis.Redis, prefix: str, stage: int) -> None:
    tombstone = f"{prefix}:tombstone:{{{USER}}}"
    with suppress(UserDeletedError):
        merging(kept, stage, lambda: raw.set(tombstone, "a deletion"))
    guest = kept.threads.get("g")
    assert kept.users.delete(USER).verified
    assert naming(raw, prefix, USER) == []
    assert guest is not None
    if guest.user_id == GUEST:  # then nobody waits for a merge that cannot go on
        kept.history.append([HumanMessage("I go on")], thread_id="g", user_id=GUEST)
    kept.users.merge(GUEST, into=USER)
    assert naming(raw, prefix, GUEST) == []


@pytest.mark.parametrize("stage", [0, 1, 2, 6, 9])
def test_what_the_user_writes_meanwhile_stays(kept: Memory, stage: int) -> None:
    def event() -> None:
        kept.working_memory.update({"pet": "cat"}, user_id=USER)
        kept.history.append([HumanMessage("more")], thread_id="u", user_id=USER)

    merging(kept, stage, event)
    found = kept.working_memory.get(user_id=USER).value
    assert found == {"city": "Lisbon", "drink": "Ginjinha", "name": "Maya", "pet": "cat"}
    assert kept.history.messages("u")[-1].text == "more"


@pytest.mark.parametrize("stage", [1, 3])
def test_a_document_that_the_user_writes_meanwhile_is_merged_too(make_memory: Make, stage: int) -> None:
    memory = make_memory(working_memory=KEEPS)
    memory.working_memory.update({"city": "Lisbon", "x": 1}, user_id=GUEST)

    def event() -> None:
        memory.working_memory.update({"city": "Xanadu"}, user_id=USER)

    merging(memory, stage, event)
    assert memory.working_memory.get(user_id=USER).value == {"city": "Xanadu", "x": 1}


# ---------------------------------------------------------------------- processes

WRITER = """
import select, sys
from langchain_core.messages import HumanMessage
from langchain_workingmem import Memory, UserDeletedError, ThreadOwnershipError, WorkingMemoryOptions
url, prefix, name = sys.argv[1:]
with Memory(url, key_prefix=prefix, working_memory=WorkingMemoryOptions(template="", max_bytes=10**6)) as memory:
    print("ready", flush=True)
    for place in range(1_000_000):
        if select.select([sys.stdin], [], [], 0)[0]:  # closed: a busy machine has let the merge pass between two calls
            break
        thread = f"{name}-{place}"
        try:
            memory.history.append([HumanMessage(f"word of {thread}")], thread_id=thread, user_id="anon-7f3")
            print(thread, flush=True)
            memory.working_memory.update(f"note {thread}", user_id="anon-7f3")
            print(f"note {thread}", flush=True)
        except UserDeletedError:
            break
"""
MERGER = """
import sys
from langchain_workingmem import Memory, WorkingMemoryOptions
with Memory(sys.argv[1], key_prefix=sys.argv[2], working_memory=WorkingMemoryOptions(template="")) as memory:
    print("ready", flush=True)
    memory.users.merge("anon-7f3", into="maya")
"""


def program(source: str, *words: str) -> Forked:
    pipe = subprocess.PIPE
    return Forked([sys.executable, "-c", source, *words], of="library", stdin=pipe, stdout=pipe)


@pytest.mark.programs
def test_two_processes_that_write_for_the_guest_lose_nothing_and_are_refused(
    make_memory: Make, server: EmbeddedRedis, raw: redis.Redis, prefix: str
) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(template="", max_bytes=10**6))
    memory.history.append([HumanMessage("mine")], thread_id="of the user", user_id=USER)
    writers = [program(WRITER, server.url, prefix, name) for name in ("a", "b")]
    for writer in writers:
        assert read(writer) == "ready"
        while not read(writer).startswith("note"):
            pass
    memory.users.merge(GUEST, into=USER)
    told = []
    for writer in writers:
        told += writer.communicate()[0].splitlines()[1:]  # what was read has a part of the first
    while naming(raw, prefix, GUEST):  # who came after the merge has begun anew
        memory.users.merge(GUEST, into=USER)
    threads = {thread.id for thread in memory.threads.list(user_id=USER, limit=10_000)}
    notes = memory.working_memory.get(user_id=USER).text
    assert {line for line in told if not line.startswith("note")} < threads
    assert all(line in notes for line in told if line.startswith("note"))
    assert memory.history.messages("a-0")[0].text == "word of a-0"


@pytest.mark.programs
def test_a_process_that_is_killed_half_way_leaves_what_the_next_call_ends(
    make_memory: Make, server: EmbeddedRedis, raw: redis.Redis, prefix: str
) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(template=""))
    for place in range(300):
        said = [HumanMessage(f"word {place}"), AIMessage("noted")]
        memory.history.append(said, thread_id=f"t{place}", user_id=GUEST)
    memory.working_memory.update("likes tea", user_id=GUEST)
    memory.working_memory.update("is Maya", user_id=USER)
    victim = program(MERGER, server.url, prefix)
    assert read(victim) == "ready"
    while thread_of(memory, "t20").user_id == GUEST:
        pass
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert thread_of(memory, "t299").user_id == GUEST  # it was half-way
    with pytest.raises(UserDeletedError):
        memory.history.append([HumanMessage("x")], thread_id="t299", user_id=GUEST)
    report = memory.users.merge(GUEST, into=USER)
    assert 0 < report.threads < 300
    assert memory.threads.list(user_id=USER).total == 300
    texts = [memory.history.messages(f"t{place}")[0].text for place in range(300)]
    assert texts == [f"word {place}" for place in range(300)]
    assert memory.working_memory.get(user_id=USER).text == "is Maya\n\nlikes tea"
    assert everything(raw, prefix).keys() & {f"{prefix}:tombstone:{{{GUEST}}}"} == set()
    assert naming(raw, prefix, GUEST) == []
