"""What a model may be shown: for any list of messages, the window is one that every provider accepts."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, FunctionMessage, HumanMessage, ToolMessage

from langchain_workingmem import Memory
from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem._text.sending import headed_groups, provider_valid
from langchain_workingmem.options import HistoryOptions
from langchain_workingmem.turn.assemble import Audience, Turn, assemble, without_excluded
from tests.helpers.conversations import (
    accept,
    ai,
    any_messages,
    calls_of,
    conversations,
    order_kept,
    result,
    stored,
    tool_names,
)
from tests.helpers.examples import examples

PLANS = Memory("redis://localhost:1")._plans  # never connects


# ---------------------------------------------------------------------- properties


@given(any_messages)
@examples(200)
def test_any_list_becomes_acceptable(messages: list[BaseMessage]) -> None:
    accept(provider_valid(messages))


@given(any_messages)
@examples(100)
def test_nothing_is_invented_and_order_is_kept(messages: list[BaseMessage]) -> None:
    found = provider_valid(messages)
    given_objects = {id(message) for message in messages}
    copies = [message for message in found if id(message) not in given_objects]
    texts = [str(message.text) for message in messages]
    assert all(not calls_of(copy) and str(copy.text) in texts and not is_storable(copy) for copy in copies)
    assert len({id(message) for message in found}) == len(found)
    assert order_kept(messages, [message for message in found if message not in copies])


@given(any_messages)
def test_what_is_acceptable_once_stays_as_it_is(messages: list[BaseMessage]) -> None:
    once = provider_valid(messages)
    assert provider_valid(once) == once


@given(conversations())
@examples(100)
def test_a_valid_conversation_comes_back_unchanged(messages: list[BaseMessage]) -> None:
    accept(messages)
    assert provider_valid(messages) == messages
    assert without_excluded(messages, HistoryOptions()) == messages


@given(conversations(), st.data())
@examples(150)
def test_any_cut_and_any_deletion_becomes_acceptable(messages: list[BaseMessage], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(messages)))
    stop = data.draw(st.integers(start, len(messages)))
    deleted = data.draw(st.sets(st.integers(0, max(0, len(messages) - 1))))
    left = [message for at, message in enumerate(messages) if start <= at < stop and at not in deleted]
    found = provider_valid(left)
    accept(found)
    words = [message for message in left if isinstance(message, HumanMessage)]
    assert [message for message in found if isinstance(message, HumanMessage)] == words


@given(conversations(), st.randoms(use_true_random=False))
def test_results_that_arrived_in_another_order_are_all_kept(messages: list[BaseMessage], random: Any) -> None:
    unique = len({call for message in messages for call in calls_of(message)})
    if unique < sum(len(calls_of(message)) for message in messages):
        return  # with call ids used again, the order of results means something
    results = [message for message in messages if isinstance(message, ToolMessage)]
    others = [message for message in messages if not isinstance(message, ToolMessage)]
    random.shuffle(results)
    assert provider_valid([*others, *results]) == messages


options = st.builds(
    HistoryOptions,
    exclude_tools=st.booleans() | st.lists(tool_names, max_size=2),
    roles=st.none() | st.lists(st.sampled_from(["human", "ai", "tool"]), min_size=1, max_size=3, unique=True),
)


@given(any_messages.map(stored), options)
@examples(150)
def test_any_window_of_any_history_is_acceptable(messages: list[BaseMessage], chosen: HistoryOptions) -> None:
    found = without_excluded(messages, chosen)
    accept(found)
    assert order_kept(messages, found)
    if chosen.roles is not None:
        assert {message.type for message in found} <= set(chosen.roles)


@given(conversations(), options)
@examples(100)
def test_what_an_option_changes_is_never_saved(messages: list[BaseMessage], chosen: HistoryOptions) -> None:
    given_objects = {id(message) for message in messages}
    for message in without_excluded(messages, chosen):
        assert id(message) in given_objects or not is_storable(message)


@given(any_messages.map(stored), any_messages, options)
@examples(150)
def test_history_and_new_messages_together_are_acceptable(
    old: list[BaseMessage], new: list[BaseMessage], chosen: HistoryOptions
) -> None:
    accept(provider_valid([*without_excluded(old, chosen, new), *new]))


# ---------------------------------------------------------------------- single cases


@given(any_messages, any_messages)
def test_what_a_model_is_sent_is_acceptable_and_begins_with_no_answer_of_memory(
    past: list[BaseMessage], new: list[BaseMessage]
) -> None:
    for place, message in enumerate(past):
        message.id = message.id or f"stored {place}"
    for place, message in enumerate(new):  # no result of a tool has the id of a question
        message.id = f"new {place}" if isinstance(message, ToolMessage) or not message.id else message.id
    stored = list({message.id: message for message in past}.values())
    turn = Turn("t", history=stored, seqs={message.id or "": seq for seq, message in enumerate(past)})
    shown = assemble(PLANS.core.state, PLANS.history, turn, new, Audience(read_only=True, for_model=True)).messages
    accept(shown)
    list_of = (message for message in new if message.type != "system")
    given = {message.id for message in takewhile(lambda one: one.type != "human", list_of)}  # it begins so itself
    has_own_ids = len({message.id for message in (*stored, *new)}) == len(stored) + len(new)
    if shown and not isinstance(shown[0], HumanMessage) and has_own_ids:
        _, first = headed_groups(shown)[0]
        assert any(message.id in given for message in first)


def test_a_prompt_that_would_begin_with_a_call_begins_with_the_user() -> None:
    turn = Turn("t", history=[ai("", "a", id="call")], seqs={"call": 0, "r": 1})
    new: list[BaseMessage] = [result("a", "r"), HumanMessage("go on", id="q")]
    shown = assemble(PLANS.core.state, PLANS.history, turn, new, Audience(read_only=True, for_model=True)).messages
    assert [message.id for message in shown] == ["q"]


def test_what_lies_before_the_window_is_counted_and_no_answer_of_it_is_quoted() -> None:
    past: list[BaseMessage] = [HumanMessage("old", id="q"), AIMessage("late", id="a")]
    turn = Turn("t", kind="state", seqs={"q": 0, "a": 1}, first_seq=1)
    found = assemble(PLANS.core.state, PLANS.history, turn, [*past, HumanMessage("new", id="n")])
    assert ([one.id for one in found.messages], found.omitted) == (["a", "n"], 1)
    turn = Turn("t", history=past[1:], seqs={"a": 1}, first_seq=1)
    shown = assemble(PLANS.core.state, PLANS.history, turn, [HumanMessage("new")], Audience(for_model=True)).messages
    assert [one.text for one in shown] == ["new"]


@pytest.mark.parametrize("key", ["tool_calls", "function_call"])
def test_what_a_provider_said_in_its_own_form_goes_with_the_calls(key: str) -> None:
    # ChatOpenAI sends additional_kwargs["tool_calls"] when a message has no tool_calls
    function = {"name": "f", "arguments": "{}"}
    raw = {"tool_calls": [{"id": "a", "type": "function", "function": function}], "function_call": function}[key]
    (found,) = provider_valid([AIMessage("I look it up", additional_kwargs={key: raw, "refusal": None})])
    assert found.content == "I look it up"
    assert key not in found.additional_kwargs
    assert "refusal" in found.additional_kwargs


def test_a_call_of_the_former_kind_stays_with_its_result() -> None:
    call = AIMessage("", additional_kwargs={"function_call": {"name": "f", "arguments": "{}"}})
    answer = FunctionMessage(name="f", content="42")
    assert provider_valid([HumanMessage("x"), call, answer]) == [HumanMessage("x"), call, answer]
    assert provider_valid([HumanMessage("x"), call]) == [HumanMessage("x")]
    assert provider_valid([answer, HumanMessage("x")]) == [HumanMessage("x")]
    assert without_excluded([call, answer], HistoryOptions(exclude_tools=True)) == []
