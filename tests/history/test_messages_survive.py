"""Whatever is in a message comes back."""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from pydantic import field_serializer

from langchain_workingmem import Memory, OptionError
from tests.helpers.examples import examples
from tests.helpers.threads import said, texts

EXTRAS = ("additional_kwargs", "response_metadata")


def through(memory: Memory, *messages: BaseMessage) -> list[BaseMessage]:
    memory.history.append(messages, thread_id="t", user_id="u")
    return memory.history.messages("t")


def exactly(message: BaseMessage) -> tuple[type[BaseMessage], dict[str, Any]]:
    return type(message), message.model_dump()


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_run = count()


@examples(15, server=True)
@given(text=st.text(), extra=st.dictionaries(st.text(max_size=5), _json, max_size=3), artifact=_json, args=_json)
def test_any_json_in_a_message_comes_back(
    memory: Memory, text: str, extra: dict[str, Any], artifact: Any, args: Any
) -> None:
    thread = f"t{next(_run)}"
    extra.pop("lc_source", None)
    mine: list[BaseMessage] = [
        HumanMessage(text, id="1", additional_kwargs=extra, response_metadata=extra),
        AIMessage(text, id="2", tool_calls=[{"name": text, "args": {"x": args}, "id": text}]),
        ToolMessage(text, id="3", tool_call_id=text, artifact=artifact),
    ]
    before = [exactly(message) for message in mine]
    memory.history.append(mine, thread_id=thread, user_id="u")
    assert [exactly(message) for message in memory.history.messages(thread)] == before


def test_a_streamed_answer_is_stored_as_a_whole_message(plain: Memory) -> None:
    parts = [
        AIMessageChunk(content="Let me", id="run-1", response_metadata={"model_name": "m"}),
        AIMessageChunk(content=" see", tool_call_chunks=[tool_call_chunk(name="f", args='{"x":', id="c1", index=0)]),
        AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(args=' [1, "é"]}', index=0)]),
        AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(name="g", args='{"bad', id="c2", index=1)]),
        AIMessageChunk(
            content="", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}, chunk_position="last"
        ),
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole += part
    (back,) = through(plain, whole)
    assert type(back) is AIMessage
    assert (back.content, back.id) == ("Let me see", "run-1")
    assert back.tool_calls[0] == {"name": "f", "args": {"x": [1, "é"]}, "id": "c1", "type": "tool_call"}
    assert [call["id"] for call in [*back.tool_calls, *back.invalid_tool_calls]] == ["c1", "c2"]
    assert back.usage_metadata == {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    assert back.response_metadata == {"model_name": "m"}


def test_a_message_of_an_unknown_kind_never_makes_a_thread_unreadable(plain: Memory) -> None:
    through(plain, *said("a"))
    with suppress(OptionError):
        plain.history.append([BaseMessage(content="x", id="odd", type="odd")], thread_id="t", user_id="u")
    assert "a" in texts(plain.history.messages("t"))


@pytest.mark.parametrize(
    ("place", "given", "kept"),
    [
        *(("artifact", bad, None) for bad in (object(), {"a": {1, 2}}, np.arange(3))),
        *((place, {"good": [1], "bad": {"deep": [b"x"]}}, {"good": [1]}) for place in EXTRAS),
        *((place, {"good": [1], (1, 2): "x"}, {"good": [1]}) for place in EXTRAS),
    ],
)
def test_what_is_not_json_beside_the_content_is_left_out_and_said(
    plain: Memory, caplog: pytest.LogCaptureFixture, place: str, given: Any, kept: Any
) -> None:
    with caplog.at_level(logging.WARNING, "langchain_workingmem"):
        (back,) = through(plain, ToolMessage("42", id="m", tool_call_id="c", **{place: given}))
    assert back == ToolMessage("42", id="m", tool_call_id="c", **{place: kept})
    assert f"message m: what is not JSON in its {place} was not stored" in caplog.text


def test_content_that_is_not_json_is_refused_and_nothing_is_stored(plain: Memory) -> None:
    with pytest.raises(OptionError, match=r"message 'm' cannot be stored .* use JSON values"):
        through(plain, HumanMessage("first"), HumanMessage([{"type": "image", "data": object()}], id="m"))
    assert plain.threads.get("t") is None


class Masked(HumanMessage):
    @field_serializer("content")
    def masked(self, _: object) -> str:
        return "****"


def test_a_class_of_messages_may_say_what_is_stored(plain: Memory) -> None:
    masked, other = through(plain, Masked(content="4111 1111", id="1"), HumanMessage("hi", id="2", mood="glad"))
    assert (masked.text, other.model_extra) == ("****", {"mood": "glad"})
