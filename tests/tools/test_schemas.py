"""What a model is shown of the tools of working memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, ConfigDict, create_model

from tests.helpers.models import Scripted
from tests.helpers.types import Invoke, Make
from tests.tools.samples import (
    CLEAR,
    GET,
    TEMPLATE,
    UPDATE,
    Home,
    Person,
    calls,
    known,
    results,
    update_tool,
    with_memory,
)


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
    """Find every object with properties in a JSON schema."""
    if isinstance(schema, list):
        return [found for part in schema for found in objects(part)]
    if not isinstance(schema, dict):
        return []
    here = [schema] if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" else []
    return here + [found for part in schema.values() for found in objects(part)]


@pytest.mark.parametrize("options", SCHEMAS.values(), ids=SCHEMAS)
def test_strict_tools_require_every_property_allow_no_others_and_show_nothing_of_the_run(
    make_memory: Make, options: dict[str, Any]
) -> None:
    memory = with_memory(make_memory, **options)
    for tool in memory.tools(include=[UPDATE, GET, CLEAR]):
        shown = convert_to_openai_tool(tool, strict=True)["function"]
        assert shown["strict"] is True
        assert "$ref" not in json.dumps(shown)
        parts = objects(shown["parameters"]) or [shown["parameters"]]
        for part in parts:
            assert set(part.get("required", ())) == set(part["properties"])
            assert part["additionalProperties"] is False
            assert not {*part["properties"]} & {"thread_id", "user_id", "config", "runtime"}


def test_nothing_is_required_of_a_patch(make_memory: Make) -> None:
    shown = convert_to_openai_tool(update_tool(with_memory(make_memory, schema=Deep)))["function"]["parameters"]
    patch = shown["properties"]["memory"]["anyOf"][0]
    assert not shown.get("required")
    assert not patch.get("required")
    assert {"type": "null"} in patch["properties"]["home"]["anyOf"]


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
