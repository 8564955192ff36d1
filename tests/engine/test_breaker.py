"""The circuit breaker, on a clock of the test's own, and how little is repeated for those who can do without memory."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from langchain_workingmem._engine.plan import send
from langchain_workingmem._engine.run import COOL_DOWN, Link
from langchain_workingmem.errors import RedisConnectionError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def link(clock: Clock) -> Link:
    return Link(clock=clock)


def ping(link: Link, answer: Any) -> int:
    """Let an agent ask Redis, which answers or fails; return how often it was asked."""
    plan = link.guard(send(("PING",)))
    try:
        next(plan)
    except RedisConnectionError:
        return 0
    with suppress(StopIteration, RedisConnectionError):
        plan.throw(answer) if isinstance(answer, Exception) else plan.send(answer)
    return 1


def test_after_a_failure_one_call_is_let_through_every_few_seconds(link: Link, clock: Clock) -> None:
    refused = RedisConnectionError("refused")
    assert [ping(link, refused), ping(link, refused)] == [1, 0]
    clock.now += COOL_DOWN
    assert [ping(link, ["PONG"]) for _ in range(3)] == [1, 0, 0]
    clock.now += COOL_DOWN - 0.1
    assert ping(link, refused) == 0
    clock.now += 0.1
    assert [ping(link, refused), ping(link, refused)] == [1, 0]


def test_an_answer_to_anybody_closes_it(link: Link) -> None:
    ping(link, RedisConnectionError("refused"))
    link.answered()
    assert [ping(link, ["PONG"]) for _ in range(2)] == [1, 1]
