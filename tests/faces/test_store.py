"""The store where LangGraph puts it: in graphs, in agents, below langmem's tools."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.tools import ToolRuntime, tool
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime

from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import CONFIG, Scripted
from tests.helpers.types import Invoke

pytestmark = pytest.mark.in_turn("face")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it imports names that langgraph deprecates
    from langmem import create_manage_memory_tool, create_search_memory_tool

Make = Callable[..., RedisMemoryStore]


@pytest.fixture
def indexed(make_store: Make, embeddings: WordEmbeddings, face: str) -> Any:
    """The store itself: graphs call its async methods in async runs."""
    store: Any = make_store(index={"dims": 64, "embed": embeddings})
    return store if face == "sync" else store._target


def call(name: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call-{len(str(arguments))}"}])


@tool
def note(text: str, runtime: ToolRuntime[None, Any]) -> str:
    """Note a text."""
    assert runtime.store is not None
    runtime.store.put(("notes", runtime.config["configurable"]["user_id"]), "last", {"text": text})
    return "noted"


def test_an_agent_s_tool_writes_to_it(indexed: Any, invoke: Invoke, store: RedisMemoryStore) -> None:
    agent: Any = create_agent(Scripted.says(call("note", text="Nougat"), "done"), [note], store=indexed)
    invoke(agent, {"messages": [HumanMessage("note it")]}, CONFIG)
    (item,) = store.search(("notes", "ann"))
    assert (item.key, item.value) == ("last", {"text": "Nougat"})


def test_a_graph_reads_and_writes_it_beside_its_checkpointer(indexed: Any, invoke: Invoke) -> None:
    def greet(state: MessagesState, runtime: Runtime[None]) -> dict[str, Any]:
        assert runtime.store is not None
        known = runtime.store.get(("names",), "user")
        runtime.store.put(("names",), "user", {"name": state["messages"][-1].text})
        return {"messages": [AIMessage(f"before: {known and known.value['name']}")]}

    builder = StateGraph(MessagesState)
    builder.add_node(greet)
    builder.add_edge(START, "greet")
    graph = builder.compile(checkpointer=InMemorySaver(), store=indexed)
    assert invoke(graph, {"messages": [HumanMessage("Maya")]}, CONFIG)["messages"][-1].text == "before: None"
    other = {"configurable": {"thread_id": "t2"}}
    assert invoke(graph, {"messages": [HumanMessage("Tom")]}, other)["messages"][-1].text == "before: Maya"


def test_the_tools_of_langmem_remember_and_find_per_user(indexed: Any, invoke: Invoke) -> None:
    tools = [create_manage_memory_tool(("memories", "{user_id}")), create_search_memory_tool(("memories", "{user_id}"))]
    model = Scripted.says(
        call("manage_memory", content="the dog is called Nougat", action="create"),
        "noted",
        call("search_memory", query="dog called"),
        "Nougat",
        call("search_memory", query="dog called"),
        "no idea",
    )
    agent: Any = create_agent(model, tools, store=indexed)
    tom = {"configurable": {"thread_id": "t", "user_id": "tom"}}
    invoke(agent, {"messages": [HumanMessage("my dog is called Nougat")]}, CONFIG)
    found = invoke(agent, {"messages": [HumanMessage("which dog?")]}, CONFIG)["messages"][-2].text
    assert "the dog is called Nougat" in found
    assert "Nougat" not in invoke(agent, {"messages": [HumanMessage("which dog?")]}, tom)["messages"][-2].text
