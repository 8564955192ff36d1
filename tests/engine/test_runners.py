"""Plans driven by hand, and the runners around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from langchain_workingmem._engine.effects import (
    Emit,
    Pause,
    Plan,
    Pull,
    Send,
    attempt,
    send,
)
from langchain_workingmem._engine.embedder import Embedder
from langchain_workingmem._engine.runners import AsyncRunner, Runner
from langchain_workingmem._redis.access import sweep_now
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem._redis.scripts import DELETE
from langchain_workingmem._redis.state import MemoryState
from langchain_workingmem.errors import OutcomeUnknownError, RedisConnectionError, RedisReplyError


def drive(plan: Plan[Any], *results: Any) -> tuple[list[Any], Any]:
    """Play the server: give a plan these results, or raise them, and return its effects and what it makes of them."""
    effects: list[Any] = []
    feed = iter([None, *results])
    try:
        while True:
            result = next(feed)
            effects.append(plan.throw(result) if isinstance(result, Exception) else plan.send(result))
    except StopIteration as done:
        return effects, done.value


def test_only_the_forgotten_scripts_are_sent_again_with_their_source() -> None:
    call = DELETE.call(["t", "o", "m", "v"], "", "thread")
    forgotten = RedisReplyError("NOSCRIPT No matching script")
    effects, value = drive(attempt(("INCR", "n"), call), [1, forgotten], [5])
    assert value == [1, 5]
    (again,) = effects[1].commands
    assert again[0] == "EVAL"
    assert "drop_vectors" in str(again[1])
    assert again[2:] == call[2:]


BUSY = RedisReplyError("BUSY Redis is busy running a script")


def test_what_a_busy_server_refused_is_sent_again_and_nothing_else() -> None:
    effects, value = drive(attempt(("INCR", "n"), ("GET", "x")), [1, BUSY], None, [BUSY], None, [b"x"])
    assert value == [1, b"x"]
    get = Send([("GET", "x")])
    assert effects[1:] == [Pause(0.05), get, Pause(0.25), get]


def test_a_server_that_stays_busy_is_an_error() -> None:
    with pytest.raises(RedisReplyError, match="BUSY"):
        drive(send(("GET", "x")), *([BUSY], None) * 3, [BUSY])


def test_an_outcome_that_is_unknown_is_not_repeated_by_itself() -> None:
    with pytest.raises(OutcomeUnknownError):
        drive(send(("DEL", "x"), at_most_once=True), OutcomeUnknownError("lost", repeats=3))


# ---------------------------------------------------------------------- slices


def test_a_sweep_that_fails_says_what_holds_and_how_to_go_on() -> None:
    with pytest.raises(RedisConnectionError) as caught:
        drive(sweep_now(MemoryState(keys=Keys()), "t", "it is deleted", "do it again"), RedisConnectionError("gone"))
    assert caught.value.__notes__ == ["it is deleted, but some of its vectors are left: do it again"]


# ---------------------------------------------------------------------- indexes that are gone

SEARCH, HEAL = Send((("FT.SEARCH",),)), Send((("FT.CREATE",),))


def no_client() -> Any:
    raise AssertionError


def watched(log: list[str]) -> Plan[str]:
    try:
        yield Emit([(1, 2)])
        yield Pause(0)
        raise LookupError
    finally:
        log.append("closed")


def test_a_plan_is_closed_when_it_fails() -> None:
    log: list[str] = []
    seen: list[tuple[int, int]] = []
    runner = Runner(no_client, Embedder(None, 0))
    with pytest.raises(LookupError):
        runner.run(watched(log), lambda done, total: seen.append((done, total)))
    assert log == ["closed"]
    assert seen == [(1, 2)]


def echoing(source: Any, log: list[str]) -> Plan[None]:
    try:
        while taken := (yield from Pull(source)):
            yield Emit([*taken, "and"])
    finally:
        log.append("closed")


def test_a_stream_pulls_and_emits_while_it_is_read() -> None:
    log: list[str] = []
    source = iter([1, None, 2])
    stream = Runner(no_client, Embedder(None, 0)).stream(echoing(source, log))
    assert [next(stream), next(stream)] == [1, "and"]
    assert next(source) is None
    assert list(stream) == [2, "and"]
    assert log == ["closed"]


def test_a_stream_that_nobody_reads_on_is_closed() -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1
        yield 2

    async def main() -> None:
        stream = AsyncRunner(no_client, Embedder(None, 0)).stream(echoing(numbers(), log))
        assert [await anext(stream), await anext(stream), await anext(stream)] == [1, "and", 2]
        await stream.aclose()

    log: list[str] = []
    asyncio.run(main())
    assert log == ["closed"]
    once = Runner(no_client, Embedder(None, 0)).stream(echoing(iter([1]), log))
    assert next(once) == 1
    once.close()  # type: ignore[attr-defined]
    assert log == ["closed", "closed"]


def test_a_plan_is_closed_when_its_task_is_cancelled() -> None:
    log: list[str] = []

    def endless() -> Plan[None]:
        try:
            while True:
                yield Pause(60)
        finally:
            log.append("closed")

    async def main() -> None:
        task = asyncio.create_task(AsyncRunner(no_client, Embedder(None, 0)).run(endless()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert log == ["closed"]
