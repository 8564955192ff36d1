"""A whole text that a model sends replaces what it was shown, not what others have written since."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from langchain_workingmem import Memory, WorkingMemoryOptions
from tests.helpers.models import Bench, Line, Scripted, agent_of, ask, calling
from tests.helpers.types import Invoke, Make
from tests.tools.samples import CLEAR, GET, TEMPLATE, UPDATE, Person, looping, results

RUN: dict[str, Any] = {"thread_id": "t", "user_id": "ann"}


def text_of(memory: Memory) -> str:
    return memory.working_memory.get(user_id="ann").text


def test_a_line_that_somebody_else_changed_comes_back_as_a_conflict(bench: Bench) -> None:
    memory = bench.memory(working_memory=WorkingMemoryOptions(template=TEMPLATE))

    def meanwhile(_: Any) -> AIMessage:
        memory.working_memory.update("# User\n- **Name**:\n- **City**: Ulm\n", user_id="ann")
        return calling((UPDATE, {"memory": "# User\n- **Name**: Ann\n- **City**: Bonn\n"}), id="a1")

    edit = {"edits": [{"find": "Ulm", "replace": "Bonn"}]}
    model = Scripted.says(meanwhile, calling((UPDATE, edit), id="a2"), "Noted.")
    conflict, done = results(bench.run(agent_of(model, memory), ask("I am Ann, of Bonn"))["messages"])
    assert conflict.status == "error"
    assert "now: - **City**: Ulm" in str(conflict.content)
    assert "nothing was changed" in str(conflict.content)
    assert done.status == "success"
    assert text_of(memory) == "# User\n- **Name**:\n- **City**: Bonn\n"


def said(name: str) -> dict[str, str]:
    return {"memory": f"# User\n- **Name**: {name}\n- **City**:\n"}


@pytest.mark.parametrize("kind", ["agent", "graph"])
def test_reading_and_clearing_count_from_the_next_step_on(bench: Bench, kind: str) -> None:
    memory = bench.memory(working_memory=WorkingMemoryOptions(template=TEMPLATE, tools=("update", "get", "clear")))

    def meanwhile(_: Any) -> AIMessage:
        memory.working_memory.update("# User\n- **Name**:\n- **City**: Ulm\n", user_id="ann")
        return calling((GET, {}), (UPDATE, said("Ann")), id="a1")

    known = "# User\n- **Name**: Ann\n- **City**: Bonn\n"
    lines: list[Line] = [meanwhile, calling((GET, {}), id="a2"), calling((UPDATE, {"memory": known}), id="a3")]
    more = [calling((CLEAR, {}), id="a4"), calling((UPDATE, said("Bob")), id="a5")]
    model = Scripted.says(*lines, *more, "Noted.")
    app = agent_of(model, memory) if kind == "agent" else looping(memory, model, include=[UPDATE, GET, CLEAR])
    found = results(bench.run(app, ask("I am Ann"))["messages"])
    assert [one.status for one in found] == ["success"] * 6, found
    assert "+ - **City**: Bonn" in str(found[3].content)
    assert text_of(memory) == said("Bob")["memory"]


def test_whole_documents_are_merged_by_field(bench: Bench) -> None:
    memory = bench.memory(working_memory=WorkingMemoryOptions(schema=Person, mode="replace"))
    memory.working_memory.update({"name": "Ann", "home": {"city": "Ulm"}}, user_id="ann")
    documents = [
        {"name": "Anna", "home": {"city": "Ulm"}},
        {"name": "Ann", "home": {"city": "Bonn"}},
        {"name": "Ann", "home": {"city": "Ulm"}, "age": 3},
    ]
    model = Scripted.says(calling(*((UPDATE, {"memory": one}) for one in documents), id="a1"), "Noted.")
    bench.run(agent_of(model, memory), ask("many things"))
    assert json.loads(text_of(memory)) == {"name": "Anna", "home": {"city": "Bonn"}, "age": 3}


def test_a_call_that_only_clears_takes_nothing_else_of_a_newer_document(make_memory: Make, invoke: Invoke) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(schema=Person, mode="replace"))
    memory.working_memory.update({"name": "Ann", "age": 3}, user_id="ann")
    memory.context("hi", **RUN)
    memory.working_memory.update({"name": "Anna", "age": 3}, user_id="ann")
    (update,) = memory.tools(**RUN)
    invoke(update, {"clear": ["age"]})
    assert json.loads(text_of(memory)) == {"name": "Anna"}
