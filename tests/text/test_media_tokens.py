"""What pictures, audio and files weigh: one number for each kind, in the form of each provider."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_workingmem._text.messages import block_length, weight_of


def media_tokens(block: dict[str, Any]) -> int:
    return block_length(block) // 4


DATA = "A" * 4_000
FORMS: dict[str, dict[str, Any]] = {
    "langchain": {"type": "image", "base64": DATA, "mime_type": "image/png"},
    "chat completions": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
    "bedrock": {"image": {"format": "png", "source": {"bytes": b"x"}}},
    "google": {"type": "media", "mime_type": "image/png", "data": DATA},
}


@pytest.mark.parametrize("form", FORMS)
def test_a_picture_weighs_the_same_in_each_form(form: str) -> None:
    assert media_tokens(FORMS[form]) == 1_000


def test_each_kind_has_a_weight() -> None:
    assert media_tokens({"type": "audio", "base64": DATA, "mime_type": "audio/wav"}) == 1_000
    assert media_tokens({"type": "video", "url": "https://example.com/a.mp4"}) == 9_000
    assert media_tokens({"type": "document", "mime_type": 7, "source": [1, None]}) == 4_000


def test_text_in_a_file_weighs_its_text() -> None:
    words = "Dear diary, today it rained. " * 40
    source = {"type": "text", "media_type": "text/plain", "data": words}
    assert media_tokens({"type": "document", "source": source}) == len(words) // 4


def test_a_message_weighs_its_media_and_its_words() -> None:
    picture, words = FORMS["anthropic"], "what is this? " * 20
    one = media_tokens(picture)
    texts = weight_of([HumanMessage(words)])
    said = HumanMessage([{"type": "text", "text": words}, picture, picture])
    assert one * 2 + texts <= weight_of([said]) <= one * 2 + texts + 20
    result = ToolMessage([picture], tool_call_id="c")
    assert one <= weight_of([result]) <= one + 20
    artifact = ToolMessage("seen", tool_call_id="c", artifact=picture)  # no model is shown it
    assert weight_of([artifact]) == weight_of([ToolMessage("seen", tool_call_id="c")])
    assert weight_of([AIMessage([{"type": "text", "text": words}])]) < 100
