"""Others at work while a guest becomes a user, step by step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, ThreadOwnershipError, UserDeletedError, WorkingMemoryOptions
from langchain_workingmem._engine.plan import Plan
from langchain_workingmem.users import merge
from tests.helpers.canaries import keys_with
from tests.helpers.examples import NIGHTLY
from tests.helpers.types import Make
from tests.users.guests import ANY, GUEST, USER, talk

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
    """A guest with a thread, a file and two fields of working memory, and a user with one."""
    memory = make_memory(working_memory=WorkingMemoryOptions(schema=ANY))
    talk(memory, "I live in Lisbon", "I like Ginjinha", thread="g", owner=GUEST)
    memory.files.write("/a.md", "the guest's", user_id=GUEST)
    memory.working_memory.update({"city": "Lisbon", "drink": "Ginjinha"}, user_id=GUEST)
    talk(memory, "I am Maya", thread="u", owner=USER)
    memory.working_memory.update({"name": "Maya"}, user_id=USER)
    return memory


@pytest.mark.parametrize("stage", STAGES)
def test_a_deletion_of_the_guest_wins_over_the_merge(kept: Memory, raw: redis.Redis, prefix: str, stage: int) -> None:
    """What the user has by then is the user's; nothing else is left."""
    with suppress(UserDeletedError):
        merging(kept, stage, lambda: kept.users.delete(GUEST))
    assert keys_with(raw, prefix, GUEST) == []
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
    assert keys_with(raw, prefix, USER) == []
    assert guest is not None
    if guest.user_id == GUEST:  # then nobody waits for a merge that cannot go on
        kept.history.append([HumanMessage("I go on")], thread_id="g", user_id=GUEST)
    kept.users.merge(GUEST, into=USER)
    assert keys_with(raw, prefix, GUEST) == []


@pytest.mark.parametrize("stage", [0, 1, 2, 6, 9])
def test_what_the_user_writes_meanwhile_stays(kept: Memory, stage: int) -> None:
    def event() -> None:
        kept.working_memory.update({"pet": "cat"}, user_id=USER)
        kept.history.append([HumanMessage("more")], thread_id="u", user_id=USER)

    merging(kept, stage, event)
    found = kept.working_memory.get(user_id=USER).value
    assert found == {"city": "Lisbon", "drink": "Ginjinha", "name": "Maya", "pet": "cat"}
    assert kept.history.messages("u")[-1].text == "more"


@pytest.mark.parametrize("stage", STAGES)
def test_what_the_guest_writes_meanwhile_is_refused_or_kept(kept: Memory, stage: int) -> None:
    told: list[str] = []

    def event() -> None:
        writes: dict[str, Callable[[], object]] = {
            "late": lambda: kept.history.append([HumanMessage("late")], thread_id="late", user_id=GUEST),
            "more": lambda: kept.history.append([HumanMessage("more")], thread_id="g", user_id=GUEST),
            "pet": lambda: kept.working_memory.update({"pet": "cat"}, user_id=GUEST),
            "file": lambda: kept.files.write("/late.md", "x", user_id=GUEST),
        }
        for name, write in writes.items():
            with suppress(UserDeletedError, ThreadOwnershipError):
                write()
                told.append(name)

    merging(kept, stage, event)
    kept.users.merge(GUEST, into=USER)  # who came after it has begun anew
    found: set[str] = {message.text for thread in ("g", "late") for message in kept.history.messages(thread)}
    found |= {*kept.working_memory.get(user_id=USER).value}
    found |= {"file" for one in kept.files.glob("**", user_id=USER) if one.path == "/late.md"}
    assert {*told} == found & {"late", "more", "pet", "file"}
