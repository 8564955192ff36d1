"""Applications that come from elsewhere: options that behave as VoltAgent documents it, and logs that an agent goes on with."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from pydantic import BaseModel

from langchain_workingmem import HistoryOptions, WorkingMemoryOptions
from langchain_workingmem.importers import from_openai
from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, configured, remembered, said

pytestmark = pytest.mark.in_turn("face")

LIKE_VOLTAGENT: dict[str, Any] = {
    "scope": "thread",
    "mode": "append",
    "tools": ("get", "update", "clear"),
    "template": "",
}
NAMES = ["get_working_memory", "update_working_memory", "clear_working_memory"]


def update(memory: Any, id: str) -> AIMessage:
    return calling(("update_working_memory", {"memory": memory}), id=id)


def test_one_line_of_options_is_the_working_memory_of_voltagent(bench: Bench) -> None:
    memory = bench.memory(
        working_memory=WorkingMemoryOptions(**LIKE_VOLTAGENT), history=HistoryOptions(last_messages=0)
    )
    model = Scripted.says(
        update("Has a dog.", "1"), "Fine.", update("Plays the cello.", "2"), "Nice.", "Hello!", "Hello!",
        calling(("get_working_memory", {}), id="3"), "Read.", calling(("clear_working_memory", {}), id="4"), "Gone.",
    )  # fmt: skip
    agent = agent_of(model, memory)
    alice = configured("one", "alice")
    bench.run(agent, ask("I have a dog"), alice)
    bench.run(agent, ask("I play the cello"), alice)
    assert all(names == NAMES for names in model.tools)
    text = memory.working_memory.get(thread_id="one", user_id="alice").text
    assert text == "Has a dog.\n\nPlays the cello.", "free text, appended after a blank line"

    for ids in (configured("two", "alice"), configured("three", "ben")):
        bench.run(agent, ask("Hello"), ids)
        assert "dog" not in remembered(model.seen[-1]), "each conversation has its own"

    turn = bench.run(agent, ask("What do you know?"), alice)
    assert text in remembered(model.seen[-1])
    assert turn["messages"][-2].text == text
    bench.run(agent, ask("Forget it"), alice)
    assert memory.working_memory.get(thread_id="one", user_id="alice").text == ""


def test_a_call_that_only_reads_keeps_the_tool_that_reads(bench: Bench) -> None:
    memory = bench.memory(working_memory=WorkingMemoryOptions(**LIKE_VOLTAGENT))
    model = Scripted.says("Hello!")
    bench.run(agent_of(model, memory), ask("Hello"), configured("one", "alice", memory={"read_only": True}))
    assert model.tools == [NAMES[:1]]
    assert memory.threads.get("one") is None, "and saves nothing"


class Plans(BaseModel):
    profile: dict[str, str] = {}
    goals: list[str] = []


def test_a_schema_appends_as_voltagent_does(bench: Bench) -> None:
    options = WorkingMemoryOptions(**{**LIKE_VOLTAGENT, "template": None, "schema": Plans, "scope": "user"})
    memory = bench.memory(working_memory=options)
    memory.working_memory.update({"profile": {"name": "Alice"}, "goals": ["Learn TypeScript"]}, user_id="alice")
    patch = {"profile": {"city": "Rome"}, "goals": ["Build an API", "Learn TypeScript"]}
    bench.run(agent_of(Scripted.says(update(patch, "1"), "Fine."), memory), ask("Hello"), configured("one", "alice"))
    merged = Plans(profile={"name": "Alice", "city": "Rome"}, goals=["Learn TypeScript", "Build an API"])
    assert memory.working_memory.get(user_id="alice").value == merged


def test_an_agent_goes_on_with_the_logs_of_openai(bench: Bench) -> None:
    look = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"place": "Cortina"}'}}
    hut: list[Any] = [
        {"role": "system", "content": "You book huts."},
        {"role": "user", "content": "A hut near Cortina?"},
        {"role": "assistant", "content": None, "tool_calls": [look]},
        {"role": "tool", "tool_call_id": "c1", "content": "Nuvolau"},
        {"role": "assistant", "content": "Rifugio Nuvolau."},
    ]
    memory = bench.recalling()
    logs: dict[str, list[Any]] = {
        "alice": [{"id": "huts", "messages": hut}],
        "ben": [[{"role": "user", "content": "A hut near Bozen?"}]],
    }
    for _ in range(2):  # a repetition adds nothing
        for owner, log in logs.items():
            memory.users.load(from_openai(log, user_id=owner))
    model = Scripted.says("Bed 12.", "In Cortina.", "I do not know.")
    agent = agent_of(model, memory)
    bench.run(agent, ask("Which bed?"), configured("huts", "alice"))
    assert said(model.seen[-1]) == [
        "human: A hut near Cortina?",
        "ai: look_up#c1",
        "tool: Nuvolau",
        "ai: Rifugio Nuvolau.",
        "human: Which bed?",
    ]
    bench.run(agent, ask("Where was the hut near Cortina?"), configured("new", "alice"))
    assert "A hut near Cortina?" in remembered(model.seen[-1])
    bench.run(agent, ask("Where was the hut near Cortina?"), configured("other", "ben"))
    assert "Cortina" not in remembered(model.seen[-1])
