"""Names in requests: what providers accept is sent, what was said is stored."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, ChatMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

from langchain_workingmem import Memory
from langchain_workingmem._text.messages import acceptable_name
from langchain_workingmem._text.sending import sendable

OPENAI = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("Ann_B-2", "Ann_B-2"),
        ("_", None),
        ("José Núñez", "Jose_Nunez"),
        ("ann@example.com", "ann_example_com"),
        ("李雷", None),
        ("\ud800x", "x"),
        ("x" * 65, "x" * 64),
    ],
)
def test_a_name_becomes_acceptable(name: str, sent: str | None) -> None:
    assert acceptable_name(name) == sent


@given(st.text(st.characters(exclude_categories=())))
def test_whatever_a_name_is_it_is_acceptable_or_left_out(name: str) -> None:
    found = acceptable_name(name)
    assert found is None or (OPENAI.match(found) and acceptable_name(found) == found)


@pytest.mark.parametrize(("name", "sent"), [("Ann Smith", {"name": "Ann_Smith"}), ("李雷", {})])
def test_the_payload_of_chat_openai_holds_an_acceptable_name(name: str, sent: dict[str, str]) -> None:
    model = ChatOpenAI(model="gpt-5-mini", api_key="none")  # type: ignore[arg-type]
    payload = model._get_request_payload([sendable(HumanMessage("hi", name=name))])
    assert payload["messages"] == [{"role": "user", "content": "hi", **sent}]


def test_a_result_keeps_the_name_of_its_tool() -> None:
    assert sendable(ToolMessage("sunny", tool_call_id="1", name="weather.today")).name == "weather.today"


@pytest.mark.parametrize(
    "message",
    [HumanMessage("hi", name="Ann Smith", id="1"), ChatMessage(content="hi", role="guest", name="李雷", id="1")],
)
def test_what_was_sent_is_stored_as_it_was(plain: Memory, message: BaseMessage) -> None:
    (sent,) = plain.context([message], thread_id="t", user_id="u").messages
    assert sent.name != message.name
    plain.save_turn([sent], thread_id="t", user_id="u")
    assert plain.history.messages("t") == [message]
