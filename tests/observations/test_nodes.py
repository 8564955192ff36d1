"""Nodes of a StateGraph with observations: each message is shown once, whatever the state keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from langchain_workingmem import HistoryOptions, Memory, MemoryContext
from langchain_workingmem._text.said import weight_of
from tests.faces.nodes_samples import Recording, chat, who
from tests.helpers.conversations import accept
from tests.helpers.models import calling, own
from tests.observations.noting import Noting, check_shown_once, notes_in, observing, raw_marks, words
from tests.helpers.types import Invoke, Make

pytestmark = pytest.mark.in_turn("face")

TURNS = 12


class Shown(MessagesState):
    memory: MemoryContext


def beside(memory: Memory, model: Recording, **compiled: Any) -> Any:
    """A graph whose memory is in another key than the messages."""

    def answer(state: Shown) -> dict[str, list[BaseMessage]]:
        return {"messages": [model.invoke([*state["memory"].messages])]}

    graph = StateGraph(Shown)
    graph.add_node("load", memory.load_node(into="memory"))
    graph.add_node("answer", answer)
    graph.add_node("save", memory.save_node())
    graph.add_edge(START, "load")
    graph.add_edge("load", "answer")
    graph.add_edge("answer", "save")
    graph.add_edge("save", END)
    return graph.compile(**compiled)


def marks(count: int) -> list[str]:
    return [f"mark{at}x" for at in range(count)]


def talk(memory: Memory, graph: Any, model: Recording, invoke: Invoke, turns: int, first: int = 0) -> None:
    for at in range(first, first + turns):
        model.script.append(AIMessage(words(2 * at + 1)))
        invoke(graph, {"messages": [HumanMessage(words(2 * at), id=f"q{at}")]}, who())
        memory.observations.observe("t")


@pytest.mark.parametrize("made", [chat, beside])
def test_each_message_is_shown_once_as_it_is_or_by_the_log(
    make_memory: Make, model: Recording, invoke: Invoke, saver: InMemorySaver | None, made: Any
) -> None:
    memory = make_memory(observations=observing(Noting()))
    graph = made(memory, model, checkpointer=saver)

    talk(memory, graph, model, invoke, TURNS)

    noted = [check_shown_once(seen, marks(2 * at + 1)) for at, seen in enumerate(model.seen)]
    assert noted[-1] > 10
    rows = memory.history.messages("t")
    assert own(rows) == rows
    assert [*raw_marks(rows)] == marks(2 * TURNS)


@pytest.mark.parametrize("made", [chat, beside])
def test_the_result_of_a_graph_may_be_sent_again(
    make_memory: Make, model: Recording, invoke: Invoke, saver: InMemorySaver | None, made: Any
) -> None:
    """A client that appends to what the graph returned, blocks of memory included."""
    memory = make_memory(observations=observing(Noting()))
    graph = made(memory, model, checkpointer=saver)

    sent: Sequence[AnyMessage] = []
    for at in range(TURNS):
        model.script.append(AIMessage(words(2 * at + 1)))
        asked = HumanMessage(words(2 * at), id=f"q{at}")
        sent = invoke(graph, {"messages": [*sent, asked]}, who())["messages"]
        memory.observations.observe("t")

    for at, seen in enumerate(model.seen):
        check_shown_once(seen, marks(2 * at + 1))
    rows = memory.history.messages("t")
    assert own(rows) == rows
    assert [*raw_marks(rows)] == marks(2 * TURNS)
    assert not notes_in(rows)


@pytest.mark.parametrize("made", [chat, beside])
def test_an_edited_message_is_shown_as_it_is_again(
    make_memory: Make, model: Recording, invoke: Invoke, saver: InMemorySaver | None, made: Any
) -> None:
    """Observed messages, which the state may no longer hold, come back when their observations go."""
    memory = make_memory(observations=observing(Noting()))
    graph = made(memory, model, checkpointer=saver)
    talk(memory, graph, model, invoke, TURNS)
    assert "mark4x" in notes_in(model.seen[-1])

    edited = HumanMessage(words(104), id="q2")
    memory.history.update([edited], thread_id="t", user_id="ann")
    if saver is not None and any(one.id == "q2" for one in graph.get_state(who()).values["messages"]):
        graph.update_state(who(), {"messages": [edited]}, as_node="save")
    model.script += [AIMessage(words(2 * at + 1)) for at in (TURNS, TURNS + 1)]
    expected = ["mark104x", *(mark for mark in marks(2 * TURNS) if mark != "mark4x")]
    for at in (TURNS, TURNS + 1):
        invoke(graph, {"messages": [HumanMessage(words(2 * at), id=f"q{at}")]}, who())
        expected.append(f"mark{2 * at}x")
        check_shown_once(model.seen[-1], expected)
        assert "mark104x" in raw_marks(model.seen[-1])
        expected.append(f"mark{2 * at + 1}x")
    assert len(memory.history.messages("t")) == 2 * TURNS + 4


def test_a_state_that_loads_memory_in_each_step_is_shown_its_open_steps(
    make_memory: Make, model: Recording, invoke: Invoke, saver: InMemorySaver | None, face: str
) -> None:
    """A loop with memory in it: finished steps of the present turn are observed while it goes on."""
    memory = make_memory(observations=observing(Noting()))

    @tool
    def look(number: int) -> str:
        """Look at something."""
        return words(1000 + number)

    graph = StateGraph(MessagesState)
    graph.add_node("load", memory.load_node())
    graph.add_node("answer", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("save", memory.save_node())
    graph.add_node("observe", lambda _: memory.observations.observe("t") and {} if face == "sync" else {})
    graph.add_node("tools", ToolNode([look]))
    graph.add_edge(START, "load")
    graph.add_edge("load", "answer")
    graph.add_edge("answer", "save")
    graph.add_edge("save", "observe")
    graph.add_conditional_edges("observe", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "load")
    agent = graph.compile(checkpointer=saver)

    expected: list[str] = []
    for turn in range(3):
        model.seen.clear()
        steps = 20 if turn == 1 else 3
        base = 100 * turn
        model.script += [calling(("look", {"number": base + at}), id=f"c{base + at}") for at in range(steps)]
        model.script.append(AIMessage(words(base + 1)))
        config = {**who(), "recursion_limit": 500}
        invoke(agent, {"messages": [HumanMessage(words(base), id=f"q{turn}")]}, config)
        expected.append(f"mark{base}x")
        for at, seen in enumerate(model.seen):
            if at:
                expected.append(f"mark{1000 + base + at - 1}x")
            check_shown_once(seen, expected)
            assert f"mark{base}x" in raw_marks(seen)
        expected.append(f"mark{base + 1}x")
    rows = memory.history.messages("t")
    assert sum(isinstance(one, ToolMessage) for one in rows) == 26
    if face == "sync":
        assert notes_in(model.seen[-1])


def test_a_limit_takes_the_oldest_steps_out_of_the_state(
    make_memory: Make, model: Recording, invoke: Invoke, saver: InMemorySaver | None
) -> None:
    """Nobody observes; each step is saved, and the next turn is shown them from the store."""
    memory = make_memory(history=HistoryOptions(max_tokens=1_000), observations=observing(Noting()))

    @tool
    def look(number: int) -> str:
        """Look at something."""
        return words(1000 + number, 100)

    graph = StateGraph(MessagesState)
    graph.add_node("load", memory.load_node())
    graph.add_node("answer", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("save", memory.save_node())
    graph.add_node("tools", ToolNode([look]))
    graph.add_edge(START, "load")
    graph.add_edge("load", "answer")
    graph.add_edge("answer", "save")
    graph.add_conditional_edges("save", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "load")
    model.script += [calling(("look", {"number": at}), id=f"c{at}") for at in range(20)]
    model.script += [AIMessage(words(1)), AIMessage(words(3))]
    agent = graph.compile(checkpointer=saver)
    config = {**who(), "recursion_limit": 500}
    invoke(agent, {"messages": [HumanMessage(words(0), id="q0")]}, config)

    for at, seen in enumerate(model.seen):
        accept(seen)
        assert weight_of(own(seen)) <= 1_000
        assert "mark0x" in raw_marks(seen)
        assert not at or f"mark{1000 + at - 1}x" in raw_marks(seen)
    assert len(model.seen[-1]) < 20
    told = ["mark0x", *(f"mark{1000 + at}x" for at in range(20)), "mark1x"]
    assert [*raw_marks(memory.history.messages("t"))] == told

    memory.observations.observe("t")
    invoke(agent, {"messages": [HumanMessage(words(2), id="q2")]}, config)
    check_shown_once(model.seen[-1], [*told, "mark2x"])
