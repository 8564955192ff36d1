"""What a single call may say about memory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from langchain_workingmem import HistoryOptions, OptionError, RecallOptions
from langchain_workingmem.faces.per_call import PerCall

HISTORY, RECALL = HistoryOptions(last_messages=5), RecallOptions(top_k=3, message_range=(1, 2))


def told(given: Any) -> PerCall:
    return PerCall.of({"configurable": {"memory": given}})


@pytest.mark.parametrize("config", [None, {}, {"configurable": {}}, {"configurable": {"memory": None}}])
def test_a_call_that_says_nothing_restricts_nothing(config: Any) -> None:
    assert PerCall.of(config) == told({}) == PerCall()


def test_all_that_can_be_said() -> None:
    call = told({"read_only": True, "persist": False, "recall": False, "last_messages": 5})
    assert call == PerCall(read_only=True, persist=False, recall=False, last_messages=5)


def test_what_json_holds_is_understood() -> None:
    call = told(
        {"recall": {"message_range": [1, 0], "since": "2025-01-01T00:00:00+00:00", "roles": ["user"], "top_k": None}}
    )
    assert call.recall == {"message_range": (1, 0), "since": datetime(2025, 1, 1, tzinfo=UTC), "roles": ("human",)}


@pytest.mark.parametrize(("call", "saves"), [({}, True), ({"persist": False}, False), ({"read_only": True}, False)])
def test_read_only_saves_nothing(call: Any, saves: bool) -> None:
    assert told(call).saves is saves


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("yes", "is of type str: use a dict with some of read_only, persist, recall, last_messages"),
        ({"readonly": True}, "unknown keys.*readonly.*read_only, persist, recall, last_messages"),
        ({1: True}, "unknown keys"),
        ({"read_only": 1}, "read_only.*True or False"),
        ({"persist": None}, "persist.*True or False"),
        ({"recall": True}, "recall.*use False, or a dict"),
        ({"recall": 0}, "recall.*use False, or a dict"),
        ({"recall": {"user_id": "bob"}}, "recall.*unknown keys.*user_id.*top_k"),
        ({"recall": {"top_k": 0}}, "top_k"),
        ({"recall": {"top_k": "3"}}, "top_k"),
        ({"recall": {"max_tokens": True}}, "max_tokens"),
        ({"recall": {"message_range": [1]}}, "message_range"),
        ({"recall": {"threshold": 2}}, "threshold"),
        ({"recall": {"metadata": "kind"}}, "metadata"),
        ({"recall": {"since": "yesterday"}}, "since.*ISO 8601"),
        ({"recall": {"until": 7}}, "until.*ISO 8601"),
        ({"recall": {"roles": ["boss"]}}, "roles"),
        ({"recall": {"scope": "everybody"}}, "scope"),
        ({"last_messages": -1}, "last_messages"),
        ({"last_messages": 2.5}, "last_messages"),
        ({"last_messages": True}, "last_messages"),
    ],
)
def test_what_is_wrong_is_refused(given: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        told(given)


@pytest.mark.parametrize(
    ("call", "options"),
    [
        ({"last_messages": 6}, RECALL),
        ({"recall": {"top_k": 4}}, RECALL),
        ({"recall": {"message_range": 2}}, RECALL),
        ({"recall": {"message_range": [0, 3]}}, RECALL),
        ({"recall": {"max_tokens": 101}}, RecallOptions(max_tokens=100)),
        ({"recall": {"threshold": 0.4}}, RecallOptions(threshold=0.5)),
        ({"recall": {"scope": "user"}}, RecallOptions(scope="thread")),
    ],
)
def test_a_call_cannot_ask_for_more_than_the_options_give(call: Any, options: RecallOptions) -> None:
    with pytest.raises(OptionError, match="a call may only"):
        told(call).within(HISTORY, options)


@pytest.mark.parametrize(
    "call",
    [
        {"read_only": False, "persist": True, "recall": None, "last_messages": 5},
        {"last_messages": 0, "recall": {"top_k": 3, "message_range": 1, "threshold": 0.9, "scope": "thread"}},
        {"recall": {"scope": "user"}},
    ],
)
def test_a_call_may_ask_for_less(call: Any) -> None:
    assert told(call).within(HISTORY, RECALL) == told(call)


def test_options_that_bound_nothing_allow_every_number() -> None:
    call = told({"last_messages": 999, "recall": {"threshold": 0.1}})
    assert call.within(HistoryOptions(last_messages=None), RECALL) == call


def test_a_budget_lets_no_more_messages_in() -> None:
    assert told({"recall": {"max_tokens": 9}}).within(HISTORY, RECALL).recall == {"max_tokens": 9}


def test_where_recall_is_off_the_plan_says_so() -> None:
    call = told({"recall": {"top_k": 99}})
    assert call.within(HISTORY, None) == call
