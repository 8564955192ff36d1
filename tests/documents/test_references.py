"""Schemas whose references fan out, or lead far: two to each level below would make 2 ** 60 copies of the last one."""

from __future__ import annotations

from typing import Any

import pytest

from langchain_workingmem import Memory, OptionError, WorkingMemoryOptions
from langchain_workingmem._documents.padding import without_padding, without_strays
from langchain_workingmem._documents.schemas import schema_of, shape

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
