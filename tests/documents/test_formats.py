"""The formats of working memory: how an update becomes the next document, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, RootModel

from langchain_workingmem.errors import OptionError, WorkingMemoryValidationError
from langchain_workingmem.options import WorkingMemoryOptions
from langchain_workingmem.working_memory.document import JsonFormat, Mode, TextFormat
from langchain_workingmem.working_memory.schema import schema_of
from tests.working_memory.samples import Home

TEMPLATE = "# User\n- **Name**:\n- **City**:\n"
FILLED = "# User\n- **Name**: Ann\n- **City**: Ulm\n"


class Person(BaseModel):
    name: str | None = None
    home: Home | None = None
    pets: list[str] = []


ANN = {"name": "Ann", "home": {"city": "Ulm", "street": "Hafengasse"}, "pets": ["cat", "dog"]}


@pytest.fixture
def markdown() -> TextFormat:
    return TextFormat(TEMPLATE)


@pytest.fixture
def person() -> JsonFormat:
    return JsonFormat(schema_of(Person))


def refusal(form: TextFormat | JsonFormat, current: str, content: Any, mode: Mode | None = None) -> str:
    with pytest.raises(WorkingMemoryValidationError) as caught:
        form.apply(current, content, mode)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"template": "# A", "schema": Person}, ["template and schema", "pass one of them"]),
        ({"template": Person}, ["template", "pass a str, or None"]),
        ({"schema": "Person"}, ["schema='Person'", "Pydantic model, a TypedDict, a dataclass or a JSON schema"]),
        ({"schema": {"type": "array"}}, ["'array'", "is an object"]),
        ({"scope": "resource"}, ["scope='resource'", "'user'", "'thread'"]),
        ({"mode": "patch"}, ["mode='patch'", "'replace'", "'merge'", "'append'"]),
        ({"mode": "merge"}, ["mode='merge' needs a schema", "'replace' or 'append'"]),
        ({"revisions": 0}, ["revisions=0", "int of at least 1"]),
        ({"tools": ["search"]}, ["tools='search'", "'get'", "'update'", "'clear'"]),
    ],
)
def test_an_option_that_cannot_work_is_refused_with_the_remedy(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        WorkingMemoryOptions(**options)
    for word in words:
        assert word in str(caught.value)


class Empty(BaseModel):
    pass


class Names(RootModel[list[str]]):
    pass


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string"},
        {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        Empty,
        Names,
    ],
    ids=str,
)
def test_a_schema_that_describes_no_object_is_refused_with_the_remedy(schema: Any) -> None:
    with pytest.raises(OptionError, match="pass a Pydantic model with fields"):
        WorkingMemoryOptions(schema=schema)


@pytest.mark.parametrize("content", [{"name": "Ann"}, None, 3, b"Ann", ["Ann"]])
def test_text_takes_nothing_but_text(markdown: TextFormat, content: Any) -> None:
    assert f"of type {type(content).__name__}: pass a str" in refusal(markdown, FILLED, content)


@given(st.text())
def test_text_is_stored_byte_for_byte(content: str) -> None:
    assert TextFormat(TEMPLATE).apply(FILLED, content, "replace") == content


@pytest.mark.parametrize(
    "bare",
    [
        TEMPLATE,
        TEMPLATE.replace("\n", "\r\n"),
        "  " + TEMPLATE.replace("\n", "  \n\t"),
        "- **City**:\n# User",
        "# User",
    ],
    ids=["as it is", "crlf", "spaces", "other order", "a part"],
)
def test_a_bare_template_over_data_is_refused(markdown: TextFormat, bare: str) -> None:
    assert "bare template, which would erase" in refusal(markdown, FILLED, bare)


@given(st.text("ab\n-", max_size=20), st.text("ab\n-", max_size=4), st.text("xy", max_size=3))
def test_an_edit_changes_one_place_or_nothing(document: str, find: str, replace: str) -> None:
    form = TextFormat("")
    try:
        edited = form.edit(document, [(find, replace)])
    except WorkingMemoryValidationError:
        return
    before, after = document.split(find)
    assert edited == f"{before}{replace}{after}"


def test_a_replacement_that_is_the_beginning_of_another_word_is_none_that_is_there_already(
    markdown: TextFormat,
) -> None:
    assert markdown.edit("Ann and Monika", [("Ann", "Ann and Moni")]) == "Ann and Moni and Monika"
    assert markdown.edit("Ann and Mona", [("Ann", "Ann and Mona")]) == "Ann and Mona"


def test_a_bare_template_over_what_its_sender_has_not_seen_says_nothing(markdown: TextFormat) -> None:
    assert markdown.apply(FILLED, TEMPLATE, None, seen="") == FILLED


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("not json", "not JSON"),
        ("[1]", "pass a dict"),
        ([1], "of type list: pass a dict"),
        (None, "of type NoneType: pass a dict"),
        ({"name": object()}, "not JSON"),
    ],
)
def test_an_update_that_is_no_object_is_refused(person: JsonFormat, content: Any, words: str) -> None:
    assert words in refusal(person, json.dumps(ANN), content)


NULLS = {"name": None, "home": None, "pets": None}


@pytest.mark.parametrize("mode", [None, "merge"])
@pytest.mark.parametrize("patch", [NULLS, {**NULLS, "home": {"city": None, "street": None}}])
def test_a_patch_of_nulls_only_is_refused(person: JsonFormat, patch: dict[str, Any], mode: Mode | None) -> None:
    assert "everything that is known to null" in refusal(person, json.dumps(ANN), patch, mode)


def test_fields_are_deleted_by_their_dotted_names(person: JsonFormat) -> None:
    after = person.apply(json.dumps(ANN), {}, None, ["name", "home.city"])
    assert json.loads(after) == {"home": {"street": "Hafengasse"}, "pets": ["cat", "dog"]}


@pytest.mark.parametrize("stored", ["# User\n- Ann", "[1]", "3"])
def test_what_another_format_wrote_is_not_merged_but_can_be_replaced(person: JsonFormat, stored: str) -> None:
    assert "another format" in refusal(person, stored, {"name": "Ann"})
    assert json.loads(person.apply(stored, {"name": "Ann"}, "replace")) == {"name": "Ann"}


def test_an_object_that_is_emptied_is_told_by_what_went_out_of_it() -> None:
    form = JsonFormat(schema_of({"type": "object"}))
    assert form.changes('{"facts":{"x":"1"}}', '{"facts":{}}') == ['facts.x: nothing (was "1")']
