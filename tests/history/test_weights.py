"""How many tokens a message is estimated to have, which its header holds."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, FunctionMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from langchain_workingmem import Memory
from langchain_workingmem._redis.keys import Facts
from langchain_workingmem._text.messages import weight_of

TURN: Any = {"thread_id": "t", "user_id": "u"}
CALL = {"name": "weather", "args": {"city": "Lisbon" * 30}, "id": "call1"}
ENGLISH = st.text(
    st.characters(max_codepoint=0x37F, exclude_categories=["Cs"]) | st.sampled_from("\u2019\u201c\u201d\u2013\u2026🍒")
)
KINDS = ("text", "tool_use")  # what media weigh: tests/text/test_media_tokens.py


def ask() -> BaseMessage:
    return AIMessage("", id="ask", tool_calls=[CALL])


def result(text: str = "sunny") -> BaseMessage:
    return ToolMessage(text, id="result", tool_call_id="call1", name="weather")


def turn() -> list[BaseMessage]:
    return [HumanMessage("how is it?", id="q"), ask(), result(), AIMessage("it is sunny", id="a")]


def facts_of(raw: redis.Redis, prefix: str) -> dict[str, Facts]:
    members: Any = raw.zrange(f"{prefix}:order:{{t}}", 0, -1)
    return {one.id: one for one in (Facts.read(member.decode()) for member in members)}


@given(
    content=st.one_of(
        ENGLISH,
        st.lists(st.one_of(ENGLISH, st.fixed_dictionaries({"type": st.sampled_from(KINDS), "text": ENGLISH}))),
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


def test_what_is_said_in_chinese_weighs_a_token_a_character() -> None:
    said, call = "我有一只狗" * 20, [{"name": "note", "args": {"text": "狗" * 100}, "id": "1"}]
    blocks: Any = [{"type": "text", "text": said}, "狗" * 40]
    assert weight_of([HumanMessage(said)]) == weight_of([HumanMessage("x" * 400)])
    assert 140 <= weight_of([HumanMessage(blocks)]) <= 145
    assert 100 <= weight_of([AIMessage("", tool_calls=call)]) <= 130


@pytest.mark.parametrize("save", ["append", "save_turn"])
def test_tool_traffic_has_a_weight_and_is_not_counted_as_said(
    plain: Memory, raw: redis.Redis, prefix: str, save: str
) -> None:
    (plain.history.append if save == "append" else plain.save_turn)(turn(), **TURN)
    found = facts_of(raw, prefix)
    question, call, answered, answer = (weight_of([message]) for message in turn())
    assert [found[id].tokens for id in ("ask", "result")] == [call, answered]
    assert call > 40  # with its arguments
    assert not found["ask"].words + found["result"].words
    assert [(one.tokens, one.upto) for one in found.values() if one.words] == [
        (question, question),
        (answer, question + answer),
    ]


def test_edited_tool_traffic_is_weighed_again_and_nothing_else_changes(
    plain: Memory, raw: redis.Redis, prefix: str
) -> None:
    plain.save_turn(turn(), **TURN)
    before = facts_of(raw, prefix)
    longer = result("sunny, later rain " * 20)
    plain.history.update([longer], thread_id="t")
    after = facts_of(raw, prefix)
    assert after.pop("result").tokens == weight_of([longer])
    assert after == {id: one for id, one in before.items() if id != "result"}
    plain.history.update([result()], thread_id="t")
    assert facts_of(raw, prefix) == before
