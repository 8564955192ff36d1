"""The lease that one worker of a thread has, and the pause that all take after a failure."""

from __future__ import annotations

import pytest
import redis

from langchain_workingmem import Memory, ThreadNotFoundError, ThreadOwnershipError
from langchain_workingmem.derived import NewRow, ThreadRows
from tests.helpers.threads import append


@pytest.fixture
def thread(plain: Memory) -> Memory:
    append(plain, "a")
    return plain


def rows(memory: Memory, thread: str = "t", user: str = "u") -> ThreadRows:
    return ThreadRows(memory._core.state, thread, user, "log")


def taken(memory: Memory, token: str, ms: int = 60_000) -> tuple[int, bool]:
    return memory._core.run(rows(memory).lease(token, ms))


def test_one_has_it_until_it_is_given_back(thread: Memory) -> None:
    assert taken(thread, "one") == (0, False)
    taken(thread, "two", 0)  # who does not have it gives nothing back
    thread._core.run(rows(thread).pause("two", None))  # and lets nobody pause
    wait, is_pause = taken(thread, "two")
    assert 50_000 < wait <= 60_000
    assert not is_pause
    assert thread._core.run(rows(thread).lease("two", 1, force=True))[0] > 0  # that is for a pause
    taken(thread, "one", 0)
    assert taken(thread, "two") == (0, False)


def test_pauses_are_doubled_up_to_a_limit_until_something_is_committed(thread: Memory, raw: redis.Redis) -> None:
    def pause() -> int:
        thread._core.run(rows(thread).pause("one", None))
        wait, is_pause = taken(thread, "two")
        assert is_pause
        raw.hdel(thread._core.state.keys.of("t").rows, "lease:log")
        return round(wait / 1000)

    assert [pause() for _ in range(8)] == [15, 30, 60, 120, 240, 480, 900, 900]
    read = thread._core.run(rows(thread).read())
    thread._core.run(rows(thread).commit(read, [NewRow({"text": "x", "at": 1}, [0], [0])]))
    assert pause() == 15


def test_it_asks_for_the_owner_and_the_thread(thread: Memory) -> None:
    for missing, error in (
        (rows(thread, user="another"), ThreadOwnershipError),
        (rows(thread, "none"), ThreadNotFoundError),
    ):
        with pytest.raises(error):
            thread._core.run(missing.lease("one", 1_000))
