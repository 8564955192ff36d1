"""Names in requests: what providers accept is sent, what was said is stored."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, FunctionMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

from langchain_workingmem import Memory
from langchain_workingmem._text.messages import acceptable_name
from langchain_workingmem._text.sending import sendable

OPENAI = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("ann", "ann"),
        ("Ann_B-2", "Ann_B-2"),
        ("_", None),
        ("Ann Smith", "Ann_Smith"),
        ("José Núñez", "Jose_Nunez"),
        ("Jose\u0301", "Jose"),
        ("ann@example.com", "ann_example_com"),
        ("ﬁnn", "finn"),
        ("Łukasz", "ukasz"),
        ("李雷", None),
        ("🙂", None),
        (" ", None),
        ("", None),
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


def payload(message: BaseMessage) -> dict[str, object]:
    model = ChatOpenAI(model="gpt-5-mini", api_key="none")  # type: ignore[arg-type]
    (sent,) = model._get_request_payload([sendable(message)])["messages"]
    return dict(sent)


def test_the_payload_of_chat_openai_holds_an_acceptable_name() -> None:
    assert payload(HumanMessage("hi", name="Ann Smith")) == {"role": "user", "content": "hi", "name": "Ann_Smith"}
    assert payload(HumanMessage("hi", name="李雷")) == {"role": "user", "content": "hi"}
    assert payload(AIMessage("hi", name="Núñez"))["name"] == "Nunez"


def test_what_is_acceptable_is_sent_as_it_is() -> None:
    message = HumanMessage("hi", name="ann")
    assert sendable(message) is message


@pytest.mark.parametrize(
    "message",
    [
        ToolMessage("sunny", tool_call_id="1", name="weather.today"),
        FunctionMessage(content="sunny", name="weather.today"),
    ],
)
def test_a_result_keeps_the_name_of_its_tool(message: BaseMessage) -> None:
    assert sendable(message).name == "weather.today"


@pytest.mark.parametrize(
    "message",
    [HumanMessage("hi", name="Ann Smith", id="1"), ChatMessage(content="hi", role="guest", name="李雷", id="1")],
)
def test_what_was_sent_is_stored_as_it_was(plain: Memory, message: BaseMessage) -> None:
    (sent,) = plain.context([message], thread_id="t", user_id="u").messages
    assert sent.name != message.name
    plain.save_turn([sent], thread_id="t", user_id="u")
    assert plain.history.messages("t") == [message]
