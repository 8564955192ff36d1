"""Schemas of working memory of every kind: what a patch becomes, what is refused, and which type comes back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal, Self

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.working_memory.document import JsonFormat
from langchain_workingmem.working_memory.schema import schema_of
from tests.working_memory.samples import Home


def stored(schema: Any, current: dict[str, Any], patch: Any) -> Any:
    """Give what a patch makes of a document, as JSON."""
    after = JsonFormat(schema_of(schema)).apply(json.dumps(current) if current else "", patch, None)
    return json.loads(after) if after else {}


def value(schema: Any, document: dict[str, Any]) -> Any:
    return JsonFormat(schema_of(schema)).read(json.dumps(document)).value


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int | None = None
    name: str | None = None


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: list[str] = []


class Person(BaseModel):
    name: str | None = None
    age: Annotated[int, Field(ge=0, le=150)] | None = None
    home: Home = Home()
    friends: list[Home] = []
    pet: Cat | Dog | None = None
    marked: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None
    mood: Mood | None = None
    born: date | None = None
    seen: datetime | None = None
    homes: dict[str, Home] = {}
    code: Annotated[str, Field(pattern=r"^[A-Z]{2}$")] | None = None


class Doubtful(BaseModel):
    model_config = ConfigDict(extra="forbid")
    low: int = 0
    high: int = 10
    inner: Doubtful | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            msg = "low is above high"
            raise ValueError(msg)
        return self


class Tree(BaseModel):
    name: str | None = None
    left: Tree | None = None
    children: list[Tree] = []


@dataclass
class Engine:
    power: int
    fuel: str = "petrol"


@dataclass
class Car:
    brand: str
    doors: int = 4
    engine: Engine | None = None
    owners: list[str] = field(default_factory=list)


JSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "born": {"type": "string", "format": "date"},
        "mail": {"type": "string", "format": "email"},
        "home": {"$ref": "#/$defs/home"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {
        "home": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "zip": {"type": "string"}},
            "required": ["city"],
        }
    },
}
CAT, CITY, ANN = {"kind": "cat", "lives": 9}, {"city": "Ulm"}, {"name": "Ann"}
LEAF, GAS = {"children": [{"name": "e"}]}, {"fuel": "diesel"}


@pytest.mark.parametrize(
    ("schema", "current", "patch", "after"),
    [
        (Person, {"home": {"city": "Ulm"}}, {"home": {"street": "x"}}, {"home": {"city": "Ulm", "street": "x"}}),
        (Person, {"pet": CAT}, {"pet": {"name": "M"}}, {"pet": {**CAT, "name": "M"}}),
        (Person, {"marked": CAT}, {"marked": {"name": "M"}}, {"marked": {**CAT, "name": "M"}}),
        (Person, {"homes": {"a": CITY}}, {"homes": {"a": {"street": "x"}}}, {"homes": {"a": {**CITY, "street": "x"}}}),
        (Person, {}, {"mood": Mood.BAD, "born": date(2000, 2, 29)}, {"mood": "bad", "born": "2000-02-29"}),
        (Person, {}, {"seen": "2026-01-01T10:00:00Z"}, {"seen": "2026-01-01T10:00:00Z"}),
        (Person, {"age": 3}, Person(name="Ann"), {"name": "Ann", "age": 3}),  # only the fields that were set
        (Doubtful, {"high": 30}, {"low": 15}, {"high": 30, "low": 15}),
        (Tree, {"left": {"left": {"name": "c"}}}, {"left": {"left": LEAF}}, {"left": {"left": {"name": "c", **LEAF}}}),
        (Car, {"brand": "T", "engine": {"power": 5}}, {"engine": GAS}, {"brand": "T", "engine": {"power": 5, **GAS}}),
        (JSON, {"home": {**CITY, "zip": "1"}, "tags": ["a"], **ANN}, {"home": {"zip": None}}, {"home": CITY, "tags": ["a"], **ANN}),
    ],
)  # fmt: skip
def test_a_merge_into_a_document_gives(schema: Any, current: dict[str, Any], patch: Any, after: dict[str, Any]) -> None:
    assert stored(schema, current, patch) == after


def test_the_type_of_the_schema_comes_back() -> None:
    assert value(Tree, {"left": {"children": [{"name": "e"}]}}).left.children[0].name == "e"
    assert value(Car, {"brand": "Tatra", "engine": {"power": 50}}) == Car("Tatra", engine=Engine(50))
    assert value(JSON, {"name": "Ann"}) == {"name": "Ann"}


@pytest.mark.parametrize(
    ("schema", "patch", "fields"),
    [
        (Person, {"friends": [{}, {"city": 3}]}, ["friends.1.city"]),
        (Person, {"code": "abc"}, ["code"]),
        (Person, {"homes": {"a": {"city": 3}}}, ["homes.a.city"]),
        (Person, {"name": 3, "age": -1}, ["name", "age"]),
        (Doubtful, {"inner": {"x": 1}}, ["inner.x"]),
        (JSON, {"name": None, "tags": []}, ["name"]),
        (JSON, {"born": "yesterday"}, ["born"]),
        (JSON, {"mail": "nobody"}, ["mail"]),
        (JSON, {"tags": ["a", 1]}, ["tags[1]"]),
    ],
)
def test_what_does_not_fit_is_refused_with_the_name_of_the_field(schema: Any, patch: Any, fields: list[str]) -> None:
    current = {} if schema is Doubtful else {"name": "Ann", "home": {"city": "Ulm"}}
    with pytest.raises(WorkingMemoryValidationError, match="nothing was changed") as caught:
        stored(schema, current, patch)
    assert all(name in str(caught.value) for name in fields)
    if schema is not JSON:
        assert all(any(found.startswith(name) for found in caught.value.fields) for name in fields)


def test_a_validator_of_a_model_sees_the_merged_document() -> None:
    with pytest.raises(WorkingMemoryValidationError, match="low is above high"):
        stored(Doubtful, {"high": 3}, {"low": 5})
