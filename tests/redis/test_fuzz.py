"""Any message that LangChain can hold, stored and read back, or shown in a prompt; 200 each, 4,000 with `make nightly`."""

from __future__ import annotations

import copy
import json
import pickle
import re
import warnings
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
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
from pydantic import ValidationError

from langchain_workingmem import WorkingMemError
from langchain_workingmem._documents.messages import encode_body, read_message
from langchain_workingmem._redis.codec import decode_message, draft_stored, drafts
from langchain_workingmem._text.rendering import recalled_block
from langchain_workingmem.models import RecallResult, StoredMessage
from langchain_workingmem.options import RecallOptions
from tests.helpers.examples import examples

fuzz = examples(200)

AT = datetime(2026, 5, 17, 9, 30, tzinfo=UTC)
HEAD = b'{"stored_at":1700000000123456,"vectors":"ab12/3/1","said":"q0123456789ab/3/40!","state":"t",'

texts = st.text(max_size=20) | st.sampled_from(
    ["</message>", '"type":"ai"', "\ud800", "\0", "a\u2028b", '{"stored_at":1,']
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
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
        ToolMessage,
        **common,
        tool_call_id=texts,
        artifact=json_values,
        status=st.sampled_from(["success", "error"]),
    ),
    st.builds(FunctionMessage, **(common | {"name": texts})),
    st.builds(ChatMessage, **common, role=texts),
)


def stored(message: BaseMessage) -> bytes:
    return HEAD + encode_body(message)[0]


def read(message: BaseMessage, value: bytes) -> BaseMessage:
    return decode_message(str(message.id).encode(), b"7", value, "t").message


@fuzz
@given(messages)
def test_any_message_reads_back_as_it_was_and_is_written_the_same_again(message: BaseMessage) -> None:
    value = stored(message)
    back = read(message, value)
    assert back == message
    assert type(back) is type(message)
    assert stored(back) == value


usual = st.builds(
    lambda kind, **given: kind(**given),
    st.sampled_from([HumanMessage, AIMessage]),
    content=texts,
    id=common["id"],
    name=st.none() | texts,
)


@fuzz
@given(
    usual | messages,
    st.dictionaries(st.sampled_from([*AIMessage.model_fields, "more"]), json_values | extras, max_size=2),
)
def test_a_message_is_written_as_pydantic_and_json_do(message: BaseMessage, other: dict[str, Any]) -> None:
    vars(message).update({name: value for name, value in other.items() if name in vars(message) and name != "type"})
    if "more" in other:
        message.more = other["more"]  # type: ignore[attr-defined]
    with warnings.catch_warnings(action="ignore"):  # of pydantic, about fields of another type
        try:
            record = message_to_dict(message)
        except UnicodeEncodeError:  # in the name of a field
            return
        try:
            wanted = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:
            wanted = json.dumps(record, separators=(",", ":")).encode()
        assert b"{" + encode_body(message)[0] == wanted


def by_pydantic(kind: type[BaseMessage], data: bytes) -> BaseMessage:
    validator, made = kind.__pydantic_validator__, kind.__new__(kind)
    try:
        validator.validate_json(data, self_instance=made)
    except ValidationError:
        validator.validate_python(json.loads(data), self_instance=made)
    return made


def parts(message: BaseMessage) -> tuple[Any, ...]:
    given, extra, private = message.__pydantic_fields_set__, message.__pydantic_extra__, message.__pydantic_private__
    return (
        type(message),
        repr(vars(message)),
        given,
        extra,
        private,
        repr(message.model_dump()),
    )


@fuzz
@given(
    messages,
    st.dictionaries(st.sampled_from([*AIMessage.model_fields, "tool_call_chunks", "more"]), json_values, max_size=3),
)
def test_a_message_is_read_as_pydantic_makes_it(message: BaseMessage, other: dict[str, Any]) -> None:
    record = json.loads(b"{" + encode_body(message)[0])["data"] | other
    data = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
    try:
        wanted = by_pydantic(type(message), data)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        with pytest.raises(type(error)):
            read_message(message.type, data)
        return
    back = read_message(message.type, data)
    assert parts(back) == parts(wanted)
    assert back == wanted
    for again in (pickle.loads(pickle.dumps(back)), copy.copy(back), copy.deepcopy(back), back.model_copy()):
        assert parts(again) == parts(wanted)


@fuzz
@given(messages)
def test_any_message_is_prepared_for_recall_and_restored_to_the_byte(message: BaseMessage) -> None:
    (draft,) = drafts([message], RecallOptions(chunk_tokens=5), lambda: "new")
    "".join(draft.chunks).encode()  # what is embedded is valid
    again = draft_stored(read(message, HEAD + draft.body), HEAD + draft.body, RecallOptions(chunk_tokens=5))
    assert again == draft


@fuzz
@given(messages, st.data())
def test_what_is_damaged_is_an_error_of_ours_or_a_message(message: BaseMessage, data: st.DataObject) -> None:
    value = stored(message)
    start = data.draw(st.integers(0, len(value)))
    end = data.draw(st.integers(start, min(len(value), start + 20)))
    damaged = value[:start] + data.draw(st.binary(max_size=8)) + value[end:]
    with suppress(WorkingMemError):
        assert isinstance(read(message, damaged), BaseMessage)


@fuzz
@given(texts, st.lists(messages, max_size=3))
def test_any_messages_are_shown_without_a_tag_of_their_own(label: str, shown: list[BaseMessage]) -> None:
    rows = [StoredMessage(message=one, thread_id=label, seq=at, stored_at=AT) for at, one in enumerate(shown)]
    block = recalled_block(RecallResult(rows=rows), None)
    if block is None:
        assert not shown
        return
    inner = ["conversation", *["message"] * (2 * len(shown)), "conversation"]
    assert re.findall(r"</?(\w+)", block) == ["recalled_messages", *inner, "recalled_messages"]
    block.encode()
