# ruff: noqa: RUF001 - marks of Chinese and Japanese
"""Cutting long texts, where nothing is lost; and what texts, pictures, audio and files weigh."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage, ToolMessage

from langchain_workingmem._text.messages import block_length, weight_of
from langchain_workingmem._text.unicode import count_tokens, excerpt, length, spans

texts = st.text(st.sampled_from("ab .,;!?\n\té中。ァ한Яา\ud800🍒"), max_size=400)
TOKENS = {
    "": 0,
    "abcd": 1,
    "abcde": 2,
    "It’s “café” – ok… 🍒🍒": 5,  # as of English: 20 characters
    "我有一只狗，叫豆豆。": 10,
    "собака": 3,
    "my 狗": 2,
    "\ud800": 1,
}


@pytest.mark.parametrize("text", TOKENS)
def test_of_english_four_characters_are_a_token_and_of_other_scripts_one_or_two(text: str) -> None:
    assert count_tokens(text) == TOKENS[text]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (f"{'a' * 30}\n\n{'b' * 30}", ["a" * 30, "b" * 30]),
        (f"{'a' * 30}! {'b' * 30}", ["a" * 30 + "!", "b" * 30]),
        (f"{'中' * 7}。{'文' * 7}", ["中" * 7 + "。", "文" * 7]),
        ("a" * 100, ["a" * 40, "a" * 40, "a" * 20]),
    ],
)
def test_a_cut_falls_behind_a_seam_or_at_the_limit(text: str, parts: list[str]) -> None:
    assert [text[start:end] for start, end in spans(text, 10)] == parts


@given(texts, st.integers(1, 20))
def test_no_piece_is_longer_than_the_limit_and_only_blank_space_is_lost(text: str, limit: int) -> None:
    parts = [text[start:end] for start, end in spans(text, limit)]
    assert all(0 < count_tokens(part) <= limit for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


def test_an_excerpt_says_where_it_was_cut_and_keeps_words_whole() -> None:
    words = "one two three four five six seven eight nine ten " * 10
    assert excerpt(words, 13, 0, 0) == "one two three four five six seven eight [...]"
    assert excerpt(words, 13, 200, 200) == "[...] eight nine ten one two three four five [...]"
    assert excerpt(words, 13, 500, 500) == "[...] four five six seven eight nine ten"


def test_an_excerpt_finds_words_of_scripts_without_spaces() -> None:
    text = "今天天气很好。" * 60 + "我的猫叫豆豆。" + "我们去公园。" * 60
    assert "豆豆" in excerpt(text, 40, 0, len(text), ["豆豆"])
    assert "cat" in excerpt("dog " * 100 + "concat cat " + "dog " * 100, 10, 0, 811, ["cat"])


@given(st.text(max_size=300) | texts, st.integers(4, 50), st.integers(0, 300), st.integers(0, 300), st.text(max_size=3))
def test_an_excerpt_is_a_part_of_the_text_and_not_too_long(text: str, size: int, at: int, to: int, word: str) -> None:
    start, end = sorted((min(at, len(text)), min(to, len(text))))
    found = excerpt(text, size, start, end, [word])
    assert length(found) <= max(size * 4, 16)
    assert found.removeprefix("[...] ").removesuffix(" [...]").strip() in text


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
