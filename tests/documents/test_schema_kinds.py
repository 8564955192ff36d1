"""Schemas of working memory of every kind: special shapes of models, typed dicts, dataclasses, JSON schemas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.documents.samples import Tree, refused, stored, value

# ---------------------------------------------------------------------- Pydantic: other shapes


def test_a_recursive_model_is_merged_at_every_depth() -> None:
    current = {"name": "a", "left": {"name": "b", "left": {"name": "c", "left": {"name": "d"}}}}
    after = stored(Tree, current, {"left": {"left": {"left": {"children": [{"name": "e"}]}}}})
    assert after["left"]["left"]["left"] == {"name": "d", "children": [{"name": "e"}]}
    assert value(Tree, after).left.left.left.children[0].name == "e"


# ---------------------------------------------------------------------- dataclass


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


def test_a_dataclass_is_merged_and_defaults_are_not_stored() -> None:
    after = stored(Car, {"brand": "Tatra", "engine": {"power": 50}}, {"engine": {"fuel": "diesel"}})
    assert after == {"brand": "Tatra", "engine": {"power": 50, "fuel": "diesel"}}
    assert value(Car, after) == Car("Tatra", engine=Engine(50, "diesel"))


# ---------------------------------------------------------------------- JSON schema

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


def test_a_document_along_a_json_schema_is_merged() -> None:
    current = {"name": "Ann", "home": {"city": "Ulm", "zip": "1"}, "tags": ["a"]}
    after = stored(JSON, current, {"home": {"zip": None}, "tags": ["b"]})
    assert after == {"name": "Ann", "home": {"city": "Ulm"}, "tags": ["b"]}
    assert value(JSON, after) == after


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"name": None, "tags": []}, "name"),
        ({"home": {"city": None}}, "home"),
        ({"home": {"city": 3}}, "home.city"),
        ({"born": "yesterday"}, "born"),
        ({"mail": "nobody"}, "mail"),
        ({"tags": ["a", 1]}, "tags[1]"),
        ({"x": 1}, "x"),
    ],
)
def test_a_json_schema_refuses_what_does_not_fit_and_names_it(patch: Any, words: str) -> None:
    assert words in str(refused(JSON, {"name": "Ann", "home": {"city": "Ulm"}}, patch))
