"""Schemas that are too large, and documents that are."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from langchain_workingmem import OptionError, WorkingMemoryOptions
from langchain_workingmem._documents.schemas import shape
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


@pytest.mark.parametrize("kind", ["fields", "union"])
def test_options_refuse_such_a_schema(kind: str) -> None:
    with pytest.raises(OptionError, match="fewer definitions"):
        WorkingMemoryOptions(schema=fanned(60, kind))
    assert WorkingMemoryOptions(schema=fanned(3, kind)).schema


def test_a_document_that_is_too_large_is_refused_before_it_is_checked() -> None:
    checked = []

    class Slow(BaseModel):
        text: str

        @field_validator("text")
        @classmethod
        def _slowly(cls, text: str) -> str:
            checked.append(len(text))
            return text

    form = WorkingMemoryOptions(schema=Slow, max_bytes=100).format
    with pytest.raises(WorkingMemoryValidationError, match="the limit is 100"):
        form.apply("", {"text": "x" * 100}, None)
    assert checked == []
    assert form.apply("", {"text": "x"}, None)
