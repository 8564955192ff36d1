"""Objects inside working memory, as a model replaces, clears and pads them."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, Field, create_model

from tests.helpers.types import Invoke, Make
from tests.tools.samples import known, update_tool, with_memory


class Job(BaseModel):
    company: str
    role: str | None = None


class Pet(BaseModel):
    name: str
    kind: Literal["dog", "cat"] = "dog"
    toys: list[Pet] = []


class Life(BaseModel):
    name: str | None = None
    job: Job | None = None
    pets: list[Pet] = []
    grades: list[float | None] = []
    years: list[int] = []
    counts: dict[str, int] = {}


@pytest.fixture
def tool(make_memory: Make) -> Any:
    memory = with_memory(make_memory, schema=Life)
    return memory, update_tool(memory)


def test_an_object_named_in_clear_and_sent_anew_is_replaced(tool: Any, invoke: Invoke) -> None:
    memory, update = tool
    invoke(update, {"memory": {"name": "Ann", "job": {"company": "Acme", "role": "CTO"}}})
    reply = invoke(update, {"memory": {"job": {"company": "Beta", "role": None}}, "clear": ["job"]})
    assert known(memory) == {"name": "Ann", "job": {"company": "Beta"}}
    assert reply.splitlines()[1:] == ['job.company: "Beta" (was "Acme")', 'job.role: nothing (was "CTO")']


def test_clearing_what_the_schema_requires_names_it_and_changes_nothing(tool: Any, invoke: Invoke) -> None:
    memory, update = tool
    before = memory.working_memory.update({"job": {"company": "Acme"}}, user_id="ann")
    assert "job.company" in invoke(update, {"clear": ["job.company"]})
    assert memory.working_memory.get(user_id="ann") == before


@pytest.mark.parametrize("absent", ["", "nmae", "job.role", "pets.0"])
def test_what_is_not_there_to_be_cleared_does_not_hold_up_the_facts(tool: Any, invoke: Invoke, absent: str) -> None:
    memory, update = tool
    memory.working_memory.update({"name": "Ann", "years": [1]}, user_id="ann")
    reply = invoke(update, {"memory": {"name": "Bob"}, "clear": [absent, "years"]})
    assert known(memory) == {"name": "Bob"}
    assert (f"nothing is stored under '{absent}'" in reply) is bool(absent)
    assert "the fields are name, job," in reply if absent else "fields" not in reply


def shown(memory: Any, *, strict: bool | None = None) -> Any:
    tool = convert_to_openai_tool(update_tool(memory), strict=strict)
    return tool["function"]["parameters"]["properties"]["memory"]["anyOf"][0]


@pytest.mark.parametrize("schema", [{"type": "object"}, create_model("Free", tags=(dict[str, float], {}))])
def test_objects_with_free_keys_are_shown_such_that_strict_mode_refuses_none(make_memory: Make, schema: Any) -> None:
    memory = with_memory(make_memory, schema=schema)
    for strict, open_ in ((None, True), (True, False)):
        patch = shown(memory, strict=strict)
        found = [part for part in every_object(patch) if not part.get("properties")]
        assert found
        assert all(bool(part["additionalProperties"]) is open_ for part in found)


def every_object(schema: Any) -> list[Any]:
    parts = schema if isinstance(schema, list) else schema.values() if isinstance(schema, dict) else ()
    here = [schema] if isinstance(schema, dict) and schema.get("type") == "object" else []
    return here + [found for part in parts for found in every_object(part)]


class Place(BaseModel):
    """The default of pydantic: a field that it does not have is left out."""

    city: str | None = None
    land: str | None = Field(None, alias="country")


def test_a_field_that_the_schema_does_not_have_is_named(make_memory: Make, invoke: Invoke) -> None:
    memory = with_memory(make_memory, schema=Place)
    update = update_tool(memory)
    reply = invoke(update, {"memory": {"citty": "Bozen"}})
    assert "But the schema has no 'citty'" in reply
    assert "city, country" in reply
    reply = invoke(update, {"memory": {"city": "Meran", "citty": "x"}})
    assert known(memory) == {"city": "Meran"}
    assert "'citty'" in reply
    assert "the schema has no" not in invoke(update, {"memory": {"city": "Bozen", "country": "Italy"}})
