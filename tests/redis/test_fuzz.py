"""Any message that LangChain can hold, stored and read back, or shown in a prompt."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    ToolMessage,
    message_to_dict,
)

from langchain_workingmem._redis.codec import body_of, draft_of, drafts, is_readable, read_rows
from langchain_workingmem._text.messages import recalled_block
from langchain_workingmem.errors import OptionError
from langchain_workingmem.models import RecallResult, StoredMessage
from langchain_workingmem.options import RecallOptions
from tests.helpers.examples import examples
from tests.helpers.threads import row_of

fuzz = examples(200)

HEAD = b'{"at":1700000000123456,"number":7,'

texts = st.text(max_size=20) | st.sampled_from(
    ["</message>", '"type":"ai"', "\ud800", "\0", "a\u2028b", '{"stored_at":1,']
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
extras = st.dictionaries(texts.filter(lambda key: key != "lc_source"), json_values, max_size=2)
blocks = (
    texts
    | st.builds(lambda text: {"type": "text", "text": text}, texts)
    | st.builds(lambda kind, more: {**more, "type": kind}, texts, extras)
)
calls = st.builds(
    lambda name, args, call: {"name": name, "args": args, "id": call, "type": "tool_call"}, texts, extras, texts
)
tokens = st.integers(0, 10**9)
usage = st.none() | st.builds(
    lambda one, other: {"input_tokens": one, "output_tokens": other, "total_tokens": one + other}, tokens, tokens
)
common: dict[str, Any] = {
    "content": texts | st.lists(blocks, max_size=3),
    "id": st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
    "name": st.none() | texts,
    "additional_kwargs": extras,
    "response_metadata": extras,
}
messages: st.SearchStrategy[BaseMessage] = st.one_of(
    st.builds(HumanMessage, **common),
    st.builds(AIMessage, **common, tool_calls=st.lists(calls, max_size=2), usage_metadata=usage),
    st.builds(
        ToolMessage, **common, tool_call_id=texts, artifact=json_values, status=st.sampled_from(["success", "error"])
    ),
    st.builds(FunctionMessage, **(common | {"name": texts})),
    st.builds(ChatMessage, **common, role=texts),
)


def stored(message: BaseMessage) -> bytes:
    return HEAD + body_of(message, "q")[0]


def read(value: bytes) -> BaseMessage:
    return StoredMessage.of(value, "t", 4096).message


@fuzz
@given(messages)
def test_any_message_reads_back_as_it_was_and_is_written_the_same_again(message: BaseMessage) -> None:
    value = stored(message)
    back = read(value)
    assert back == message
    assert type(back) is type(message)
    assert message_to_dict(back) == message_to_dict(message)
    assert stored(back) == value


@fuzz
@given(messages, st.dictionaries(st.sampled_from([*AIMessage.model_fields]), json_values | extras, max_size=2))
def test_what_nobody_has_checked_can_be_read_back_or_is_refused(message: BaseMessage, other: dict[str, Any]) -> None:
    vars(message).update(
        {name: value for name, value in other.items() if name in vars(message) and name not in {"type", "id"}}
    )
    try:
        value = stored(message)
    except OptionError:
        return
    again = read(value)
    assert stored(again) == value


@fuzz
@given(messages)
def test_any_message_is_prepared_for_recall_and_restored_to_the_byte(message: BaseMessage) -> None:
    (draft,) = drafts([message], RecallOptions(chunk_tokens=5), lambda: "new")
    "".join(draft.chunks).encode()  # what is embedded is valid
    assert draft_of(read(HEAD + draft.body), RecallOptions(chunk_tokens=5)) == draft


@fuzz
@given(messages, st.data())
def test_what_is_damaged_is_left_out_or_a_message(message: BaseMessage, data: st.DataObject) -> None:
    value = stored(message)
    start = data.draw(st.integers(0, len(value)))
    end = data.draw(st.integers(start, min(len(value), start + 20)))
    damaged = value[:start] + data.draw(st.binary(max_size=8)) + value[end:]
    rows = [*read_rows([(4096, 3, damaged)], "t"), *read_rows([(4096, 3, damaged)], "t", make=True)]
    assert all(isinstance(row.message, BaseMessage) for row in rows if is_readable(row))


@fuzz
@given(texts, st.lists(messages, max_size=3))
def test_any_messages_are_shown_without_a_tag_of_their_own(label: str, shown: list[BaseMessage]) -> None:
    rows = [row_of(one, label, at) for at, one in enumerate(shown)]
    block = recalled_block(RecallResult(rows=rows), None)
    if block is None:
        assert not shown
        return
    inner = ["conversation", *["message"] * (2 * len(shown)), "conversation"]
    assert re.findall(r"</?(\w+)", block) == ["recalled_messages", *inner, "recalled_messages"]
    block.encode()
