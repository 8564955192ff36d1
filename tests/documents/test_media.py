"""Long strings of media are taken out of messages that are stored, and put back byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem._redis.codec import LONG, body_of, put_media
from langchain_workingmem.models import StoredMessage
from tests.helpers.media import forms

FORMS = forms()


def round_trip(message: Any) -> tuple[bytes, int, BaseMessage]:
    """Return what is stored of a message beside its media, how many these are, and the message that is read."""
    body, media = body_of(message, "q")
    row = StoredMessage.of(b'{"at":1,"number":0,' + body, "t", 0)
    assert len(row.record.get("media", ())) == len(media)
    if media:
        put_media(row.record, [one.encode("utf-8", "surrogatepass") for one in media])
    return body, len(media), row.message


@pytest.mark.parametrize("form", FORMS)
def test_each_form_comes_back(form: str) -> None:
    assert round_trip(FORMS[form])[2] == FORMS[form]


@given(st.text(min_size=1), st.sampled_from(["base64", "data", "url", ',"media":["', "\0", "7"]))
def test_any_text_comes_back_as_it_was(text: str, key: str) -> None:
    long = (text * (LONG // len(text) + 1))[:LONG]
    for value, count in ((long, 1), (long[:-1], 0)):
        message = HumanMessage([{"type": "image", key: value, "mime_type": "image/png"}], id="1")
        body, found, back = round_trip(message)
        assert (found, back) == (count, message)
        assert (len(body) < LONG) is bool(count)
        artifact = ToolMessage("x", id="1", tool_call_id="c", artifact={"a": [1, {key: value}, None]})
        assert round_trip(artifact)[1:] == (count, artifact)
