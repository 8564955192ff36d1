"""What the nodes store when a save, the model or the embedding fails, and the run is tried again or resumed."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from langchain_workingmem import EmbeddingError, Memory, RecallOptions
from tests.faces.nodes_samples import say, stored, who
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.types import Invoke, Make

pytestmark = pytest.mark.both_faces

# ---------------------------------------------------------------------- failures


@pytest.mark.parametrize("on_error", ["raise", "log"])
def test_a_turn_whose_embedding_fails_is_saved(
    make_memory: Make,
    embeddings: WordEmbeddings,
    invoke: Invoke,
    on_error: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(), on_error=on_error)
    graph = StateGraph(MessagesState)
    graph.add_node("save", memory.save_node())
    graph.add_edge(START, "save")
    embeddings.broken = OSError("down")
    if on_error == "raise":
        with pytest.raises(EmbeddingError):
            invoke(graph.compile(), say("one"), who())
    else:
        invoke(graph.compile(), say("one"), who())
        assert "without vectors" in caplog.text
    assert stored(memory) == ["one"]


def test_a_turn_that_was_left_at_an_interrupt_is_saved_with_the_next(remembering: Memory, invoke: Invoke) -> None:
    """The tools interrupt, and instead of answering the user says something else."""
    answers = iter(
        [
            AIMessage("Let me book that.", tool_calls=[{"name": "book", "args": {}, "id": "1"}]),
            AIMessage("fine"),
        ]
    )

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [next(answers)]}

    def tools(state: MessagesState) -> dict[str, Any]:
        interrupt("really?")
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("load", remembering.load_node())
    graph.add_node("answer", answer)
    graph.add_node("tools", tools)
    graph.add_node("save", remembering.save_node())
    graph.add_edge(START, "load")
    graph.add_edge("load", "answer")
    graph.add_conditional_edges("answer", lambda state: "tools" if state["messages"][-1].tool_calls else "save")
    graph.add_edge("tools", "answer")
    app = graph.compile(checkpointer=InMemorySaver())
    invoke(app, {"messages": [HumanMessage("Book a hut, my number is 555")]}, who())
    invoke(app, {"messages": [HumanMessage("Never mind, hello")]}, who())
    assert [str(message.content) for message in remembering.history.messages("t")] == [
        "Book a hut, my number is 555",
        "Let me book that.",
        "Never mind, hello",
        "fine",
    ]
