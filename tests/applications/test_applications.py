"""Whole applications, as people build them; each was once found to go wrong in silence."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState

from langchain_workingmem import Memory, WorkingMemoryOptions
from tests.applications.test_straight_line import graph_of
from tests.helpers.models import Bench, Scripted, agent_of, ask, said
from tests.middleware.samples import TURN, stored

pytestmark = pytest.mark.in_turn("face")


def spoken(memory: Memory) -> list[str]:
    return [str(message.text) for message in memory.history.messages("t")]


class RefusedError(Exception):
    """What a provider answers to a request that it will never take."""

    status_code = 400


# ---------------------------------------------------------------------- a provider that refuses


@pytest.mark.parametrize("checkpointer", [False, True])
def test_a_question_that_the_provider_refuses_is_not_sent_again(bench: Bench, checkpointer: bool) -> None:
    memory = bench.memory()
    model = Scripted.says("fine", RefusedError("bad"), "better", "well")
    agent = agent_of(model, memory, checkpointer=InMemorySaver() if checkpointer else None)
    bench.run(agent, ask("one"))
    with pytest.raises(RefusedError):
        bench.run(agent, ask("a bad one"))
    bench.run(agent, ask("two"))
    assert said(model.seen[-1]) == ["human: one", "ai: fine", "human: two"]
    bench.run(agent, ask("three"))
    assert "human: a bad one" not in said(model.seen[-1])
    assert "human: a bad one" in stored(memory)
    refused = [row.message.text for row in memory.history.page("t") if row.refused]
    assert refused == ["a bad one"]


# ---------------------------------------------------------------------- clients


def test_a_client_that_sends_its_tool_traffic_without_ids_stores_it_once(bench: Bench) -> None:
    memory = bench.memory()
    sent: list[dict[str, Any]] = []
    for at in range(3):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        sent += [
            {"role": "user", "content": f"q{at}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{at}", "content": f"result {at}"},
        ]
        shown = memory.context(list(sent), **TURN).messages
        assert len(shown) == len(sent)
        sent.append({"role": "assistant", "content": f"a{at}"})
        memory.save_turn(list(sent), **TURN)
    assert [message.type for message in memory.history.messages("t")] == ["human", "ai", "tool", "ai"] * 3


def test_an_answer_that_comes_late_leaves_nobody_behind(bench: Bench) -> None:
    memory = bench.memory()
    x, y = HumanMessage("x", id="x"), HumanMessage("y", id="y")
    for asked in (x, y):
        memory.context([asked], **TURN)
    memory.save_turn([x, AIMessage("to x")], **TURN)
    memory.save_turn([HumanMessage("z"), AIMessage("to z")], **TURN)
    memory.save_turn([y, AIMessage("to y")], **TURN)
    assert spoken(memory) == ["x", "to x", "z", "to z", "y", "to y"]
    memory.context([y], **TURN)
    memory.save_turn([y, AIMessage("to y again")], **TURN)
    assert spoken(memory) == ["x", "to x", "z", "to z", "y", "to y again"]


# ---------------------------------------------------------------------- the copy with memory's text


@pytest.mark.parametrize("checkpointer", [False, True])
def test_a_context_that_is_the_input_of_an_agent_shows_memory_once(bench: Bench, checkpointer: bool) -> None:
    memory = bench.memory(working_memory=WorkingMemoryOptions())
    model = Scripted.says("fine")
    agent = agent_of(model, memory, checkpointer=InMemorySaver() if checkpointer else None)
    memory.save_turn([HumanMessage("q1"), AIMessage("a1")], **TURN)
    bench.run(agent, {"messages": memory.context("q2", **TURN).messages})
    assert str(model.seen[-1]).count("<working_memory>") == 1
    assert spoken(memory) == ["q1", "a1", "q2", "fine"]


# ---------------------------------------------------------------------- graphs


def test_a_save_that_is_tried_again_after_a_regeneration_saves_once(bench: Bench) -> None:
    memory = bench.memory()
    save = memory.save_node()

    def twice(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        save.invoke(state, config)
        return save.invoke(state, config)

    model = Scripted.says("a1", "a2", "a2 again")
    app = graph_of(model, ("load", memory.load_node()), ("save", twice))
    config: Any = {"configurable": {"thread_id": "t", "user_id": "ann"}}
    for texts in (["q1"], ["q1", "a1", "q2"], ["q1", "a1", "q2"]):
        kinds = (HumanMessage, AIMessage)
        app.invoke({"messages": [kinds[at % 2](text) for at, text in enumerate(texts)]}, config)
    assert spoken(memory) == ["q1", "a1", "q2", "a2 again"]
