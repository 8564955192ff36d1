"""The lease that one worker of a thread has, and the pause that all take after a failure."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis

from langchain_workingmem import Memory, ThreadNotFoundError, ThreadOwnershipError
from langchain_workingmem.derived import NewRow, ThreadRows
from tests.helpers.threads import append


@pytest.fixture
def thread(plain: Memory) -> Memory:
    append(plain, "a")
    return plain


def taken(memory: Memory, token: str, ms: int = 60_000, **more: Any) -> tuple[int, bool]:
    return memory._core.run(ThreadRows(memory._core.state, "t", "u", "log").lease(token, ms, **more))


def failed(memory: Memory, token: str = "one", unusable: str | None = None) -> None:
    memory._core.run(ThreadRows(memory._core.state, "t", "u", "log").pause(token, unusable))


def free(raw: redis.Redis, memory: Memory) -> None:
    raw.hdel(memory._core.state.keys.of("t").rows, "lease:log")


def test_one_has_it_until_it_is_given_back(thread: Memory) -> None:
    assert taken(thread, "one") == (0, False)
    wait, is_pause = taken(thread, "two")
    assert 50_000 < wait <= 60_000
    assert not is_pause
    thread._core.run(
        ThreadRows(thread._core.state, "t", "u", "log").lease("two", 0)
    )  # who does not have it gives nothing back
    assert taken(thread, "two")[0] > 0
    thread._core.run(ThreadRows(thread._core.state, "t", "u", "log").lease("one", 0))
    assert taken(thread, "two") == (0, False)


def test_the_holder_prolongs_it(thread: Memory) -> None:
    taken(thread, "one", 1_000)
    assert taken(thread, "one", 90_000) == (0, False)
    assert taken(thread, "two")[0] > 60_000


def test_it_ends_by_itself(thread: Memory) -> None:
    taken(thread, "one", 5)
    time.sleep(0.02)
    assert taken(thread, "two") == (0, False)


def test_each_kind_has_its_own(thread: Memory) -> None:
    taken(thread, "one")
    assert thread._core.run(ThreadRows(thread._core.state, "t", "u", "value").lease("two", 1_000)) == (0, False)


def test_pauses_are_doubled_up_to_a_limit_until_something_is_committed(thread: Memory, raw: redis.Redis) -> None:
    waits = []
    for _ in range(8):
        failed(thread)
        waits.append(round(taken(thread, "two")[0] / 1000))
        free(raw, thread)
    assert waits == [15, 30, 60, 120, 240, 480, 900, 900]
    state = thread._core.state
    read = thread._core.run(ThreadRows(state, "t", "u", "log").read())
    thread._core.run(ThreadRows(state, "t", "u", "log").commit(read, [NewRow({"text": "x", "at": 1}, [0], [0])]))
    failed(thread)
    assert round(taken(thread, "two")[0] / 1000) == 15


def test_failures_are_counted_until_something_is_committed(thread: Memory, raw: redis.Redis) -> None:
    for unusable in ("this", "that", None):
        failed(thread, unusable=unusable)
        free(raw, thread)
    state = thread._core.state
    read = thread._core.run(ThreadRows(state, "t", "u", "log").read())
    assert (read.failures, read.failed) == (3, "that")
    thread._core.run(ThreadRows(state, "t", "u", "log").commit(read, [NewRow({"text": "x", "at": 1}, [0], [0])]))
    read = thread._core.run(ThreadRows(state, "t", "u", "log").read())
    assert (read.failures, read.failed) == (0, "")


def test_force_ignores_a_pause_but_no_holder(thread: Memory) -> None:
    failed(thread)
    assert taken(thread, "two")[1]
    assert taken(thread, "two", force=True) == (0, False)
    assert taken(thread, "three", force=True)[0] > 0


def test_who_lost_the_lease_lets_nobody_pause(thread: Memory) -> None:
    taken(thread, "two")
    failed(thread, "one")
    assert taken(thread, "two") == (0, False)


def test_it_asks_for_the_owner_and_the_thread(thread: Memory) -> None:
    state = thread._core.state
    with pytest.raises(ThreadOwnershipError):
        thread._core.run(ThreadRows(state, "t", "another", "log").lease("one", 1_000))
    with pytest.raises(ThreadNotFoundError):
        thread._core.run(ThreadRows(state, "none", "u", "log").lease("one", 1_000))
