"""Questions that name who said it."""

from __future__ import annotations

import pytest

from langchain_workingmem._redis.keys import author_tag
from langchain_workingmem.recall.authors import in_first_person, named, without

ANN, BEN, BOT = author_tag("Ann"), author_tag("Ben Stiller"), ""


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is Ann's dog called?", {ANN}),
        ("what is ANN\u2019s dog called", {ANN}),
        ("Who is Ben Stiller?", {BEN}),
        ("Where did Ben go?", {BEN}),
        ("Did Ann see Ben?", {ANN, BEN}),
        ("Where is Stiller?", set()),
        ("Who is Anna, and what is banned?", set()),
        ("", set()),
    ],
)
def test_a_whole_or_a_first_name_names_an_author(question: str, expected: set[str]) -> None:
    assert named(question, {ANN, BEN, BOT}) == expected


def test_all_authors_may_be_named() -> None:
    assert named("Did Ann see Ben?", {ANN, BEN}) == {ANN, BEN}
    assert named("Did Ann come?", {ANN}) == {ANN}
    assert named("Did Ann come?", set()) == set()


@pytest.mark.parametrize("name", ["José María", "李雷", "O'Neil", "x~y", "a:b/c", "🍒", " Ann ", "A" * 500])
def test_any_name_is_an_author(name: str) -> None:
    tag = author_tag(name)
    assert not set(tag) & set(':/"{}')
    assert len(tag) <= 40 * 12
    if name.strip("🍒"):
        assert named(f"What did {name[:40]} say?", {tag, BOT}) == {tag}


@pytest.mark.parametrize(
    ("question", "mine", "rest"),
    [
        ("What is Ann's dog called?", "What is my dog called?", "What is dog called?"),
        ("Where did ann go?", "Where did I go?", "Where did go?"),
        ("Ann\u2019s and Anna's", "my and Anna's", "and Anna's"),
        ("What did Ben Stiller, or Ben, do?", "What did I, or I, do?", "What did , or , do?"),
    ],
)
def test_a_name_becomes_the_first_person_or_is_left_out(question: str, mine: str, rest: str) -> None:
    authors = named(question, {ANN, BEN, BOT})
    assert in_first_person(question, authors) == mine
    assert " ".join(without(question, authors).split()) == rest


def test_without_authors_a_question_stays_as_it_is() -> None:
    assert in_first_person("What did Ann say?", set()) == without("What did Ann say?", set()) == "What did Ann say?"
