"""The store where LangGraph puts it: in graphs, in agents, below langmem's tools."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent

from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import CONFIG, Scripted, ask, calling, configured
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


def test_the_tools_of_langmem_remember_and_find_per_user(indexed: Any, invoke: Invoke) -> None:
    tools = [create_manage_memory_tool(("memories", "{user_id}")), create_search_memory_tool(("memories", "{user_id}"))]
    model = Scripted.says(
        calling(("manage_memory", {"content": "the dog is called Nougat", "action": "create"}), id="a"),
        "noted",
        calling(("search_memory", {"query": "dog called"}), id="b"),
        "Nougat",
        calling(("search_memory", {"query": "dog called"}), id="c"),
        "no idea",
    )
    agent: Any = create_agent(model, tools, store=indexed)
    invoke(agent, ask("my dog is called Nougat"), CONFIG)
    found = invoke(agent, ask("which dog?"), CONFIG)["messages"][-2].text
    assert "the dog is called Nougat" in found
    assert "Nougat" not in invoke(agent, ask("which dog?"), configured("t", "tom"))["messages"][-2].text
