"""Paths of texts: fields of a template, items by their text, and the place of what the layout does not know."""

from __future__ import annotations

import re

import pytest
from hypothesis import given

from langchain_workingmem.keeping.lines import read
from langchain_workingmem.keeping.values import Values
from tests.helpers.examples import examples
from tests.keeping.documents import DEFAULT, FREE, SECTIONS, after_write, claim, held, line_texts


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


def test_a_field_that_is_empty_again_is_removed_and_its_line_stays() -> None:
    values = after_write(DEFAULT, Values(), "- **Location**: Rome\n- **Facts**:\n", said_at=10)
    values = after_write(DEFAULT, values, "- **Location**:\n- **Facts**:\n", said_at=20)
    assert [one.is_set for one in values.history("/Location")] == [False, True]


def test_a_value_that_is_gone_leaves_the_line_of_the_template() -> None:
    text = "# User information\n- **Location**:Rome  \n- **Dog**: Rex\n- likes x\n"
    values = after_write(DEFAULT, Values(), text, said_at=10)
    assert Values({}, values.layout).render(DEFAULT) == "# User information\n- **Location**:  \n"


def test_the_order_in_which_fields_arrive_changes_nothing() -> None:
    layout = after_write(DEFAULT, Values(), DEFAULT.template, said_at=1).layout
    claims = [
        claim(path, f"{at}", at, is_line=True) for at in range(10, 16) for path in ("/Location", "/Goals", "/Dog")
    ]
    texts = {
        held(Values(layout=layout), *some).render(DEFAULT) for some in (claims, claims[::-1], claims[7:] + claims[:9])
    }
    assert len(texts) == 1


@examples(200)
@given(line_texts)
def test_the_layout_holds_no_words(text: str) -> None:
    for form in (DEFAULT, SECTIONS, FREE):
        for entry in read(form, text)[1]:
            assert re.fullmatch(r"\s*|[0-9a-f]{12}(\|[\s*+•#:-]*){0,5}", entry), entry
