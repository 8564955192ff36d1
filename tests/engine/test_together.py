"""Plans side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from langchain_workingmem._engine.effects import Embed, Pause, Plan, Send, send
from langchain_workingmem.errors import EmbeddingError
from langchain_workingmem.items import together


def double(number: int, *, trips: int) -> Plan[int]:
    for _ in range(trips):
        (number,) = yield from send(("DOUBLE", number))
    return number


def embedded(text: str, *, query: bool = False) -> Plan[float]:
    vectors = yield from Embed([text], query)
    (stored,) = yield from send(("SET", float(vectors[0][0])))
    return float(stored)


def drive(plan: Plan[Any]) -> tuple[Any, list[Any]]:
    """Answer the effects of a plan, and return its result and the effects."""
    effects: list[Any] = []
    reply: Any = None
    while True:
        try:
            effect = plan.send(reply)
        except StopIteration as done:
            return done.value, effects
        effects.append(effect)
        match effect:
            case Send(commands):
                reply = [command[1] * 2 if command[0] == "DOUBLE" else command[1] for command in commands]
            case Embed(texts):
                reply = np.array([[len(text)] for text in texts], dtype=np.float32)
            case _:
                reply = None


def test_what_is_sent_at_once_is_one_round_trip() -> None:
    result, effects = drive(together([double(1, trips=1), double(10, trips=3), double(100, trips=2)]))
    assert result == [2, 80, 400]
    assert [len(effect.commands) for effect in effects] == [3, 2, 1]


def test_plans_that_send_nothing_have_their_results_too() -> None:
    assert drive(together([double(1, trips=0), double(2, trips=1)])) == ([1, 4], [Send([("DOUBLE", 2)])])
    assert drive(together([])) == ([], [])


def test_texts_are_embedded_in_one_call_before_anything_is_sent() -> None:
    result, effects = drive(together([double(1, trips=1), embedded("four"), embedded("sixsix")]))
    assert result == [2, 4, 6]
    assert effects[0] == Embed(["four", "sixsix"])
    assert [len(effect.commands) for effect in effects[1:]] == [3]


def test_questions_and_documents_are_embedded_apart() -> None:
    result, effects = drive(together([embedded("four", query=True), embedded("sixsix")]))
    assert result == [4, 6]
    assert effects[:2] == [Embed(["sixsix"]), Embed(["four"], query=True)]


def test_other_effects_are_performed_one_by_one() -> None:
    def pausing(seconds: float) -> Plan[float]:
        yield Pause(seconds)
        return seconds

    assert drive(together([pausing(1), pausing(2)])) == ([1, 2], [Pause(1), Pause(2)])


def test_an_error_ends_all_of_them_before_anything_is_sent() -> None:
    closed: list[str] = []

    def noticing() -> Plan[None]:
        try:
            yield from send(("SET", 1))
        finally:
            closed.append("yes")

    plan = together([noticing(), embedded("four")])
    assert isinstance(next(plan), Embed)
    with pytest.raises(EmbeddingError):
        plan.throw(EmbeddingError("no"))
    assert closed == ["yes"]
