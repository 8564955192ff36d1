"""Questions that name who said it."""

from __future__ import annotations

import pytest

from langchain_workingmem import RecallOptions
from langchain_workingmem._redis.keys import author_tag
from langchain_workingmem.recall.question import Asked, Query

OPTIONS = RecallOptions(search="hybrid")
ANN, BEN, BOT = author_tag("Ann"), author_tag("Ben Stiller"), ""


def divided(question: str, authors: set[str]) -> Asked:
    return Asked.of(OPTIONS, Query.of(OPTIONS, question, user_id="u"), authors)


@pytest.mark.parametrize(
    ("question", "expected", "left"),
    [
        ("What is Ann's dog called?", {ANN}, "What is   dog called?"),
        ("Who is Ben Stiller?", {BEN}, "Who is  ?"),
        ("Did Ann see Ben?", {ANN, BEN}, "Did   see  ?"),
        ("Where is Stiller?", set(), "Where is Stiller?"),
        ("Who is Anna, and what is banned?", set(), "Who is Anna, and what is banned?"),
    ],
)
def test_a_whole_or_a_first_name_names_an_author_and_is_left_out(question: str, expected: set[str], left: str) -> None:
    asked = divided(question, {ANN, BEN, BOT})
    assert (asked.authors, asked.text) == (frozenset(expected), left)
