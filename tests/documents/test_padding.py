"""What is padding in what a model sends and what is a value; and what an object of another kind leaves behind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from langchain_workingmem._documents.padding import without_padding, without_strays

ANYTHING: dict[str, Any] = {"type": "object"}
TEXT: dict[str, Any] = {"type": "string"}


def of_rows(**fields: Any) -> dict[str, Any]:
    return {"properties": {"rows": {"type": "array", "items": {"type": "object", "properties": fields}}}}


def test_null_and_empty_text_are_taken_out_of_objects_at_every_depth() -> None:
    patch = {"name": "Ann", "city": None, "note": "", "job": {"title": None, "since": 3}, "pets": {"cat": None}}
    assert without_padding(patch, ANYTHING) == {"name": "Ann", "job": {"since": 3}}


def test_what_is_zero_or_false_is_no_padding() -> None:
    assert without_padding({"a": 0, "b": False, "c": {}}, ANYTHING) == {"a": 0, "b": False}


def test_arrays_of_which_nothing_is_known_stay_as_they_are() -> None:
    patch = {"a": [None, "", {"b": None}]}
    assert without_padding(patch, ANYTHING) == patch


@pytest.mark.parametrize(
    ("field", "stays"),
    [
        (TEXT, False),
        ({"enum": ["a", "b"]}, False),
        ({"const": "a"}, False),
        ({"anyOf": [TEXT, {"type": "integer"}]}, False),
        ({"allOf": [{"type": ["string", "null"]}, TEXT]}, False),
        ({"$ref": "#/$defs/text"}, False),
        (False, False),
        ({"type": ["string", "null"], "default": None}, False),
        ({"type": ["string", "null"]}, True),
        ({"enum": ["a", None]}, True),
        ({"const": None}, True),
        ({"oneOf": [TEXT, {"type": "null"}]}, True),
        ({"$ref": "#/$defs/maybe"}, True),
        ({"$ref": "#/$defs/nowhere"}, True),
        ({"$ref": "#/$defs/itself"}, True),
        ({}, True),
        (True, True),
    ],
)
def test_null_stays_in_arrays_where_the_schema_has_a_place_for_it(field: Any, stays: bool) -> None:
    definitions = {"text": TEXT, "maybe": {"type": ["string", "null"]}, "itself": {"$ref": "#/$defs/itself"}}
    schema = {**of_rows(field=field), "$defs": definitions}
    item = {"field": None} if stays else {}
    assert without_padding({"rows": [{"field": None}]}, schema) == {"rows": [item]}
    schema["properties"]["rows"]["items"] = field
    assert without_padding({"rows": [None, 1]}, schema) == {"rows": [None, 1] if stays else [1]}


def test_null_in_nested_arrays_and_under_free_names_goes_as_well() -> None:
    row = {"type": "object", "additionalProperties": TEXT}
    schema = of_rows(rows={"type": "array", "items": {"type": "array", "items": row}})
    assert without_padding({"rows": [{"rows": [[{"a": None, "b": ""}]]}]}, schema) == {
        "rows": [{"rows": [[{"b": ""}]]}]
    }


def test_the_constants_of_an_object_tell_which_of_several_schemas_is_meant() -> None:
    kinds = [
        {"properties": {"kind": {"const": "a"}, "x": {"type": ["integer", "null"]}}},
        {"properties": {"kind": {"enum": ["b", "c"]}, "x": {"type": "integer"}}},
    ]
    schema = {"properties": {"rows": {"items": {"oneOf": kinds}}}}
    rows = [{"kind": kind, "x": None} for kind in ("a", "b")]
    assert without_padding({"rows": rows}, schema) == {"rows": [{"kind": "a", "x": None}, {"kind": "b"}]}


def test_schemas_inside_each_other_do_not_multiply() -> None:
    kind = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}}}
    schema = {**kind, "$defs": {"a": kind, "b": json.loads(json.dumps(kind))}}
    document: dict[str, Any] = {"end": 1}
    for _ in range(60):
        document = {"next": document}
    assert without_padding(document, schema) == without_strays(document, schema) == document


# ---------------------------------------------------------------------- strays

CIRCLE = {"type": "object", "properties": {"kind": {"const": "circle"}, "name": TEXT, "radius": {}}}
SQUARE = {"type": "object", "properties": {"kind": {"enum": ["square", "box"]}, "name": TEXT, "side": {}}}


@pytest.mark.parametrize(
    ("kinds", "value", "left"),
    [
        ([CIRCLE, SQUARE], {"kind": "box", "name": "n", "radius": 1, "side": 2}, {"kind", "name", "side"}),
        ([CIRCLE, SQUARE], {"kind": "circle", "side": 2, "unknown": 3}, {"kind", "unknown"}),
        ([CIRCLE, SQUARE], {"kind": "other", "radius": 1, "side": 2}, None),
        ([CIRCLE, SQUARE], {"radius": 1, "side": 2}, None),
        ([CIRCLE, SQUARE, {"type": "object"}], {"kind": "circle", "side": 2}, None),
        ([{**CIRCLE, "additionalProperties": True}, SQUARE], {"kind": "circle", "side": 2}, None),
        ([CIRCLE, {"type": "null"}], {"kind": "circle", "side": 2}, None),
    ],
    ids=["the other", "unknown fields", "no kind", "no constant", "any object", "further fields", "one kind"],
)
def test_an_object_keeps_nothing_that_only_another_kind_has(kinds: Any, value: Any, left: set[str] | None) -> None:
    schema = {"properties": {"one": {"anyOf": kinds}, "rows": {"items": {"$ref": "#/properties/one"}}}}
    own = {key: item for key, item in value.items() if left is None or key in left}
    document = {"one": value, "rows": [value, 1], "free": value}
    assert without_strays(document, schema) == {"one": own, "rows": [own, 1], "free": value}
