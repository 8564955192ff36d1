"""Paths of texts: fields of a template, items by their text, and the place of what the layout does not know."""

from __future__ import annotations

import re

import pytest
from hypothesis import given

from langchain_workingmem._documents.formats import TextFormat
from langchain_workingmem.keeping.lines import read
from langchain_workingmem.keeping.values import Values
from tests.helpers.examples import examples
from tests.keeping.documents import DEFAULT, FREE, SECTIONS, after_write, claim, held, line_texts

LONG = "x" * 500


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- **Location**: Rome", {"/Location": "Rome"}),
        ("* **Location:** Rome  ", {"/Location": "Rome"}),
        ("Location: Rome", {"/Location": "Rome"}),
        ("# User information\n- **Location**:", {}),
        ("- **Dog**: Rex", {"/Dog": "Rex"}),
        ("Dog: Rex", {"/Dog: Rex": "Dog: Rex"}),
        ("- **Dog**:", {"/Dog": ""}),
        ("likes x\n- likes x", {"/likes x": "likes x"}),
        (
            "- **Location**: Rome\n- **Location**: Oslo",
            {"/Location": "Rome", "/**Location**: Oslo": "**Location**: Oslo"},
        ),
        ("- a/b~", {"/a~1b~0": "a/b~"}),
        (
            "## Work\n- **Role**: cook\n### Team\n- Ida\n## Home\n- Via",
            {
                "/Work/": "Work",
                "/Work/Role": "cook",
                "/Work/Team/": "Team",
                "/Work/Team/Ida": "Ida",
                "/Home/": "Home",
                "/Home/Via": "Via",
            },
        ),
        ("**Rome**: x\nRome", {"/Rome": "x", "/Rome ": "Rome"}),
    ],
)
def test_a_line_has_a_path_that_a_person_can_read(text: str, expected: dict[str, str]) -> None:
    assert read(DEFAULT, text)[0] == expected


def test_the_template_says_which_lines_are_fields_and_which_are_no_values() -> None:
    text = (
        "# User information\n- **Location**: Rome\n- **Mood**: (not said)\n\n## Work\nName: Eva\n### Team\n- **Lead**:"
    )
    assert read(SECTIONS, text)[0] == {"/Location": "Rome", "/Work/Name": "Eva"}
    assert read(SECTIONS, "- **Mood**:")[0] == {"/Mood": ""}  # not what the template says


def test_a_field_that_is_empty_again_is_removed_and_its_line_stays() -> None:
    values = after_write(DEFAULT, Values(), "- **Location**: Rome\n- **Facts**:\n", said_at=10)
    values = after_write(DEFAULT, values, "- **Location**:\n- **Facts**:\n", said_at=20)
    assert [one.is_set for one in values.history("/Location")] == [False, True]


def test_a_value_that_is_gone_leaves_the_line_of_the_template() -> None:
    text = "# User information\n- **Location**:Rome  \n- **Dog**: Rex\n- likes x\n"
    values = after_write(DEFAULT, Values(), text, said_at=10)
    assert Values({}, values.layout).render(DEFAULT) == "# User information\n- **Location**:  \n"


def test_a_field_keeps_the_way_in_which_its_line_is_written() -> None:
    values = after_write(DEFAULT, Values(), "* **Location:**\n+ **Dog** : Rex", said_at=10)
    assert held(values, claim("/Location", "Rome", 20, is_line=True), claim("/Dog", "Ida", 20, is_line=True)).render(
        DEFAULT
    ) == ("* **Location:** Rome\n+ **Dog** : Ida")


def test_what_the_layout_does_not_know_stands_at_its_place_in_the_template_or_ends_its_section() -> None:
    values = after_write(SECTIONS, Values(), "- **Mood**: fine\n\n## Work\n- **Role**: cook\n\nthe end\n", said_at=10)
    later = held(
        values,
        *(
            claim(path, value, 20 + at, is_line=True)
            for at, (path, value) in enumerate(
                [
                    ("/Location", "Rome"),
                    ("/Work/Name", "Eva"),
                    ("/Work/is fast", "is fast"),
                    ("/Dog", "Rex"),
                    ("/new", "new"),
                ]
            )
        ),
    )
    assert later.render(SECTIONS) == (
        "- **Location**: Rome\n- **Mood**: fine\n- **Dog**: Rex\n- new\n\n## Work\n- **Role**: cook\nName: Eva\n\nthe end\n- is fast\n"
    )
    assert [*later.present(SECTIONS)] == [
        "/Location", "/Mood", "/Dog", "/new", "/Work/Role", "/Work/Name", "/Work/the end", "/Work/is fast",
    ]  # fmt: skip


def test_a_value_without_any_layout_is_shown_in_the_template() -> None:
    assert held(Values(), claim("/Location", "Rome", 10, is_line=True)).render(
        TextFormat("- **Location**:\n- **Mood**:")
    ) == ("- **Location**: Rome\n- **Mood**:")
    assert Values().render(DEFAULT) == ""


def test_the_order_in_which_fields_arrive_changes_nothing() -> None:
    layout = after_write(DEFAULT, Values(), DEFAULT.template, said_at=1).layout
    claims = [
        claim(path, f"{at}", at, is_line=True) for at in range(10, 16) for path in ("/Location", "/Goals", "/Dog")
    ]
    texts = {
        held(Values(layout=layout), *some).render(DEFAULT) for some in (claims, claims[::-1], claims[7:] + claims[:9])
    }
    assert len(texts) == 1


def test_a_long_line_comes_back_and_has_a_short_path() -> None:
    values = after_write(FREE, Values(), f"{LONG}y\n{LONG}z\n**{LONG}**: x", said_at=10)
    assert values.render(FREE) == f"{LONG}y\n{LONG}z\n**{LONG}**: x"
    assert max(map(len, values.present(FREE))) < 150


def test_what_was_kept_as_json_is_not_shown_as_text() -> None:
    assert held(Values(), claim("/city", "Rome", 10)).render(FREE) == ""


@examples(200)
@given(line_texts)
def test_the_layout_holds_no_words(text: str) -> None:
    for form in (DEFAULT, SECTIONS, FREE):
        for entry in read(form, text)[1]:
            assert re.fullmatch(r"\s*|[0-9a-f]{12}(\|[\s*+•#:-]*){0,5}", entry), entry
