"""The contexts of two turns, and recall with two settings, side by side."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.studio.comparing import by_part, compare
from langchain_workingmem.studio.inspecting import Item
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.types import Make
from tests.studio.conftest import Open, Visitor

HUTS = {"user": "maya", "thread": "huts"}


@pytest.fixture
def huts(make_memory: Make, embeddings: WordEmbeddings, open_studio: Open) -> Visitor:
    """Three turns about huts; another thread recalls the first before them and the second behind them."""
    memory = make_memory(embeddings=embeddings, working_memory=WorkingMemoryOptions())
    memory.save_turn([("user", "glacier old news"), ("assistant", "noted")], thread_id="a", resource_id="maya")
    for at, question in enumerate(("first hut", "second hut", "glacier hut")):
        turn = [HumanMessage(question, id=f"q{at}"), AIMessage(f"answer {at}", id=f"a{at}")]
        memory.save_turn(turn, thread_id="huts", resource_id="maya")
    memory.save_turn([("user", "glacier late news"), ("assistant", "noted")], thread_id="b", resource_id="maya")
    memory.working_memory.update("# About\n- dog: Nougat", resource_id="maya")
    return open_studio(memory)


def texts(page: str) -> list[str]:
    return re.findall(r'<div class="text" dir="auto">(.*?)</div>', page, re.DOTALL)


def test_the_context_of_an_earlier_turn_ends_in_front_of_it(huts: Visitor) -> None:
    page = huts.page("/context", **HUTS, turn="2")
    assert "Context of turn #2" in page
    shown = texts(page)
    assert shown[:2] == ["first hut", "answer 0"]
    assert shown[-1] == "second hut"
    assert "third" not in "".join(shown)


def test_recall_of_an_earlier_turn_finds_only_what_was_stored_before(huts: Visitor) -> None:
    page = "".join(texts(huts.page("/context", **HUTS, turn="4")))
    assert "old news" in page
    assert "late news" not in page
    assert "late news" in "".join(texts(huts.page("/context", **HUTS, q="glacier news")))


@pytest.mark.parametrize("turn", ["1", "99"])
def test_a_turn_begins_with_a_question(huts: Visitor, turn: str) -> None:
    assert huts.get("/context", **HUTS, turn=turn).status_code == 404
    assert huts.get("/compare", **HUTS, earlier=turn, later="4").status_code == 404


def test_without_recall_a_turn_has_its_history(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory()
    memory.save_turn([HumanMessage("one", id="q"), ("assistant", "two")], thread_id="huts", resource_id="maya")
    assert texts(open_studio(memory).page("/context", **HUTS, turn="0")) == ["one"]


def test_the_last_two_turns_are_compared_by_default(huts: Visitor) -> None:
    page = huts.page("/compare", **HUTS)
    assert re.findall(r'<option value="(\d+)" selected', page) == ["2", "4"]
    assert '<span class="chip">new</span> <b>history</b> assistant' in page
    assert '<span class="chip">new</span> <b>question</b>' in page
    assert "from history" in page
    # the question of the earlier turn is a part of the history now, and not new
    assert "second hut" not in "".join(texts(page))


def test_a_question_stands_for_the_next_turn(huts: Visitor) -> None:
    page = huts.page("/compare", **HUTS, earlier="0", later="2", q="glacier news")
    assert "late news" in page
    assert texts(page)[-1] == "glacier news"


def test_one_turn_has_nothing_to_be_compared_with(make_memory: Make, open_studio: Open) -> None:
    memory = make_memory()
    visitor = open_studio(memory)
    memory.save_turn([("user", "one"), ("assistant", "two")], thread_id="huts", resource_id="maya")
    assert "Two questions are needed" in visitor.page("/compare", **HUTS)


def item(part: str, text: str) -> Item:
    return Item("user", "", text, part)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ([], [item("history", "a")], [("new", "a")]),
        ([item("history", "a")], [], [("gone", "a")]),
        ([item("question", "a")], [item("history", "a")], [("kept", "a")]),
        ([item("history", "a")], [item("history", "b")], [("gone", "a"), ("new", "b")]),
        ([item("recalled messages", "a\nb")], [item("recalled messages", "a\nc")], [("changed", "a\nc")]),
        (
            [item("recalled messages", "a"), item("question", "q")],
            [item("working memory", "w"), item("question", "r")],
            [("new", "w"), ("gone", "a"), ("gone", "q"), ("new", "r")],
        ),
    ],
    ids=["new", "gone", "moved", "replaced", "changed", "another block"],
)
def test_what_became_of_each_part(before: list[Item], after: list[Item], found: list[tuple[str, str]]) -> None:
    changes = compare(before, after)
    assert [(change.kind, one.text) for change in changes for one in change.items] == found
    if found[0][0] == "changed":
        assert {"-b", "+c"} <= {*changes[0].lines}


def test_tokens_are_counted_by_part() -> None:
    before = [item("history", "a" * 8), item("question", "b" * 4)]
    after = [item("history", "a" * 8), item("question", "c" * 12)]
    none: Any = dict.fromkeys(("kept", "changed", "new", "gone"), 0)
    assert by_part(compare(before, after)) == {"history": none | {"kept": 2}, "question": none | {"new": 3, "gone": 1}}


def test_memory_is_not_changed_by_a_look_at_earlier_turns(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived)
    before = [(one.id, one.text) for one in lived.history.messages("trip", superseded=True)]
    visitor.page("/compare", user="maya", thread="trip")
    lived.save_turn([("user", "And now?"), ("assistant", "Yes.")], thread_id="trip", resource_id="maya")
    after = [(one.id, one.text) for one in lived.history.messages("trip", superseded=True)]
    assert after[: len(before)] == before


# ---------------------------------------------------------------------- recall with two settings


def sides(page: str) -> list[list[str]]:
    """Return the texts of the hits of each side."""
    return [texts(part) for part in page.split("<section ")[1:]]


@pytest.mark.parametrize(
    ("setting", "more", "fewer"),
    [
        ("b_top_k", "", "1"),
        ("b_threshold", "", "1"),
        ("b_max_tokens", "", "3"),
        ("b_scope", "", "thread"),
        ("b_search", "hybrid", "semantic"),
    ],
)
def test_one_setting_of_one_side_changes_only_that_side(huts: Visitor, setting: str, more: str, fewer: str) -> None:
    same = sides(huts.page("/recall/settings", **HUTS, q="glacier news", **{setting: more}))
    page = huts.page("/recall/settings", **HUTS, q="glacier news", **{setting: fewer})
    found = sides(page)
    assert same[0] == same[1] == found[0]
    assert len(found[0]) > 1
    if setting == "b_search":
        first, second = (re.findall(r"score [\d.]+", part) for part in page.split("<section ")[1:])
        assert first != second
    else:
        assert {*found[1]} != {*found[0]}
        assert not any("news" in text for text in found[1]) or len(found[1]) < len(found[0])
        assert "only here" in page
        assert f'value="{fewer}"' in page or f"<option selected>{fewer}" in page


@pytest.mark.parametrize(
    "setting", [{"a_threshold": "high"}, {"b_threshold": "7"}, {"b_search": "x"}, {"a_scope": "x"}]
)
def test_a_setting_that_does_not_exist_is_named(huts: Visitor, setting: dict[str, str]) -> None:
    answer = huts.get("/recall/settings", user="maya", q="glacier", **setting)
    assert answer.status_code == 400
    assert next(iter(setting)).partition("_")[2] in answer.text


def test_two_settings_need_recall(make_memory: Make, open_studio: Open) -> None:
    visitor = open_studio(make_memory())
    assert "Recall is off" in visitor.page("/recall/settings", user="maya")
    assert visitor.get("/recall/settings", user="maya", q="x").status_code == 400
