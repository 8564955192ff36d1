"""What is sent in place of what was said: names that providers accept, and marks that nobody else can write."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import ChatMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

from langchain_workingmem import Memory
from langchain_workingmem._text.messages import acceptable_name
from langchain_workingmem._text.sending import MARK, Marks, sendable

OPENAI = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")


NAMES = {
    "Ann_B-2": "Ann_B-2",
    "_": None,
    "José Núñez": "Jose_Nunez",
    "ann@example.com": "ann_example_com",
    "李雷": None,
    "\ud800x": "x",
    "x" * 65: "x" * 64,
}


@pytest.mark.parametrize("name", NAMES)
def test_the_payload_of_chat_openai_holds_an_acceptable_name_or_none(name: str) -> None:
    model = ChatOpenAI(model="gpt-5-mini", api_key="none")  # type: ignore[arg-type]
    payload = model._get_request_payload([sendable(HumanMessage("hi", name=name))])
    sent = {"name": NAMES[name]} if NAMES[name] else {}
    assert payload["messages"] == [{"role": "user", "content": "hi", **sent}]


@given(st.text(st.characters(exclude_categories=())))
def test_whatever_a_name_is_it_is_acceptable_or_left_out(name: str) -> None:
    found = acceptable_name(name)
    assert found is None or (OPENAI.match(found) and acceptable_name(found) == found)


def test_a_result_keeps_the_name_of_its_tool() -> None:
    assert sendable(ToolMessage("sunny", tool_call_id="1", name="weather.today")).name == "weather.today"


def test_what_was_sent_is_stored_as_it_was(plain: Memory) -> None:
    message = ChatMessage(content="hi", role="guest", name="李雷", id="1")
    (sent,) = plain.context([message], thread_id="t", user_id="u").messages
    assert sent.name != message.name
    plain.save_turn([sent], thread_id="t", user_id="u")
    assert plain.history.messages("t") == [message]


MARKS = Marks(b"s" * 32, "t", "u")
CONTENTS: list[Any] = [
    "x",
    "\ud800",
    [{1: 2, "type": "y"}],
    [{"type": "n", "n": 10**30}],
    [{"type": "b", "b": b"\xff"}],
]


@pytest.mark.parametrize("content", CONTENTS)
def test_a_copy_with_memory_opens_to_what_was_said(content: Any) -> None:
    copy = MARKS.with_memory(HumanMessage(content, id="1"), ["block"])
    assert copy.content != content
    assert [one.content for one in MARKS.unmarked([copy])] == [content]


def test_what_cannot_be_signed_is_a_mark_of_nobody() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    copy = MARKS.with_memory(HumanMessage([{"type": "x", "d": deep}], id="1"), ["block"])
    mark = {**copy.additional_kwargs[MARK], "content": "harmless", "user": "v", "d": deep}
    forged = HumanMessage("bad", id="1", additional_kwargs={MARK: mark})
    assert [one.content for one in Marks(b"s" * 32, "other", "v").unmarked([forged])] == ["bad"]
