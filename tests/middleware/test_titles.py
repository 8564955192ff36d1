"""Titles that the agent's own model makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, TitleOptions
from langchain_workingmem._redis.scripts import change_thread
from tests.helpers.models import Bench, Scripted, agent_of, ask

pytestmark = pytest.mark.in_turn("face")


def test_the_agents_own_model_makes_the_title(bench: Bench) -> None:
    memory = bench.memory(title=TitleOptions())
    model = Scripted.says("sunny", "Weather in Oslo")
    bench.run(agent_of(model, memory), ask("how is the weather in Oslo?"))
    bench.runner.run(memory.asettled())
    assert [thread.title for thread in memory.threads.list()] == ["Weather in Oslo"]
    assert [message.text for message in model.seen[1][1:]] == ["how is the weather in Oslo?"]
    assert model.tools[1] == []


IN_T: dict[str, Any] = {"thread_id": "t", "user_id": "ann"}
WAYS: dict[str, Callable[[Memory], object]] = {
    "deleted": lambda memory: memory.history.delete(["q"], thread_id="t"),
    "edited": lambda memory: memory.history.update([HumanMessage("Hello", id="q")], thread_id="t"),
    "edited in a turn": lambda memory: memory.save_turn([HumanMessage("Hello", id="q"), AIMessage("Hi")], **IN_T),
    "cleared": lambda memory: memory.history.clear("t"),
    "superseded": lambda memory: memory.history.truncate("t", after="w"),
    "refused by a provider": lambda memory: memory._core.run(
        change_thread(memory._core.state, "t", None, "refuse", refused=["q"])
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_title_goes_with_the_message_that_it_was_made_from(bench: Bench, way: str) -> None:
    memory = bench.memory(title=TitleOptions(model=Scripted.says("Zebras", "Coats")))
    told: list[Any] = [AIMessage("Welcome", id="w"), HumanMessage("my zebra", id="q"), AIMessage("I see", id="a")]
    memory.save_turn([*told, HumanMessage("a red coat is warm", id="q2")], **IN_T)
    memory.settled()
    memory.history.delete(["a"], thread_id="t")  # the title was not made from it
    assert [one.title for one in memory.threads.list()] == ["Zebras"]
    WAYS[way](memory)
    memory.settled()
    remade = "Coats" if way == "edited in a turn" else None  # each turn of an untitled thread makes a title
    assert [one.title for one in memory.threads.list()] == [remade]
