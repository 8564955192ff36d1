"""Base64 is taken out of messages that are stored, and put back byte for byte."""

from __future__ import annotations

from base64 import b64decode, b64encode, urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_workingmem._documents.media import encoded, put_back, unread_in

from langchain_workingmem._documents.messages import encode_body
from langchain_workingmem._redis.codec import decode_message
from tests.helpers.media import data_of, forms, picture

HEAD = b'{"stored_at":1,"vectors":"//0","said":"q0123456789ab/3/40","state":"t",'
FORMS = forms()


def round_trip(message: Any) -> tuple[bytes, Any]:
    """Return what is stored of a message beside its media, and the message that is read."""
    body, media = encode_body(message)
    found = decode_message(str(message.id).encode(), b"0", HEAD + body, "t").message
    assert len([*unread_in(found)]) == len(media)
    put_back(found, {digest: encoded(raw) for digest, raw in media})
    return body, found


@pytest.mark.parametrize("form", FORMS)
def test_media_are_put_back_into_each_form(form: str) -> None:
    body, found = round_trip(FORMS[form])
    assert found == FORMS[form]
    assert len(body) < 1_500
    assert not [*unread_in(found)]


def test_the_caller_s_message_stays_as_it_is() -> None:
    message = HumanMessage([picture(1)], id="1")
    before = message.model_copy(deep=True)
    encode_body(message)
    assert message == before


long = st.binary(min_size=750, max_size=800)


@given(
    long.map(lambda raw: b64encode(raw).decode()),
    st.sampled_from(
        [
            lambda text: text,
            lambda text: text[:-1],  # no padding, or too little data
            lambda text: text + "=",
            lambda text: text[:400] + "\n" + text[400:],
            lambda text: f" {text}",
            lambda text: urlsafe_b64encode(b64decode(text)).decode(),
            lambda text: f"data:image/png;base64,{text}",
            lambda text: f"data:image/png,{text}",
            lambda text: f"data:image/png;base64,{text}é",
            lambda text: f"{text[:-3]}B==",  # bits behind the last byte
            lambda text: f"{text[:-2]}B=",
            lambda text: f'{text[:900]}","media":["{text[:32]} content/0/1"]}}',
        ]
    ),
    st.sampled_from(["base64", "data", "url", ',"media":["', "\0", "7"]),
)
def test_any_text_comes_back_as_it_was(text: str, change: Any, key: str) -> None:
    changed = change(text)
    message = HumanMessage([{"type": "image", key: changed, "mime_type": "image/png"}], id="1")
    assert round_trip(message)[1] == message
    artifact = ToolMessage("x", id="1", tool_call_id="c", artifact={"a": [1, {key: changed}, None]})
    assert round_trip(artifact)[1] == artifact


def test_text_is_no_reference() -> None:
    reference = f"{'0' * 32} content/0/0"
    for text in (reference, f'","media":["{reference}"]', f',"media":["{reference}"]}}'):
        block = {"type": "image", "base64": text, ',"media":[': text}
        contents: list[Any] = [text, [{"type": "text", "text": text}], [block]]
        for content in contents:
            message = HumanMessage(content, id="1", additional_kwargs={"media": [text]})
            body, media = encode_body(message)
            assert not media
            found = decode_message(b"1", b"0", HEAD + body, "t").message
            assert found == message
            assert not [*unread_in(found)]


def test_what_is_not_json_is_left_out_and_media_stay() -> None:
    message = ToolMessage([picture(1)], id="1", tool_call_id="c", artifact={"plot": data_of(2), "tool": object()})
    body, found = round_trip(message)
    assert found.content == message.content
    assert found.artifact is None
    assert data_of(2).encode() not in body
