"""A limit of tokens: what leaves a history first, what never does, and how many a message is estimated to have."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, FunctionMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from langchain_workingmem._text.messages import weight_of, words_digest
from langchain_workingmem._text.sending import provider_valid
from langchain_workingmem.options import HistoryOptions
from langchain_workingmem.turn.assemble import Turn, choose_shown, fit, without_excluded
from tests.helpers.conversations import accept, ai, any_message, conversations, order_kept, result, stored
from tests.helpers.examples import examples


def uptos_of(messages: Sequence[BaseMessage]) -> dict[str, int]:
    """Sum up what was said, as the server does."""
    said = [message for message in messages if words_digest(message)]
    return dict(zip((message.id or "" for message in said), accumulate(weight_of([one]) for one in said), strict=True))


def shown(
    past: Sequence[BaseMessage], limit: int, present: Sequence[BaseMessage] = (), **options: Any
) -> list[BaseMessage]:
    kept, omitted = fit(past, present, uptos_of(past), HistoryOptions(max_tokens=limit, **options))
    assert omitted == len(past) - len(kept)
    return kept


def turn(at: int, *calls: str, size: int = 40) -> list[BaseMessage]:
    """A question, tool traffic, and an answer."""
    traffic = [one for call in calls for one in (ai("", call, id=f"c{call}"), result(call, f"r{call}"))]
    return [HumanMessage("q" * size, id=f"q{at}"), *traffic, AIMessage("a" * size, id=f"a{at}")]


def ids(messages: Sequence[BaseMessage]) -> list[str]:
    return [str(message.id) for message in messages]


def test_of_two_limits_the_lower_counts_and_only_a_chosen_one_cuts_the_running_turn() -> None:
    history = [message for at in range(9) for message in turn(at, size=400)]
    turn_of_it = Turn("t", history=history, tokens=weight_of(history), limit=500)
    past, _, omitted = choose_shown(turn_of_it, HistoryOptions(), [])
    assert 0 < len(past) == len(history) - omitted < len(history)
    question, *traffic, _ = turn(0, "x", "y", "z", size=200_000)
    for options, left in ((HistoryOptions(), 0), (HistoryOptions(max_tokens=100), 4)):
        _, present, omitted = choose_shown(Turn("t"), options, [question, *traffic])
        assert (omitted, len(present)) == (left, 7 - left)


def test_a_covered_question_an_open_call_and_an_answer_of_the_list_stay() -> None:
    covered = Turn("t", covered={0}, seqs={"q0": 0})
    assert ids(choose_shown(covered, HistoryOptions(), turn(0)[:1])[1]) == ["q0"]
    assert ids(shown(turn(0, "x")[:2], 1, [result("x", "rx")])) == ["q0", "cx"]
    assert ids(without_excluded(turn(0), HistoryOptions(roles=["human"]), listed_ids={"a0"})) == ["q0", "a0"]


def test_tool_traffic_leaves_first_and_the_oldest_of_it_first() -> None:
    past = [*turn(0, "x"), *turn(1, "y", "z")]
    words = [message for message in past if words_digest(message)]
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


@given(conversations(), st.integers(1, 200))
@examples(150)
def test_any_limit_leaves_a_valid_history_with_the_newest_words(messages: list[BaseMessage], limit: int) -> None:
    found = shown(messages, limit)
    accept(found)
    assert order_kept(messages, found)
    questions = [at for at, message in enumerate(messages) if isinstance(message, HumanMessage)]
    newest = [message for message in messages[questions[-1] :] if words_digest(message)] if questions else []
    assert all(message in found for message in newest)
    if any(not words_digest(message) for message in found):  # traffic is shown only where all the words fit
        begin = (
            messages.index(next(message for message in found if words_digest(message)))
            if any(map(words_digest, found))
            else 0
        )
        assert all(message in found for message in messages[begin:] if words_digest(message))
        assert weight_of(found) <= limit


@given(st.lists(any_message, max_size=14).map(stored), st.lists(any_message, max_size=3), st.integers(1, 60))
@examples(100)
def test_any_history_and_any_turn_are_acceptable_under_a_limit(
    old: list[BaseMessage], new: list[BaseMessage], limit: int
) -> None:
    options = HistoryOptions(max_tokens=limit)
    past = without_excluded(old, options, new)
    kept, omitted = fit(past, new, uptos_of(past), options)
    accept(provider_valid([*kept, *new]))
    assert omitted == len(past) - len(kept)


ENGLISH = st.text(
    st.characters(max_codepoint=0x37F, exclude_categories=["Cs"]) | st.sampled_from("\u2019\u201c\u201d\u2013\u2026🍒")
)
KINDS = ("text", "tool_use")  # what media weigh: tests/text/test_media_tokens.py


@given(
    content=st.one_of(
        ENGLISH, st.lists(st.one_of(ENGLISH, st.fixed_dictionaries({"type": st.sampled_from(KINDS), "text": ENGLISH})))
    ),
    name=st.one_of(st.none(), ENGLISH),
    args=st.lists(st.dictionaries(ENGLISH, ENGLISH)),
)
def test_the_weight_of_english_is_what_langchain_estimates(
    content: Any, name: str | None, args: list[dict[str, Any]]
) -> None:
    calls = [{"name": "tool", "args": each, "id": f"call{at}"} for at, each in enumerate(args)]
    for message in (
        HumanMessage(content, name=name),
        AIMessage(content, name=name, tool_calls=calls),
        ToolMessage(content, name=name, tool_call_id="call0"),
        FunctionMessage(name=name or "f", content=content),
        ChatMessage(content=content, role="critic", name=name),
    ):
        assert weight_of([message, message]) == count_tokens_approximately([message, message])
