"""The outline of a schema: a process that knows only it reads and writes a document as one with the schema does."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, JsonValue

from langchain_workingmem._documents.formats import JsonFormat
from langchain_workingmem._documents.schemas import schema_of
from langchain_workingmem.keeping.fields import read, write
from langchain_workingmem.keeping.store.outlines import outlined, written


class Pet(BaseModel):
    """A pet."""

    name: str = Field(json_schema_extra={"key": True}, description="what it is called")
    tags: list[str] = []


class Cat(Pet):
    kind: Literal["cat"]


class Dog(Pet):
    kind: Literal["dog"]


class Node(BaseModel):
    name: str = Field(json_schema_extra={"key": True})
    below: list[Node] = []
    scores: dict[str, list[int] | int | None] = {}


class Home(BaseModel):
    city: str | None = None
    pets: list[Cat | Dog] | None = None
    tree: Node | None = None
    free: JsonValue = None
    rooms: dict[str, Pet] = {}


DOCUMENT: dict[str, Any] = {
    "city": "Rome",
    "pets": [{"name": "Rex", "tags": ["old", "tame"], "kind": "dog"}, {"name": "Tom", "kind": "cat"}],
    "tree": {"name": "a", "below": [{"name": "b", "below": [{"name": "c"}], "scores": {"x": [1, 2], "y": 3}}]},
    "free": [1, {"a": ["b"]}],
    "rooms": {"hall": {"name": "Ben", "tags": ["shy"]}},
}
NULLABLE = {"properties": {"a": {"type": ["array", "null"]}, "b": {"oneOf": [{"items": {"type": "string"}}, {}]}}}


@pytest.mark.parametrize(
    ("schema", "document"), [(Home, DOCUMENT), (NULLABLE, {"a": ["x", "y"], "b": ["z"]})], ids=["model", "json"]
)
def test_an_outline_reads_and_writes_as_the_schema_does(schema: Any, document: dict[str, Any]) -> None:
    form = JsonFormat(schema_of(schema))
    plain = outlined(written(form))
    values, layout = read(form, json.dumps(document))
    assert len(values) > 2
    assert read(plain, json.dumps(document)) == (values, layout)
    assert write(plain, values, ()) == write(form, values, ())
    assert plain.value(json.dumps(document)) == document
    assert written(plain) == written(form)


def test_an_outline_holds_no_descriptions() -> None:
    assert "called" not in written(JsonFormat(schema_of(Pet)))
    assert "called" not in written(outlined(json.dumps(Pet.model_json_schema())))
    assert written(JsonFormat(schema_of({"type": "object"}))) == ""
