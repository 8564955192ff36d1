# ruff: noqa: RUF001 - words in Cyrillic letters, and marks of Chinese
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


@pytest.mark.parametrize(
    ("question", "author", "mine", "rest"),
    [
        ("Wie heißt Carolines Hund?", "Caroline", "Wie heißt mein Hund?", "Wie heißt Hund?"),
        ("Wo wohnt der Bruder von Caroline?", "Caroline", "Wo wohnt mein Bruder?", "Wo wohnt der Bruder von ?"),
        (
            "Comment s'appelle le chien d'Anna ?",
            "Anna",
            "Comment s'appelle mon chien ?",
            "Comment s'appelle le chien d' ?",
        ),
        ("¿Cómo se llama el perro de Ana?", "Ana", "¿Cómo se llama mi perro?", "¿Cómo se llama el perro de ?"),
        ("Come si chiama il cane di Anna?", "Anna", "Come si chiama mio cane?", "Come si chiama il cane di ?"),
        ("Como se chama o cachorro da Ana?", "Ana", "Como se chama meu cachorro?", "Como se chama o cachorro da ?"),
        ("Hoe heet Anna's hond?", "Anna", "Hoe heet mijn hond?", "Hoe heet hond?"),
        ("Jak ma na imię pies Karoliny?", "Karolina", "Jak ma na imię pies mój?", "Jak ma na imię pies ?"),
        ("Как зовут собаку Каролины?", "Каролина", "Как зовут собаку мой?", "Как зовут собаку ?"),
        ("Где работает Иван?", "Иван", "Где работает я?", "Где работает ?"),
        ("小红的狗叫什么名字？", "小红", "我的狗叫什么名字？", "的狗叫什么名字？"),
        ("Anna的狗叫什么？", "Anna", "我的狗叫什么？", "的狗叫什么？"),
        ("田中さんの犬の名前は？", "田中", "私の犬の名前は？", "の犬の名前は？"),
        ("민수 씨의 개 이름이 뭐야?", "민수", "내 개 이름이 뭐야?", "의 개 이름이 뭐야?"),
        ("민수가 어디에 살아?", "민수", "내가 어디에 살아?", "가 어디에 살아?"),
        ("สุนัขของมานะชื่ออะไร", "มานะ", "สุนัขของฉันชื่ออะไร", "สุนัขของ ชื่ออะไร"),
    ],
    ids=lambda value: value[:12],
)
def test_an_author_is_named_in_many_languages(question: str, author: str, mine: str, rest: str) -> None:
    tags = {author_tag(author), author_tag("Zoé"), ""}
    assert (meant := named(question, tags)) == {author_tag(author)}
    assert in_first_person(question, meant) == mine
    assert " ".join(without(question, meant).split()) == rest


@pytest.mark.parametrize(
    ("question", "authors", "expected"),
    [
        ("What is Mel's dog called?", ["Melanie", "Caroline"], ["Melanie"]),
        ("Did Melanie move?", ["Mel", "Bob"], ["Mel"]),
        ("What did Mel say?", ["Melanie", "Melinda"], []),
        ("What did Mel say to Melinda?", ["Melanie", "Melinda"], ["Melanie", "Melinda"]),
        ("Did Jo move?", ["Joanna"], []),  # too short
        ("Who sells the caramel?", ["Caramela"], []),  # no name
        ("Will it rain in May?", ["William", "Maya"], []),  # plain words, and a month
        ("When did Bob go to Melbourne?", ["Mel", "Bob"], ["Bob"]),
        ("Who is Anna?", ["Ann"], []),
        ("小是什么？", ["小红"], []),
        ("我的小狗呢？", ["小"], []),
    ],
)
def test_a_part_of_a_name_names_the_only_author_that_it_fits(
    question: str, authors: list[str], expected: list[str]
) -> None:
    assert named(question, {author_tag(one) for one in authors}) == {author_tag(one) for one in expected}


def test_a_part_of_a_name_becomes_the_first_person() -> None:
    tags = {author_tag("Melanie")}
    assert in_first_person("How is Mel's dog, and Mel?", tags) == "How is my dog, and I?"
    assert without("How is Mel?", tags).split() == ["How", "is", "?"]
