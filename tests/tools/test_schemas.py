"""What a model is shown of the tools of working memory, and how it replaces, clears and pads objects inside of it."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, ConfigDict, Field, create_model

from tests.helpers.models import Scripted
from tests.helpers.types import Invoke, Make
from tests.tools.samples import (
    CLEAR,
    GET,
    TEMPLATE,
    UPDATE,
    Person,
    calls,
    known,
    results,
    update_tool,
)
from tests.working_memory.samples import Home, with_memory


class Deep(BaseModel):
    """With everything that a schema may hold."""

    model_config = ConfigDict(extra="forbid")
    home: Home
    homes: list[Home] = []
    other: Home | None = None


SCHEMAS: dict[str, dict[str, Any]] = {
    "pydantic": {"schema": Person},
    "deep": {"schema": Deep},
    "json schema": {
        "schema": {"type": "object", "properties": {"home": Home.model_json_schema()}, "required": ["home"]}
    },
    "json schema with references": {"schema": Person.model_json_schema()},
    "template": {"template": TEMPLATE},
    "text": {"template": ""},
}


def objects(schema: Any) -> list[dict[str, Any]]:
    """Find every object in a JSON schema."""
    parts = schema if isinstance(schema, list) else schema.values() if isinstance(schema, dict) else ()
    here = [schema] if isinstance(schema, dict) and schema.get("type") == "object" else []
    return here + [found for part in parts for found in objects(part)]


@pytest.mark.parametrize("options", SCHEMAS.values(), ids=SCHEMAS)
def test_strict_tools_require_every_property_allow_no_others_and_show_nothing_of_the_run(
    make_memory: Make, options: dict[str, Any]
) -> None:
    memory = with_memory(make_memory, **options)
    for tool in memory.tools(include=[UPDATE, GET, CLEAR]):
        shown = convert_to_openai_tool(tool, strict=True)["function"]
        assert shown["strict"] is True
        assert "$ref" not in json.dumps(shown)
        for part in objects(shown["parameters"]) or [shown["parameters"]]:
            if "properties" not in part:
                continue
            assert set(part.get("required", ())) == set(part["properties"])
            assert part["additionalProperties"] is False
            assert not {*part["properties"]} & {"thread_id", "user_id", "config", "runtime"}


def test_nothing_is_required_of_a_patch(make_memory: Make) -> None:
    shown = convert_to_openai_tool(update_tool(with_memory(make_memory, schema=Deep)))["function"]["parameters"]
    patch = shown["properties"]["memory"]["anyOf"][0]
    assert not shown.get("required")
    assert not patch.get("required")
    assert {"type": "null"} in patch["properties"]["home"]["anyOf"]


def test_items_of_lists_are_whole_in_a_patch(make_memory: Make) -> None:
    leg = {
        "type": "object",
        "properties": {"to": {"type": "string"}, "nights": {"type": "integer"}},
        "required": ["to"],
    }
    schema = {"type": "object", "properties": {"legs": {"type": "array", "items": leg}}, "required": ["legs"]}
    items = shown(with_memory(make_memory, schema=schema))["properties"]["legs"]["anyOf"][0]["items"]
    assert (items["required"], items["properties"]["to"]) == (["to"], {"type": "string"})
    assert {"type": "null"} in items["properties"]["nights"]["anyOf"]


ODD = ["config", "runtime", "self", "memory", "clear", "schema", "callbacks", "tool_call_id", "user_id", "args"]


@pytest.mark.filterwarnings("ignore:Field name")  # Pydantic's, about what the user does
@pytest.mark.parametrize("name", ODD)
def test_a_field_of_the_user_may_have_any_name(make_memory: Make, invoke: Invoke, name: str) -> None:
    fields: dict[str, Any] = {name: (str | None, None), "other": (int | None, None)}
    schema = create_model("Odd", __config__=ConfigDict(protected_namespaces=()), **fields)
    memory = with_memory(make_memory, schema=schema)
    model = Scripted.says(calls({"memory": {name: "x", "other": None}, "clear": None}), "noted")
    found = invoke(create_agent(model, memory.tools(user_id="ann")), {"messages": [HumanMessage("hi")]})
    assert results(found["messages"])[0].status == "success"
    assert known(memory) == {name: "x"}
    invoke(update_tool(memory), {"memory": None, "clear": [name]})
    assert known(memory) == {}


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


@pytest.mark.parametrize("absent", ["", "nmae", "job.role", "name.first", ".", "pets.0"])
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
        found = [part for part in objects(patch) if not part.get("properties")]
        assert found
        assert all(bool(part["additionalProperties"]) is open_ for part in found)


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
