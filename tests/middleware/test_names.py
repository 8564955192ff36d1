"""A speaker's name is sent as providers accept it, and stored as it was given."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from tests.helpers.models import CONFIG, Bench, Scripted, agent_of

FIRST = {"messages": [HumanMessage("hello", name="Zoë Smith", id="1")]}
SECOND = {"messages": [HumanMessage("again", name="Zoë Smith", id="2")]}


def test_an_agent_is_sent_acceptable_names(bench: Bench) -> None:
    memory = bench.memory()
    model = Scripted.says("hi", "yes")
    agent = agent_of(model, memory)
    for turn in (FIRST, SECOND):
        bench.run(agent, turn)
    assert [message.name for message in model.seen[1]] == ["Zoe_Smith", None, "Zoe_Smith"]
    assert [message.name for message in memory.history.messages("t")][::2] == ["Zoë Smith"] * 2


def test_a_graph_that_loads_into_its_messages_saves_the_names_that_were_given(bench: Bench) -> None:
    memory = bench.memory()
    model = Scripted.says("hi", "yes")

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = (
        StateGraph(MessagesState)
        .add_node("load", memory.load_node())
        .add_node("model", answer)
        .add_node("save", memory.save_node())
        .add_edge(START, "load")
        .add_edge("load", "model")
        .add_edge("model", "save")
        .compile()
    )
    for turn in (FIRST, SECOND):
        bench.run(graph, turn, CONFIG)
    assert [message.name for message in model.seen[1]] == ["Zoe_Smith", None, "Zoe_Smith"]
    stored = memory.history.messages("t")
    assert [message.name for message in stored][::2] == ["Zoë Smith"] * 2
    assert stored[0] == FIRST["messages"][0]
