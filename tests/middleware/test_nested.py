"""Agents with `MemoryMiddleware` inside of other graphs and inside of tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from langchain_workingmem import RecallOptions, WorkingMemoryOptions
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import CONFIG, Bench, Scripted, agent_of, ask, calling, handing_over, remembered, said
from tests.middleware.samples import TURN, stored

pytestmark = pytest.mark.both_faces

# ---------------------------------------------------------------------- inside of other graphs and tools


@pytest.mark.parametrize(
    "name",
    [
        "assistant",
        # by its name alone LangGraph's usual node of tools cannot be told from an agent that is called so
        pytest.param("tools", marks=pytest.mark.xfail(strict=True)),
    ],
)
def test_an_agent_that_is_a_node_of_a_graph_is_saved(bench: Bench, saver: InMemorySaver | None, name: str) -> None:
    memory = bench.memory()
    model = Scripted.says("two", "four")
    graph = StateGraph(MessagesState)
    graph.add_node(name, agent_of(model, memory))
    graph.add_edge(START, name)
    graph.add_edge(name, END)
    app = graph.compile(checkpointer=saver)
    bench.run(app, ask("one"))
    bench.run(app, ask("three"))
    assert said(model.seen[1]) == ["human: one", "ai: two", "human: three"]
    assert stored(memory) == ["human: one", "ai: two", "human: three", "ai: four"]


@pytest.mark.parametrize(
    "name",
    [
        "tools",
        # nothing tells that a node of another name runs tools, unless the outer agent has our middleware
        pytest.param("act", marks=pytest.mark.xfail(strict=True)),
    ],
)
def test_an_agent_in_a_tool_of_a_graph_stores_nothing_in_the_outer_thread(bench: Bench, name: str) -> None:
    memory = bench.memory()
    inner = agent_of(Scripted.says("Molly"), memory)
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda _: {"messages": [calling(("expert", {"question": "cat"}), id="a")]})
    graph.add_node(name, ToolNode([handing_over(bench.face, inner)]))
    graph.add_edge(START, "model")
    graph.add_edge("model", name)
    result = bench.run(graph.compile(), ask("which cat"))
    assert said(result["messages"])[-1] == "tool: Molly"
    assert stored(memory) == []


def test_two_agents_of_one_graph_share_the_thread_in_order(bench: Bench, saver: InMemorySaver | None) -> None:
    memory = bench.memory()
    first, second = Scripted.says("a", "c"), Scripted.says("b", "d")
    graph = StateGraph(MessagesState)
    graph.add_node("first", agent_of(first, memory))
    graph.add_node("second", agent_of(second, memory))
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    app = graph.compile(checkpointer=saver)
    bench.run(app, ask("one"))
    bench.run(app, ask("two"))
    assert said(second.seen[1]) == ["human: one", "ai: a", "ai: b", "human: two", "ai: c"]
    assert stored(memory) == [*said(second.seen[1]), "ai: d"]


# ---------------------------------------------------------------------- agents inside of tools


@pytest.mark.parametrize("saver", [True, False], ids=["checkpointer", "no checkpointer"])
def test_an_agent_in_a_tool_sees_memory_and_stores_nothing(bench: Bench, saver: bool) -> None:
    recall = RecallOptions(top_k=1, message_range=0)
    memory = bench.recalling(recall=recall, working_memory=WorkingMemoryOptions(template=""))
    memory.history.append([HumanMessage("my cat is Molly", id="1")], thread_id="pets", resource_id="ann")
    memory.history.append([HumanMessage("hello", id="2"), AIMessage("hi", id="3")], **TURN)
    memory.working_memory.update("Ann has a dog", **TURN)
    inside = Scripted.says("Molly", "Molly")
    inner = create_agent(inside, [], middleware=[MemoryMiddleware(memory)])
    both = calling(("expert", {"question": "cat"}), ("expert", {"question": "my cat"}), id="a")
    outside = Scripted.says(both, "it is Molly")
    checkpointer = InMemorySaver() if saver else None
    agent = create_agent(
        outside, [handing_over(bench.face, inner)], middleware=[MemoryMiddleware(memory)], checkpointer=checkpointer
    )
    bench.run(agent, ask("which cat"))
    for messages in inside.seen:
        known = remembered(messages)
        assert ("my cat is Molly" in known, "Ann has a dog" in known) == (True, True)
        assert said(messages) in (["human: cat"], ["human: my cat"])
    assert stored(memory) == [
        "human: hello",
        "ai: hi",
        "human: which cat",
        "ai: expert#a-0 expert#a-1",
        "tool: Molly",
        "tool: Molly",
        "ai: it is Molly",
    ]
    assert memory.threads.list(resource_id="ann").total == 2


def several(messages: Sequence[Any], kind: str) -> int:
    return sum(message.type == kind for message in messages)


def test_an_agent_in_a_tool_with_a_thread_of_its_own_is_saved_there(bench: Bench) -> None:
    memory = bench.memory()
    inner = create_agent(Scripted.says("Molly"), [], middleware=[MemoryMiddleware(memory)])
    own: Any = {"configurable": {"thread_id": "own", "user_id": "ann"}}
    outer = Scripted.says(calling(("expert", {"question": "cat"}), id="a"), "it is Molly")
    agent = create_agent(
        outer, [handing_over(bench.face, inner.with_config(own))], middleware=[MemoryMiddleware(memory)]
    )
    bench.run(agent, ask("which cat"), CONFIG)
    assert stored(memory, "own") == ["human: cat", "ai: Molly"]
    assert several(memory.history.messages("t"), "human") == 1
