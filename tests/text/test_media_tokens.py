"""What pictures, audio and files weigh: one number for each kind, in the form of each provider."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage

from langchain_workingmem._text.messages import block_length, weight_of

DATA = "A" * 4_000
WORDS = "Dear diary, today it rained. " * 40
FORMS: dict[str, tuple[dict[str, Any], int]] = {
    "langchain": ({"type": "image", "base64": DATA, "mime_type": "image/png"}, 1_000),
    "chat completions": ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}, 1_000),
    "anthropic": ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}, 1_000),
    "bedrock": ({"image": {"format": "png", "source": {"bytes": b"x"}}}, 1_000),
    "google": ({"type": "media", "mime_type": "image/png", "data": DATA}, 1_000),
    "audio": ({"type": "audio", "base64": DATA, "mime_type": "audio/wav"}, 1_000),
    "video": ({"type": "video", "url": "https://example.com/a.mp4"}, 9_000),
    "an odd file": ({"type": "document", "mime_type": 7, "source": [1, None]}, 4_000),
    "text in a file": ({"type": "document", "source": {"type": "text", "data": WORDS}}, len(WORDS) // 4),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_kind_has_one_weight_in_each_form_and_beside_words(form: str) -> None:
    block, tokens = FORMS[form]
    assert block_length(block) // 4 == tokens
    said = weight_of([HumanMessage([{"type": "text", "text": WORDS}, block, block])])
    assert 2 * tokens <= said - weight_of([HumanMessage(WORDS)]) <= 2 * tokens + 20
    assert tokens <= weight_of([ToolMessage([block], tool_call_id="c")]) <= tokens + 20


def test_an_artifact_weighs_nothing_as_no_model_is_shown_it() -> None:
    artifact = ToolMessage("seen", tool_call_id="c", artifact=FORMS["langchain"][0])
    assert weight_of([artifact]) == weight_of([ToolMessage("seen", tool_call_id="c")])
