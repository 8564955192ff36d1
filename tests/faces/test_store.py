"""The store where LangGraph puts it: in graphs, in agents, below langmem's tools."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage

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
