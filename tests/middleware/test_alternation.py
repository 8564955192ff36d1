"""A deletion may leave two messages of the user in a row: the recipe of docs/history.md merges them for the model alone."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain_core.messages import merge_message_runs
from langgraph.graph import START, MessagesState, StateGraph

from langchain_workingmem import Memory
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import Bench, Scripted, ask, said
from tests.middleware.samples import stored


@wrap_model_call
def alternate(request: Any, handler: Any) -> Any:
    return handler(request.override(messages=merge_message_runs(request.messages)))


def as_agent(memory: Memory, model: Scripted) -> Any:
    return create_agent(model, [], middleware=[MemoryMiddleware(memory), alternate])


def as_graph(memory: Memory, model: Scripted) -> Any:
    merged = merge_message_runs() | model

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [merged.invoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("load", memory.load_node()).add_node("model", answer)
    graph.add_node("save", memory.save_node()).add_edge(START, "load")
    return graph.add_edge("load", "model").add_edge("model", "save").compile()


@pytest.mark.parametrize("make", [as_agent, as_graph])
def test_the_model_sees_strict_alternation_and_the_store_keeps_both(bench: Bench, make: Any) -> None:
    memory, model = bench.memory(), Scripted.says("a1", "a2", "a3", "a4")
    agent = make(memory, model)
    for text in ("q1", "q2", "q3"):
        bench.run(agent, ask(text))
    before = {str(one.text): one.id or "" for one in memory.history.messages("t")}
    gone = [before["a1"], before["q3"]]
    memory.history.delete(gone, thread_id="t")
    result = bench.run(agent, ask("q4"))
    assert said(model.seen[-1]) == ["human: q1\nq2", "ai: a2\na3", "human: q4"]
    assert stored(memory) == ["human: q1", "human: q2", "ai: a2", "ai: a3", "human: q4", "ai: a4"]
    after = {str(one.text): one.id or "" for one in memory.history.messages("t")}
    assert {text: id for text, id in before.items() if id not in gone}.items() <= after.items()
    assert [one.text for one in result["messages"]][-2:] == ["q4", "a4"]
    assert not {"q1\nq2", "a2\na3"} & {one.text for one in result["messages"]}
