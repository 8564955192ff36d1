"""Whose thread a run of the nodes is, and what a node leaves alone that only reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph

from langchain_workingmem import IdError, Memory
from tests.faces.nodes_samples import Recording, chat, say, spoken, who
from tests.helpers.models import remembered
from tests.helpers.types import Invoke

pytestmark = pytest.mark.in_turn("face")

# ---------------------------------------------------------------------- ids


@dataclass
class Context:
    thread_id: str | None = None
    user_id: str | None = None


def test_ids_come_from_the_context(plain: Memory, model: Recording, invoke: Invoke) -> None:
    graph = chat(plain, model, context_schema=Context)
    invoke(graph, say("one"), context=Context(thread_id="t", user_id="ann"))
    thread = plain.threads.get("t")
    assert thread is not None
    assert (thread.user_id, thread.message_count) == ("ann", 2)


@pytest.mark.parametrize("node", ["load", "save"])
def test_a_run_without_ids_says_how_to_pass_them(plain: Memory, invoke: Invoke, node: str) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("only", plain.load_node() if node == "load" else plain.save_node())
    graph.add_edge(START, "only")
    with pytest.raises(IdError, match=r"thread_id is missing.*config\['configurable'\]"):
        invoke(graph.compile(), say("one"))


# ---------------------------------------------------------------------- reading only


def test_a_read_only_node_does_not_tell_the_model_to_update(
    remembering: Memory, model: Recording, invoke: Invoke
) -> None:
    invoke(chat(remembering, model, read_only=True), say("one"), who())
    invoke(chat(remembering, model), say("two"), who())
    assert ["update_working_memory" in remembered(seen) for seen in model.seen] == [False, True]


def test_loading_writes_nothing(remembering: Memory, raw: Any, prefix: str, invoke: Invoke) -> None:
    remembering.setup()
    before = set(raw.keys(f"{prefix}*"))
    graph = StateGraph(MessagesState)
    graph.add_node("load", remembering.load_node(read_only=True))
    graph.add_edge(START, "load")
    state = invoke(graph.compile(), say("one"), who())
    assert spoken(state["messages"]) == ["one"]
    assert set(raw.keys(f"{prefix}*")) == before
