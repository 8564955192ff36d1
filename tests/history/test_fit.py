"""A limit of tokens: what leaves a history first, what never does, and how its beginning moves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem._text.messages import is_said, weight_of
from langchain_workingmem._text.sending import provider_valid
from langchain_workingmem.options import HistoryOptions
from langchain_workingmem.turn.assemble import fit, history_slice
from tests.helpers.conversations import accept, ai, any_message, conversations, order_kept, result, stored
from tests.helpers.examples import examples


def uptos_of(messages: Sequence[BaseMessage]) -> dict[str, int]:
    """Sum up what was said, as the server does."""
    said = [message for message in messages if is_said(message)]
    return dict(zip((message.id or "" for message in said), accumulate(weight_of([one]) for one in said), strict=True))


def shown(
    past: Sequence[BaseMessage], limit: int, present: Sequence[BaseMessage] = (), **options: object
) -> list[BaseMessage]:
    kept, omitted = fit(past, present, uptos_of(past), HistoryOptions(max_tokens=limit, **options))  # type: ignore[arg-type]
    assert omitted == len(past) - len(kept)
    return kept


def turn(at: int, *calls: str, size: int = 40) -> list[BaseMessage]:
    """A question, tool traffic, and an answer."""
    traffic = [one for call in calls for one in (ai("", call, id=f"c{call}"), result(call, f"r{call}"))]
    return [HumanMessage("q" * size, id=f"q{at}"), *traffic, AIMessage("a" * size, id=f"a{at}")]


def ids(messages: Sequence[BaseMessage]) -> list[str]:
    return [str(message.id) for message in messages]


def test_what_fits_stays_as_it_is() -> None:
    past = [*turn(0, "x"), *turn(1)]
    assert shown(past, weight_of(past)) == past


def test_tool_traffic_leaves_first_and_the_oldest_of_it_first() -> None:
    past = [*turn(0, "x"), *turn(1, "y", "z")]
    words = [message for message in past if is_said(message)]
    one = weight_of(past[1:3])
    left = {
        limit: ids(shown(past, limit))
        for limit in (weight_of(words), weight_of(words) + one, weight_of(words) + 2 * one)
    }
    assert list(left.values()) == [
        ["q0", "a0", "q1", "a1"],
        ["q0", "a0", "q1", "cz", "rz", "a1"],
        ["q0", "a0", "q1", "cy", "ry", "cz", "rz", "a1"],
    ]


@pytest.mark.parametrize("limit", [1, 50, 1000])
def test_the_question_and_the_answer_of_the_newest_turn_stay_whatever_they_take(limit: int) -> None:
    past = [*turn(0), *turn(1, "x", size=60_000)]
    assert ids(shown(past, limit)) == ["q1", "a1"]


def test_the_present_turn_stays_and_does_not_count() -> None:
    past = turn(0)
    present = [HumanMessage("x" * 4000, id="now"), ai("", "x", id="cx"), result("x", "rx")]
    assert shown(past, weight_of(past), present) == past


def test_a_stored_call_whose_result_is_given_now_stays_whatever_the_limit() -> None:
    call = ai("", "x", id="cx")
    assert ids(shown([*turn(0), HumanMessage("go", id="q1"), call], 1, [result("x", "rx")])) == ["q1", "cx"]


def test_the_beginning_stays_until_the_limit_is_reached_and_then_a_third_leaves() -> None:
    past = [message for at in range(200) for message in turn(at, size=200)]
    uptos, limit = uptos_of(past), 2_000
    begins = []
    for end in range(2, len(past) + 1, 2):
        kept, _ = fit(past[:end], [], uptos, HistoryOptions(max_tokens=limit))
        assert weight_of(kept) <= limit
        begins.append(end - len(kept))
    assert begins == sorted(begins)
    moves = sum(one != other for one, other in pairwise(begins))
    assert moves <= weight_of(past) / (limit / 3) + 1
    kept_at_moves = [weight_of(past[begin : 2 * at + 2]) for at, begin in enumerate(begins) if begin]
    assert min(kept_at_moves) > limit / 2


@given(conversations(), st.integers(1, 200))
@examples(150)
def test_any_limit_leaves_a_valid_history_with_the_newest_words(messages: list[BaseMessage], limit: int) -> None:
    found = shown(messages, limit)
    accept(found)
    assert order_kept(messages, found)
    questions = [at for at, message in enumerate(messages) if isinstance(message, HumanMessage)]
    newest = [message for message in messages[questions[-1] :] if is_said(message)] if questions else []
    assert all(message in found for message in newest)
    if any(not is_said(message) for message in found):  # traffic is shown only where all the words fit
        begin = (
            messages.index(next(message for message in found if is_said(message))) if any(map(is_said, found)) else 0
        )
        assert all(message in found for message in messages[begin:] if is_said(message))
        assert weight_of(found) <= limit


@given(st.lists(any_message, max_size=14).map(stored), st.lists(any_message, max_size=3), st.integers(1, 60))
@examples(100)
def test_any_history_and_any_turn_are_acceptable_under_a_limit(
    old: list[BaseMessage], new: list[BaseMessage], limit: int
) -> None:
    options = HistoryOptions(max_tokens=limit)
    past = history_slice(old, options, new)
    kept, omitted = fit(past, new, uptos_of(past), options)
    accept(provider_valid([*kept, *new]))
    assert omitted == len(past) - len(kept)
