"""Cutting long texts: nothing is lost, nothing is longer than the limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem.text.chunks import CHARACTERS_PER_TOKEN, count_tokens, split

texts = st.text(st.sampled_from("ab .,;!?\n\té中🍒"), max_size=400)


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("a" * 400, 100)])
def test_four_characters_are_a_token(text: str, tokens: int) -> None:
    assert count_tokens(text) == tokens


@pytest.mark.parametrize("text", ["", " ", "\n\t\u3000"])
def test_a_blank_text_has_no_pieces(text: str) -> None:
    assert split(text, 10) == []


def test_a_short_text_is_one_piece() -> None:
    assert split("  hello world ", 10) == ["hello world"]


def test_a_text_of_exactly_the_limit_is_one_piece() -> None:
    assert split("a" * 40, 10) == ["a" * 40]


@pytest.mark.parametrize("seam", ["\n\n", "\n", ". ", "? ", "! ", "; ", ", ", " "])
def test_a_cut_falls_behind_the_seam(seam: str) -> None:
    first = "a" * 30
    assert split(f"{first}{seam}{'b' * 30}", 10) == [(first + seam).strip(), "b" * 30]


def test_the_better_seam_wins_over_the_later_one() -> None:
    assert split("one two three four five\n\nsix seven eight nine ten", 8) == [
        "one two three four five",
        "six seven eight nine ten",
    ]


def test_a_text_without_spaces_is_cut_at_the_limit() -> None:
    assert split("中" * 100, 10) == ["中" * 40, "中" * 40, "中" * 20]


@given(texts, st.integers(1, 20))
def test_no_piece_is_longer_than_the_limit(text: str, limit: int) -> None:
    assert all(0 < len(piece) <= limit * CHARACTERS_PER_TOKEN for piece in split(text, limit))


@given(texts, st.integers(1, 20))
def test_nothing_but_blank_space_is_lost(text: str, limit: int) -> None:
    assert "".join("".join(split(text, limit)).split()) == "".join(text.split())


@given(texts, st.integers(1, 20))
def test_no_piece_is_blank_or_begins_or_ends_with_a_blank(text: str, limit: int) -> None:
    for piece in split(text, limit):
        assert piece
        assert piece == piece.strip()
