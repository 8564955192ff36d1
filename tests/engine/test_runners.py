"""Plans driven by hand, and the runners around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from langchain_workingmem._engine.effects import (
    Emit,
    Masters,
    Pause,
    Plan,
    Pull,
    Scan,
    Send,
    as_eval,
    attempt,
    scan,
    send,
)
from langchain_workingmem._engine.embedder import Embedder
from langchain_workingmem._engine.runners import AsyncRunner, Runner
from langchain_workingmem._redis import scripts
from langchain_workingmem._redis.access import sweep, sweep_now
from langchain_workingmem._redis.indexes import search_with_repair
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem._redis.scripts import DELETE, Script
from langchain_workingmem._redis.state import MemoryState
from langchain_workingmem.errors import OptionError, OutcomeUnknownError, RedisConnectionError, RedisReplyError
from tests.helpers.plans import Plans


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


def test_send_is_one_round_trip() -> None:
    effects, value = drive(send(("PING",), ("ECHO", "x")), [b"PONG", b"x"])
    assert effects == [Send((("PING",), ("ECHO", "x")))]
    assert value == [b"PONG", b"x"]


def test_send_raises_the_first_refusal() -> None:
    with pytest.raises(RedisReplyError, match="OOM command not allowed"):
        drive(send(("SET", "a", 1), ("GET", "a")), [RedisReplyError("OOM command not allowed"), b"1"])


def test_attempt_returns_refusals_among_the_replies() -> None:
    refusal = RedisReplyError("ERR no")
    _, value = drive(attempt(("SET", "a", 1), ("GET", "a")), [refusal, b"1"])
    assert value == [refusal, b"1"]


def test_only_the_forgotten_scripts_are_sent_again_with_their_source() -> None:
    call = DELETE.call(["t", "o", "m", "v"], "", "thread")
    forgotten = RedisReplyError("NOSCRIPT No matching script")
    effects, value = drive(attempt(("INCR", "n"), call), [1, forgotten], [5])
    assert value == [1, 5]
    (again,) = effects[1].commands
    assert again[0] == "EVAL"
    assert "drop_vectors" in str(again[1])
    assert again[2:] == call[2:]


def test_what_failed_is_sent_again_after_pauses_that_grow() -> None:
    lost = RedisConnectionError("lost", repeats=3)
    ping = Send((("PING",),))
    effects, value = drive(send(("PING",)), lost, None, lost, None, lost, None, [b"PONG"])
    assert effects == [ping, Pause(0.05), ping, Pause(0.25), ping, Pause(1.0), ping]
    assert value == [b"PONG"]


@pytest.mark.parametrize("repeats", [0, 1, 3])
def test_what_fails_is_sent_again_as_often_as_the_error_allows(repeats: int) -> None:
    lost = RedisConnectionError("lost", repeats=repeats)
    with pytest.raises(RedisConnectionError, match="lost"):
        drive(send(("PING",)), *[lost, None] * repeats, lost)


def test_what_must_not_happen_twice_is_marked_also_with_its_source() -> None:
    call = DELETE.call(["t", "o", "m", "v"], "", "thread")
    effects, _ = drive(send(call, at_most_once=True), [RedisReplyError("NOSCRIPT No matching script")], [5])
    assert [effect.at_most_once for effect in effects] == [True, True]


def test_what_stands_behind_a_forgotten_script_is_sent_again_where_the_order_counts() -> None:
    call = DELETE.call(["t", "o", "m", "v"], "", "thread")
    forgotten = RedisReplyError("NOSCRIPT No matching script")
    effects, value = drive(attempt(("INCR", "n"), call, ("GET", "x"), in_order=True), [1, forgotten, None], [5, b"x"])
    assert value == [1, 5, b"x"]
    again = effects[1]
    assert isinstance(again, Send)
    assert again.in_order
    assert [command[0] for command in again.commands] == ["EVAL", "GET"]


BUSY = RedisReplyError("BUSY Redis is busy running a script")


def test_what_a_busy_server_refused_is_sent_again_and_nothing_else() -> None:
    effects, value = drive(attempt(("INCR", "n"), ("GET", "x")), [1, BUSY], None, [BUSY], None, [b"x"])
    assert value == [1, b"x"]
    get = Send([("GET", "x")])
    assert effects[1:] == [Pause(0.05), get, Pause(0.25), get]


def test_what_stands_behind_what_a_busy_server_refused_is_sent_again_where_the_order_counts() -> None:
    effects, value = drive(
        attempt(("INCR", "n"), ("GET", "x"), in_order=True, at_most_once=True), [BUSY, b"old"], None, [1, b"x"]
    )
    assert value == [1, b"x"]
    assert effects[2] == Send([("INCR", "n"), ("GET", "x")], at_most_once=True, in_order=True)


def test_a_server_that_stays_busy_is_an_error() -> None:
    with pytest.raises(RedisReplyError, match="BUSY"):
        drive(send(("GET", "x")), *([BUSY], None) * 3, [BUSY])


def test_a_step_through_the_keys_is_repeated_like_a_command() -> None:
    first = Send((("SCAN", 0, "MATCH", "wm:*", "COUNT", 1000),), master="one:1")
    second, lost = replace(first, master="two:2"), RedisConnectionError("lost", repeats=3)
    effects, (keys, step) = drive(scan(Scan("wm:*")), ("one:1", "two:2"), lost, None, [[b"0", [b"a"]]])
    assert (effects, keys) == ([Masters(), first, Pause(0.05), first], [b"a"])
    assert drive(scan(step), [[b"0", [b"b"]]]) == ([second], ([b"b"], None))


def test_an_outcome_that_is_unknown_is_not_repeated_by_itself() -> None:
    with pytest.raises(OutcomeUnknownError):
        drive(send(("DEL", "x"), at_most_once=True), OutcomeUnknownError("lost", repeats=3))


def test_a_plan_that_nobody_runs_is_noticed(plans: Plans) -> None:
    state = MemoryState(keys=Keys())
    kept = sweep(state)
    drive(sweep(state))
    sweep(state).close()
    assert plans.dropped() == []
    sweep(state)
    state.indexes.setup()
    assert plans.dropped() == ["sweep", "Indexes.setup"]
    drive(kept)


# ---------------------------------------------------------------------- slices


def test_threads_are_swept_until_nothing_is_left_and_share_the_size_of_a_step() -> None:
    state = MemoryState(keys=Keys())
    effects, dropped = drive(sweep(state, "a", "b"), [[1, 250], [0, 3]], [[1, 500]], [[0, 7]])
    assert dropped == 760
    sizes = [[command[-1] for command in effect.commands] for effect in effects if isinstance(effect, Send)]
    assert sizes == [[250, 250], [500], [500]]
    assert drive(sweep(state)) == ([], 0)


def test_a_sweep_that_fails_says_what_holds_and_how_to_go_on() -> None:
    with pytest.raises(RedisConnectionError) as caught:
        drive(sweep_now(MemoryState(keys=Keys()), "t", "it is deleted", "do it again"), RedisConnectionError("gone"))
    assert caught.value.__notes__ == ["it is deleted, but some of its vectors are left: do it again"]


# ---------------------------------------------------------------------- indexes that are gone

GONE = RedisReplyError("wm:threads: no such index")
SEARCH, HEAL = Send((("FT.SEARCH",),)), Send((("FT.CREATE",),))


def looked(*, create: bool) -> Plan[list[Any]]:
    return search_with_repair(lambda: send(("FT.SEARCH",)), lambda: send(("FT.CREATE",)), create=create)


@pytest.mark.parametrize("create", [True, False])
def test_a_search_heals_what_is_gone_and_is_repeated_once(create: bool) -> None:
    assert drive(looked(create=create), [1]) == ([SEARCH], [1])
    assert drive(looked(create=create), [GONE], [b"OK"], [1]) == ([SEARCH, HEAL, SEARCH], [1])
    with pytest.raises(RedisReplyError, match="OOM"):
        drive(looked(create=create), [RedisReplyError("OOM")])
    with pytest.raises(RedisReplyError, match="OOM"):
        drive(looked(create=create), [GONE], [b"OK"], [RedisReplyError("OOM")])


def test_an_index_that_stays_gone_is_said_with_the_remedy_where_we_must_not_make_it() -> None:
    with pytest.raises(OptionError, match=r"no such index: create_index=False, so run setup\(\)"):
        drive(looked(create=False), [GONE], [b"OK"], [GONE])
    with pytest.raises(RedisReplyError, match=r"no such index$"):
        drive(looked(create=True), [GONE], [b"OK"], [GONE])


NAMES = sorted(name for name, value in vars(scripts).items() if isinstance(value, Script))


@pytest.mark.parametrize("name", NAMES)
def test_every_script_says_what_it_takes_and_returns(name: str) -> None:
    script: Script = getattr(scripts, name)
    source = str(as_eval(script.call([]))[1])
    assert source.count("-- ARGV") == 1
    assert "-- Reply" in source.partition("-- ARGV")[2]


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
