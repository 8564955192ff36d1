"""Plans driven by hand, the runners around them, and the circuit breaker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from langchain_workingmem import Memory
from langchain_workingmem._engine.plan import Call, Plan, Send, Sleep, attempt, scan, send
from langchain_workingmem._engine.run import Link
from langchain_workingmem._redis.scripts import DELETE
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
    assert "delete_vectors" in str(again[1])
    assert again[2:] == call[2:]


def test_an_outcome_that_is_unknown_is_not_repeated_by_itself() -> None:
    with pytest.raises(OutcomeUnknownError):
        drive(send(("DEL", "x"), at_most_once=True), OutcomeUnknownError("lost", repeats=3))


def counting(log: list[int]) -> Iterator[Plan[list[int]]]:
    def step(number: int) -> Plan[list[int]]:
        yield Sleep(0)
        log.append(number)
        return [number, number]

    yield from map(step, range(3))


def test_a_stream_takes_a_step_when_it_is_read_and_ends_when_nobody_reads_on(plain: Memory) -> None:
    log: list[int] = []
    assert [*plain._core.stream(counting(log), "")] == [0, 0, 1, 1, 2, 2]
    log.clear()
    stream = plain._core.stream(counting(log), "")
    assert [next(stream), next(stream), log] == [0, 0, [0]]
    assert (next(stream), log) == (1, [0, 1])
    stream.close()  # type: ignore[attr-defined]

    def named() -> Plan[str]:
        return (yield from Call(lambda: threading.current_thread().name))

    async def main() -> list[int]:
        # a call without an async twin runs in a thread of its own
        assert await plain._core.arun(named()) != threading.current_thread().name
        stream: Any = plain._core.astream(counting(log), "")
        found = [await anext(stream), await anext(stream), await anext(stream)]
        await stream.aclose()
        return found

    log.clear()
    assert asyncio.run(main()) == [0, 0, 1]
    assert log == [0, 1]


def test_a_scan_goes_through_every_master_to_its_end_and_without_one_it_is_an_error() -> None:
    effects, (keys, cursors) = drive(scan("k*"), {"a": [[b"7", [b"k1"]]], "b": [[b"0", [b"k2"]]]})
    assert (effects[0].node, keys, cursors) == ("*", [b"k1", b"k2"], {"a": 7})
    effects, found = drive(scan("k*", cursors), [[b"0", [b"k3"]]])
    assert (effects[0].node, effects[0].commands[0][1], found) == ("a", 7, ([b"k3"], {}))
    with pytest.raises(RedisConnectionError):
        drive(scan("k*"), {"a": [[b"0", []]], "b": RedisConnectionError("gone", repeats=1)})


def test_while_one_call_asks_again_whether_redis_answers_the_others_do_not() -> None:
    link = Link(clock=lambda: 10.0, until=5.0)
    assert isinstance(next(link.guard(send(("PING",)))), Send)
    with pytest.raises(RedisConnectionError, match="is asked again"):
        next(link.guard(send(("PING",))))
