"""Schemas, templates and random documents that the tests of values share."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from langchain_workingmem._documents.formats import DEFAULT_TEMPLATE, Format, JsonFormat, TextFormat
from langchain_workingmem._documents.schemas import schema_of
from langchain_workingmem.keeping.claims import Claim
from langchain_workingmem.keeping.values import Values, changes


class Home(BaseModel):
    city: str | None = None
    street: str | None = None


class Pet(BaseModel):
    name: str = Field(json_schema_extra={"key": True})
    age: int | None = None
    tricks: list[str] = []
    homes: dict[str, Home] = {}


class Trip(BaseModel):
    to: str


class Person(BaseModel):
    city: str | None = None
    age: int | None = None
    home: Home = Home()
    pets: list[Pet] = []
    allergies: list[str] = []
    numbers: list[int] = []
    trips: list[Trip] = []
    friends: dict[str, Home] = {}


class Typed(TypedDict, total=False):
    city: str
    pets: list[Pet]


class Needy(BaseModel):
    name: str
    age: int
    allergies: list[str]


OPEN: dict[str, Any] = {"type": "object"}
KEYED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "b": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
        "a": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        "either": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "object"}]},
    },
    "$defs": {"Item": {"type": "object", "properties": {"id": {"type": "integer", "key": True}, "more": {}}}},
}
PERSON = JsonFormat(schema_of(Person))
NEEDY = JsonFormat(schema_of(Needy))
JSON_FORMATS = [PERSON, NEEDY, *(JsonFormat(schema_of(schema)) for schema in (Typed, OPEN, KEYED))]

WORK = "# User information\n- **Location**:\n- **Mood**: (not said)\n\n## Work\n- **Role**:\nName:\n\n### Team\n* **Lead**:\n"
DEFAULT, SECTIONS, FREE = TextFormat(DEFAULT_TEMPLATE), TextFormat(WORK), TextFormat("")
TEXT_FORMATS = [DEFAULT, SECTIONS, FREE]

# names that mean something to a path, a schema or a text, and few, so that they meet
NAMES = [
    "city",
    "age",
    "home",
    "street",
    "pets",
    "name",
    "allergies",
    "trips",
    "a",
    "b",
    "id",
    "either",
    "",
    "/",
    "~",
    "~1",
    "-",
    "0",
    "é",
]
scalars = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.5, 1e300]), st.sampled_from(NAMES))
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=8,
)
homes = st.fixed_dictionaries({}, optional={"city": scalars, "street": scalars})
pets = st.fixed_dictionaries(
    {"name": st.sampled_from(["Rex", "Ida", "a/b", "~", "x" * 200])},
    optional={
        "age": scalars,
        "tricks": st.lists(st.sampled_from(NAMES), max_size=3),
        "homes": st.dictionaries(st.sampled_from(NAMES), homes, max_size=2),
    },
)
persons = st.fixed_dictionaries(
    {},
    optional={
        "city": scalars,
        "home": homes,
        "pets": st.lists(pets, max_size=3),
        "allergies": st.lists(st.sampled_from(NAMES), max_size=4),
        "numbers": st.lists(st.integers(0, 3) | st.sampled_from(["1", True, 1.0]), max_size=3),
        "b": st.lists(st.fixed_dictionaries({"id": st.integers(0, 2), "more": json_values}), max_size=2),
        "trips": st.lists(json_values, max_size=2),
    },
)
objects = st.permutations(range(8)).flatmap(
    lambda order: (persons | st.dictionaries(st.sampled_from(NAMES), json_values, max_size=4)).map(
        lambda found: dict(sorted(found.items(), key=lambda pair: order[len(pair[0]) % 8]))
    )
)
json_texts = objects.map(lambda found: json.dumps(found, ensure_ascii=False) if found else "") | st.sampled_from(
    ["{ }", "[1]", '{"a": 1.00}', "# Notes\n- x", '{"a":1,"a":2}', "1", " "]
)
PIECES = [
    *(
        "- **Location**: Rome",
        "- **Location**:Oslo  ",
        "* **Location:** Bonn",
        "- **Location**:",
        "Location: Kyiv",
        "- **Mood**: (not said)",
    ),
    *(
        "- **Mood**:",
        "- **Role**: cook",
        "Name: Eva",
        "Name:",
        "- **Dog**: Rex",
        "- **Rome**: Rome",
        "- Rome",
        "Rome",
        "**Dog**: Ida",
    ),
    *(
        "# User information",
        "## Work",
        "## Work ",
        "# Work",
        "### Team",
        "## Other",
        "#",
        "# ",
        "- likes x",
        "  - likes x",
        "likes x",
        "* likes x",
    ),
    *(
        "",
        " ",
        "\r",
        "- ",
        "-",
        "**",
        "****:",
        "** **: x",
        "**a",
        "**a**",
        "**a** b: c",
        ":",
        "a:b",
        "- [x] done",
        "x" * 300,
        "x" * 299 + "y",
    ),
    *("- **Lead**: Ida", "a/b", "~1", "|", "\u2028", "\x1c", "Projects", "## Projects", "- **Projects**: two"),
]
line_texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=12).map("\n".join)


def after_write(form: Format, values: Values, text: str, said_at: int, **more: Any) -> Values:
    """Return the values after a writer has made the document this text."""
    claims, layout = changes(form, values, text, said_at=said_at, recorded_at=said_at, origin="program", **more)
    return Values(values.adding(claims, 20).claims, layout, values.hidden)


def claim(path: str, value: Any, said_at: int, **more: Any) -> Claim:
    """Make a claim; without a value it removes."""
    given: dict[str, Any] = {"recorded_at": said_at, "origin": "keeper", "is_set": value is not None, **more}
    return Claim(path=path, value=value, said_at=said_at, **given)


def held(values: Values, *claims: Claim) -> Values:
    """Return values with these claims."""
    return values.adding(claims, 20)
