"""Schemas whose references fan out, or lead far: two to each level below would make 2 ** 60 copies of the last one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

from langchain_workingmem import Memory, OptionError, WorkingMemoryOptions
from langchain_workingmem._documents.padding import without_padding, without_strays
from langchain_workingmem._documents.schemas import schema_of, shape
from langchain_workingmem.errors import WorkingMemoryValidationError

LEAF = {"type": "object", "properties": {"x": {"type": "string"}}}


def fanned(levels: int, kind: str, leaf: Any = LEAF) -> dict[str, Any]:
    """A schema whose every level refers twice to the one below, by its fields or as a union."""

    def twice(below: int) -> dict[str, Any]:
        one, other = ({"$ref": f"#/$defs/level{below}"} for _ in range(2))
        return {"anyOf": [one, other]} if kind == "union" else {"type": "object", "properties": {"a": one, "b": other}}

    definitions = {f"level{at}": twice(at + 1) for at in range(levels)} | {f"level{levels}": leaf}
    return {"type": "object", "properties": {"top": {"$ref": "#/$defs/level0"}}, "$defs": definitions}


@pytest.mark.parametrize("kind", ["fields", "union"])
def test_references_that_fan_out_are_refused_before_they_fill_the_memory(kind: str) -> None:
    with pytest.raises(OptionError, match=r"more than 10,000 parts.*fewer definitions"):
        shape(fanned(60, kind), nullable=True)
    assert shape(fanned(3, kind), nullable=True)["properties"]["top"]


def test_references_that_lead_too_deep_are_refused() -> None:
    chain = {f"level{at}": {"properties": {"a": {"$ref": f"#/$defs/level{at + 1}"}}} for at in range(2_000)}
    with pytest.raises(OptionError, match="too many levels"):
        shape({"properties": {"top": {"$ref": "#/$defs/level0"}}, "$defs": chain}, nullable=True)


def test_a_schema_without_references_may_have_any_number_of_fields() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {f"field{at}": {"type": "string"} for at in range(11_000)},
    }
    assert shape(schema, nullable=True)["properties"].keys() == schema["properties"].keys()


def test_the_tools_of_a_memory_refuse_such_a_schema() -> None:
    memory = Memory(working_memory=WorkingMemoryOptions(schema=fanned(60, "fields")))
    with pytest.raises(OptionError, match="fewer definitions"):
        memory.tools()
    memory.close()


def test_documents_of_a_union_that_fans_out_are_read_part_by_part() -> None:
    schema = fanned(60, "union")
    assert without_strays({"top": {"x": "y"}}, schema) == {"top": {"x": "y"}}
    assert without_padding({"top": {"x": ""}}, schema) == {}


def test_null_in_an_array_is_looked_up_once_in_a_union_that_fans_out() -> None:
    schema = fanned(60, "union", leaf={"type": "string"})
    schema["properties"] = {"list": {"type": "array", "items": {"$ref": "#/$defs/level0"}}}
    assert without_padding({"list": ["a", None]}, schema) == {"list": ["a"]}


def test_a_union_without_fields_that_fans_out_is_no_object() -> None:
    schema = fanned(60, "union", leaf={"type": "string"})
    with pytest.raises(OptionError, match="names no fields"):
        schema_of({"$defs": schema["$defs"], "$ref": "#/$defs/level0"})


FIELD = {"type": "object", "properties": {"x": {"type": "string"}, "below": {"$ref": "#/$defs/level0"}}}
KINDS: dict[str, Any] = {
    **{kind: lambda one, kind=kind: {kind: [one, one]} for kind in ("allOf", "anyOf", "oneOf")},
    "if": lambda one: {"if": one, "then": one},
    "not": lambda one: {"not": one, "allOf": [one]},
    "beside": lambda one: {**one, "anyOf": [one]},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leaf", [LEAF, FIELD], ids=["leaf", "recursive"])
def test_a_schema_that_validation_would_follow_without_end_is_refused_at_once(kind: str, leaf: Any) -> None:
    def schema(levels: int) -> dict[str, Any]:
        chain = {f"level{at}": KINDS[kind]({"$ref": f"#/$defs/level{at + 1}"}) for at in range(levels)}
        definitions = {**chain, f"level{levels}": leaf}
        return {"type": "object", "properties": {"top": {"$ref": "#/$defs/level0"}}, "$defs": definitions}

    for levels in (16, 30, 300):
        with pytest.raises(OptionError, match=r"more than 10,000 checks.*name each alternative once"):
            WorkingMemoryOptions(schema=schema(levels))
    assert WorkingMemoryOptions(schema=schema(3)).schema


def test_a_schema_that_leads_to_itself_at_one_value_is_refused() -> None:
    loop = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}},
    }
    with pytest.raises(OptionError, match="use fewer definitions"):
        WorkingMemoryOptions(schema=loop)


class Add(BaseModel):
    op: Literal["add"]
    left: Add | Sub | int
    right: Add | Sub | int


class Sub(BaseModel):
    op: Literal["sub"]
    left: Add | Sub | int
    right: Add | Sub | int


class Sum(BaseModel):
    value: Add | Sub | int


class Told(BaseModel):
    kind: Literal["and", "or"]
    left: Known
    right: Known


class Leaf(BaseModel):
    kind: Literal["leaf"]


Known = Annotated[Told | Leaf, Field(discriminator="kind")]


class Asked(BaseModel):
    value: Known


def nested(levels: int, name: str, kind: str, leaf: Any) -> Any:
    return leaf if levels == 0 else {name: kind, "left": nested(levels - 1, name, kind, leaf), "right": leaf}


@pytest.mark.parametrize("schema", [Sum, Sum.model_json_schema()], ids=["pydantic", "json"])
def test_a_document_of_unions_inside_unions_is_refused_before_it_takes_minutes(schema: Any) -> None:
    form = WorkingMemoryOptions(schema=schema).format
    assert form.apply("", {"value": nested(6, "op", "sub", 1)}, None)
    for leaf in (1, "wrong"):
        with pytest.raises(WorkingMemoryValidationError, match=r"unions inside unions.*send fewer levels"):
            form.apply("", {"value": nested(40, "op", "sub", leaf)}, None)


Json = TypeAliasType("Json", "str | int | list[Json] | dict[str, Json] | None")


class Free(BaseModel):
    value: Json


@pytest.mark.parametrize("schema", [Free, Free.model_json_schema()], ids=["pydantic", "json"])
def test_a_type_of_any_json_takes_many_levels(schema: Any) -> None:
    value: Any = "x"
    for _ in range(20):
        value = {"k": [value]}
    assert WorkingMemoryOptions(schema=schema).format.apply("", {"value": value}, None)


@pytest.mark.parametrize("pointer", ["#", "#/%24defs/top"])
def test_a_schema_that_holds_itself_twice_takes_few_levels(pointer: str) -> None:
    top = {"type": "object", "properties": {"a": {"allOf": [{"$ref": pointer}] * 2}}}
    form = WorkingMemoryOptions(schema={**top, "$defs": {"top": top}}).format
    value: dict[str, Any] = {}
    for _ in range(5):
        value = {"a": value}
    assert form.apply("", value, None)
    for _ in range(20):
        value = {"a": value}
    with pytest.raises(WorkingMemoryValidationError, match="send fewer levels"):
        form.apply("", value, None)


def test_unions_with_a_discriminator_may_have_any_number_of_levels() -> None:
    form = WorkingMemoryOptions(schema=Asked).format
    assert form.apply("", {"value": nested(90, "kind", "or", {"kind": "leaf"})}, None)
    with pytest.raises(WorkingMemoryValidationError, match="does not match"):
        form.apply("", {"value": nested(90, "kind", "or", {"kind": "branch"})}, None)


def test_a_long_list_of_a_large_union_is_accepted() -> None:
    kinds = [{"type": "object", "properties": {"kind": {"const": at}, "x": {"type": "string"}}} for at in range(20)]
    form = WorkingMemoryOptions(schema={"type": "object", "properties": {"all": {"items": {"anyOf": kinds}}}}).format
    assert form.apply("", {"all": [{"kind": at % 20, "x": "y"} for at in range(1_000)]}, None)


def test_a_value_that_misses_a_schema_in_many_ways_is_told_each_once() -> None:
    twice = {"allOf": [{"$ref": "#/$defs/text"}] * 500}
    form = WorkingMemoryOptions(
        schema={"type": "object", "properties": {"x": twice}, "$defs": {"text": {"type": "string"}}}
    ).format
    with pytest.raises(WorkingMemoryValidationError) as caught:
        form.apply("", {"x": 5}, None)
    assert str(caught.value).count("is not of type") == 1
