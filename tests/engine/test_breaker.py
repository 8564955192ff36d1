"""The circuit breaker, on a clock of the test's own, and how little is repeated for those who can do without memory."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from langchain_workingmem._engine.plan import COOL_DOWN, FEW, PAUSES, Breaker, Plan, Send, Sleep, send, with_few_repeats
from langchain_workingmem.errors import RedisConnectionError, RedisReplyError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock)


def test_after_a_failure_one_call_is_let_through_every_few_seconds(breaker: Breaker, clock: Clock) -> None:
    assert breaker.admits()
    assert breaker.admits()
    breaker.fail()
    assert not breaker.admits()
    clock.now += COOL_DOWN
    assert [breaker.admits() for _ in range(3)] == [True, False, False]
    assert breaker.until is not None
    breaker.fail()
    clock.now += COOL_DOWN - 0.1
    assert not breaker.admits()


def test_an_answer_to_anybody_closes_it(breaker: Breaker) -> None:
    breaker.fail()
    breaker.close()
    assert breaker.until is None
    assert breaker.admits()


# ------------------------------------------------------------------ repeats


def asked(error: Exception) -> list[Any]:
    """Drive a plan whose every `Send` fails, and return what it did until it gave up."""
    plan = with_few_repeats(send(("PING",)))
    effects: list[Any] = [next(plan)]
    with suppress(type(error)):
        while True:
            if isinstance(effects[-1], Send):
                effects.append(plan.throw(error))
            else:
                effects.append(plan.send(None))
    return effects


def test_a_refused_connection_is_tried_again_within_a_second() -> None:
    ping = Send((("PING",),))
    effects = asked(RedisConnectionError("refused", repeats=len(PAUSES)))
    assert effects == [ping, Sleep(PAUSES[0]), ping, Sleep(PAUSES[1]), ping]
    assert sum(PAUSES[:FEW]) < 1


def test_a_timeout_is_not_repeated() -> None:
    assert asked(RedisConnectionError("silent", repeats=1, timed_out=True)) == [Send((("PING",),))]


def test_a_refusal_and_a_result_pass_through() -> None:
    def plan() -> Plan[str]:
        try:
            yield Sleep(1)
        except RedisReplyError as error:
            (reply,) = yield from Send((("GET", "k"),))
            return f"{error.code} {reply}"
        return "never"

    run = with_few_repeats(plan())
    next(run)
    run.throw(RedisReplyError("OOM full"))
    with pytest.raises(StopIteration) as done:
        run.send(["v"])
    assert done.value.value == "OOM v"
    refused = with_few_repeats(send(("PING",)))
    next(refused)
    with pytest.raises(RedisReplyError, match="OOM"):
        refused.throw(RedisReplyError("OOM full"))
