"""The formats of working memory: how an update becomes the next document, and what is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, RootModel
from typing_extensions import TypedDict

from langchain_workingmem.errors import OptionError, WorkingMemoryValidationError
from langchain_workingmem.options import WorkingMemoryOptions
from langchain_workingmem.working_memory.document import JsonFormat, Mode, TextFormat, unwrapped
from langchain_workingmem.working_memory.schema import schema_of

TEMPLATE = "# User\n- **Name**:\n- **City**:\n"
FILLED = "# User\n- **Name**: Ann\n- **City**: Ulm\n"


class Home(BaseModel):
    city: str | None = None
    street: str | None = None


class Person(BaseModel):
    name: str | None = None
    home: Home | None = None
    pets: list[str] = []


ANN = {"name": "Ann", "home": {"city": "Ulm", "street": "Hafengasse"}, "pets": ["cat", "dog"]}


@pytest.fixture
def markdown() -> TextFormat:
    return TextFormat(TEMPLATE)


@pytest.fixture
def text() -> TextFormat:
    return TextFormat("")


@pytest.fixture
def person() -> JsonFormat:
    return JsonFormat(schema_of(Person))


def applied(form: JsonFormat, current: dict[str, Any], content: Any, mode: Mode | None = None) -> Any:
    """Give what an update makes of a document, as JSON."""
    after = form.apply(json.dumps(current) if current else "", content, mode)
    return json.loads(after) if after else {}


def refusal(form: TextFormat | JsonFormat, current: str, content: Any, mode: Mode | None = None) -> str:
    with pytest.raises(WorkingMemoryValidationError) as caught:
        form.apply(current, content, mode)
    return str(caught.value)


# ---------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"template": "# A", "schema": Person}, ["template and schema", "pass one of them"]),
        ({"template": "", "schema": Person}, ["template and schema", "pass one of them"]),
        ({"template": Person}, ["template", "pass a str, or None"]),
        ({"schema": "Person"}, ["schema='Person'", "Pydantic model, a TypedDict, a dataclass or a JSON schema"]),
        ({"schema": int}, ["schema=", "Pydantic model, a TypedDict, a dataclass or a JSON schema"]),
        ({"schema": Person()}, ["schema=", "Pydantic model, a TypedDict, a dataclass or a JSON schema"]),
        ({"schema": {"type": "nonsense"}}, ["not a JSON schema", "nonsense"]),
        ({"schema": {"type": "array"}}, ["'array'", "is an object"]),
        ({"scope": "resource"}, ["scope='resource'", "'user'", "'thread'"]),
        ({"mode": "patch"}, ["mode='patch'", "'replace'", "'merge'", "'append'"]),
        ({"mode": "merge"}, ["mode='merge' needs a schema", "'replace' or 'append'"]),
        ({"mode": "merge", "template": ""}, ["mode='merge' needs a schema", "'replace' or 'append'"]),
        ({"revisions": 0}, ["revisions=0", "int of at least 1"]),
        ({"revisions": True}, ["revisions=True", "int of at least 1"]),
        ({"max_bytes": 0}, ["max_bytes=0", "int of at least 1"]),
        ({"max_bytes": 1.5}, ["max_bytes=1.5", "int of at least 1"]),
        ({"tools": "update"}, ["tools='update'", "use a list"]),
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


class Nothing(TypedDict):
    pass


@dataclass
class Hollow:
    pass


class Names(RootModel[list[str]]):
    pass


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string"},
        {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        {"name": "string"},
        Empty,
        Nothing,
        Hollow,
        Names,
    ],
    ids=str,
)
def test_a_schema_that_describes_no_object_is_refused_with_the_remedy(schema: Any) -> None:
    with pytest.raises(OptionError, match="pass a Pydantic model with fields"):
        WorkingMemoryOptions(schema=schema)


@pytest.mark.parametrize(
    ("options", "name", "mode"),
    [
        ({}, "markdown", "replace"),
        ({"template": TEMPLATE}, "markdown", "replace"),
        ({"template": ""}, "text", "append"),
        ({"template": " \n"}, "text", "append"),
        ({"schema": Person}, "json", "merge"),
        ({"template": TEMPLATE, "mode": "append"}, "markdown", "append"),
        ({"template": "", "mode": "replace"}, "text", "replace"),
        ({"schema": Person, "mode": "append"}, "json", "append"),
        ({"schema": Person, "mode": "replace"}, "json", "replace"),
    ],
)
def test_each_format_has_its_default_mode_unless_another_is_chosen(
    options: dict[str, Any], name: str, mode: str
) -> None:
    form = WorkingMemoryOptions(**options).format
    assert (form.name, form.default_mode) == (name, mode)


# ---------------------------------------------------------------------- text


@pytest.mark.parametrize("content", [{"name": "Ann"}, None, 3, b"Ann", ["Ann"]])
def test_text_takes_nothing_but_text(markdown: TextFormat, content: Any) -> None:
    assert f"of type {type(content).__name__}: pass a str" in refusal(markdown, FILLED, content)


@given(st.text())
def test_text_is_stored_byte_for_byte(content: str) -> None:
    assert TextFormat(TEMPLATE).apply(FILLED, content, "replace") == content


# ---------------------------------------------------------------------- guards of text


@pytest.mark.parametrize("mode", [None, "append"])
@pytest.mark.parametrize("content", ["", " ", "\n\n\t", "\u00a0"])
@pytest.mark.parametrize("template", [TEMPLATE, ""])
def test_blank_text_is_refused_with_what_to_do(template: str, content: str, mode: Mode | None) -> None:
    assert "send a text with all that still holds, or clear it on purpose" in refusal(
        TextFormat(template), FILLED, content, mode
    )


@pytest.mark.parametrize(
    "bare",
    [
        TEMPLATE,
        TEMPLATE.strip(),
        TEMPLATE.replace("\n", "\r\n"),
        TEMPLATE.replace("\n", "\n\n"),
        "  " + TEMPLATE.replace("\n", "  \n\t"),
        "- **City**:\n# User",
        "# User",
    ],
    ids=["as it is", "stripped", "crlf", "blank lines", "spaces", "other order", "a part"],
)
def test_a_bare_template_over_data_is_refused(markdown: TextFormat, bare: str) -> None:
    assert "bare template, which would erase" in refusal(markdown, FILLED, bare)


# ---------------------------------------------------------------------- what models put around a text


@pytest.mark.parametrize(
    "sent",
    [
        FILLED,
        f"```\n{FILLED}\n```",
        f"```markdown\n{FILLED}```\n",
        f"<data>\n{FILLED}</data>",
        f'<working_memory name="x">\n{FILLED}\n</working_memory>',
        f"<working_memory>\nRules.\n<template>\n{TEMPLATE}</template>\n<data>\n{FILLED}\n</data>\n</working_memory>",
        json.dumps({"memory": FILLED}),
        json.dumps({"text": f"```md\n{FILLED}\n```"}),
    ],
)
def test_what_models_put_around_a_text_is_taken_off(sent: str) -> None:
    assert unwrapped(sent).strip() == FILLED.strip()


@pytest.mark.parametrize(
    "sent", ["a ```b``` c", "```\na", '{"name": "Ann"}', "<data> is a tag", '{"memory": {"a": 1}}', " a\n"]
)
def test_what_is_a_part_of_a_text_stays(sent: str) -> None:
    assert unwrapped(sent) == sent


# ---------------------------------------------------------------------- edits


@pytest.mark.parametrize("find", ["- **City**:", "**City**", "- **City**: Ulm"])
def test_an_edit_that_was_made_before_changes_nothing(markdown: TextFormat, find: str) -> None:
    once = markdown.edit(FILLED, [("- **City**: Ulm", "- **City**: Ulm, Bonn")])
    assert markdown.edit(once, [(find, find + once.split(find)[1].splitlines()[0])]) == once


def test_an_edit_of_what_stands_twice_quotes_the_lines_and_asks_for_more(markdown: TextFormat) -> None:
    with pytest.raises(WorkingMemoryValidationError) as caught:
        markdown.edit(FILLED, [("- **", "x")])
    message = str(caught.value)
    assert "more than once" in message
    assert "quote more" in message
    assert "- **Name**: Ann" in message
    assert "- **City**: Ulm" in message


def test_an_edit_that_erases_everything_is_refused(markdown: TextFormat) -> None:
    with pytest.raises(WorkingMemoryValidationError, match="erase everything"):
        markdown.edit(FILLED, [(FILLED, "")])


@given(st.text("ab\n-", max_size=20), st.text("ab\n-", max_size=4), st.text("xy", max_size=3))
def test_an_edit_changes_one_place_or_nothing(document: str, find: str, replace: str) -> None:
    form = TextFormat("")
    try:
        edited = form.edit(document, [(find, replace)])
    except WorkingMemoryValidationError:
        return
    before, after = document.split(find)
    assert edited == f"{before}{replace}{after}"


# ---------------------------------------------------------------------- JSON


@pytest.mark.parametrize("content", ['{"name": "Bob"}', {"name": "Bob"}, Person(name="Bob")])
def test_an_update_is_a_dict_json_or_an_instance_of_the_schema(person: JsonFormat, content: Any) -> None:
    assert applied(person, ANN, content) == {**ANN, "name": "Bob"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("not json", "not JSON"),
        ("[1]", "pass a dict"),
        ([1], "of type list: pass a dict"),
        (None, "of type NoneType: pass a dict"),
        ({"name": {1, 2}}, "name: "),
        ({"name": object()}, "not JSON"),
    ],
)
def test_an_update_that_is_no_object_is_refused(person: JsonFormat, content: Any, words: str) -> None:
    assert words in refusal(person, json.dumps(ANN), content)


# ---------------------------------------------------------------------- guards of JSON

NULLS = {"name": None, "home": None, "pets": None}


@pytest.mark.parametrize("mode", [None, "merge"])
@pytest.mark.parametrize("patch", [NULLS, {**NULLS, "home": {"city": None, "street": None}}])
def test_a_patch_of_nulls_only_is_refused(person: JsonFormat, patch: dict[str, Any], mode: Mode | None) -> None:
    assert "everything that is known to null" in refusal(person, json.dumps(ANN), patch, mode)


# ---------------------------------------------------------------------- clear


def test_fields_are_deleted_by_their_dotted_names(person: JsonFormat) -> None:
    after = person.apply(json.dumps(ANN), {}, None, ["name", "home.city"])
    assert json.loads(after) == {"home": {"street": "Hafengasse"}, "pets": ["cat", "dog"]}


@pytest.mark.parametrize("path", ["nmae", "home.town", "name.first", "", ".", "home."])
def test_clearing_what_is_not_there_changes_nothing_and_names_what_is(person: JsonFormat, path: str) -> None:
    document = json.dumps(ANN)
    assert person.apply(document, {}, None, [path]) == document
    assert ("name, home, pets, home.city, home.street" in person.remark({}, ["name", path], document)) is bool(path)


@pytest.mark.parametrize("stored", ["# User\n- Ann", "[1]", "3"])
def test_what_another_format_wrote_is_not_merged_but_can_be_replaced(person: JsonFormat, stored: str) -> None:
    assert "another format" in refusal(person, stored, {"name": "Ann"})
    assert json.loads(person.apply(stored, {"name": "Ann"}, "replace")) == {"name": "Ann"}
