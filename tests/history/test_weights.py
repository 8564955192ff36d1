"""How many tokens a message is estimated to have, which its header holds."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, ChatMessage, FunctionMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from langchain_workingmem._text.messages import weight_of

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


def test_what_is_said_in_chinese_weighs_a_token_a_character() -> None:
    said, call = "我有一只狗" * 20, [{"name": "note", "args": {"text": "狗" * 100}, "id": "1"}]
    blocks: Any = [{"type": "text", "text": said}, "狗" * 40]
    assert weight_of([HumanMessage(said)]) == weight_of([HumanMessage("x" * 400)])
    assert 140 <= weight_of([HumanMessage(blocks)]) <= 145
    assert 100 <= weight_of([AIMessage("", tool_calls=call)]) <= 130
