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
        ("what is ANN\u2019s dog called", {ANN}, "what is   dog called"),
        ("Who is Ben Stiller?", {BEN}, "Who is  ?"),
        ("Where did Ben go?", {BEN}, "Where did   go?"),
        ("Did Ann see Ben?", {ANN, BEN}, "Did   see  ?"),
        ("Where is Stiller?", set(), "Where is Stiller?"),
        ("Who is Anna, and what is banned?", set(), "Who is Anna, and what is banned?"),
        ("Ann", {ANN}, "Ann"),
        ("", set(), ""),
    ],
)
def test_a_whole_or_a_first_name_names_an_author_and_is_left_out(question: str, expected: set[str], left: str) -> None:
    asked = divided(question, {ANN, BEN, BOT})
    assert (asked.authors, asked.text) == (frozenset(expected), left)


def test_among_more_than_two_authors_the_question_is_embedded_as_it_was_asked() -> None:
    asked = divided("Did Ann come?", {ANN, BEN, author_tag("Eve")})
    assert (asked.authors, asked.words, asked.text) == (frozenset({ANN}), ["did", "come"], "Did Ann come?")


@pytest.mark.parametrize("name", ["José María", "李雷", "O'Neil", "x~y", "a:b/c", " Ann ", "A" * 500])
def test_any_name_is_an_author(name: str) -> None:
    tag = author_tag(name)
    assert not set(tag) & set(':/"{}')
    assert len(tag) <= 40 * 12
    if len(name) < 40:
        assert divided(f"What did {name} say?", {tag}).authors == {tag}
