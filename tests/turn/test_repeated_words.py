"""Words that were said before, in lists and states with several new turns: nothing is lost, and nothing comes twice."""

from __future__ import annotations

from time import thread_time
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_workingmem import Memory

IDS: Any = {"thread_id": "t", "user_id": "u"}


def said(*texts: str, ids: str = "") -> list[BaseMessage]:
    kinds: list[Any] = [HumanMessage, AIMessage]
    return [kinds[at % 2](text, id=f"{ids}{at}" if ids else None) for at, text in enumerate(texts)]


def stored(memory: Memory) -> list[str]:
    return [str(one.text) for one in memory.history.messages("t")]


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["where?", "monday", "thanks", "welcome"], ["return?", "yes", "great", "welcome"]),
        (["q0", "ok"], ["q1", "ok", "q2", "ok"]),
        (["x", "ok"], ["q1", "fine", "q2", "ok"]),
        (["hi", "hello"], ["one", "1", "hi", "hey"]),
    ],
)
def test_new_turns_that_end_with_known_words_are_stored_whole(
    plain: Memory, has_ids: bool, before: list[str], after: list[str]
) -> None:
    plain.save_turn(said(*before, ids="o" * has_ids), **IDS)
    plain.save_turn(said(*after, ids="n" * has_ids), **IDS)
    assert stored(plain) == [*before, *(after if has_ids else after[2:])]  # without ids it is a new turn


@pytest.mark.parametrize("answers", [["ok"] * 5, ["ok", "no", "ok", "no", "no"]])
@pytest.mark.parametrize("asks", [[f"q{at}" for at in range(5)], ["hi"] * 5])
def test_a_graph_whose_answers_repeat_keeps_each_turn(plain: Memory, answers: list[str], asks: list[str]) -> None:
    left = iter(answers)
    graph = StateGraph(MessagesState)
    graph.add_node("answer", lambda _: {"messages": [AIMessage(next(left))]})
    graph.add_node("save", plain.save_node())
    graph.add_edge(START, "answer")
    graph.add_edge("answer", "save")
    app = graph.compile(checkpointer=InMemorySaver())
    for text in asks:
        app.invoke({"messages": [HumanMessage(text)]}, {"configurable": IDS})
    assert stored(plain) == [text for pair in zip(asks, answers, strict=True) for text in pair]


def test_the_first_turn_of_another_state_is_new_whatever_it_says(plain: Memory) -> None:
    plain.save_turn(said("hi", "ok"), **IDS)
    graph = StateGraph(MessagesState)
    graph.add_node("load", plain.load_node(into="messages"))
    graph.add_node("answer", lambda _: {"messages": [AIMessage("ok")]})
    graph.add_node("save", plain.save_node())
    graph.add_edge(START, "load")
    graph.add_edge("load", "answer")
    graph.add_edge("answer", "save")
    graph.compile(checkpointer=InMemorySaver()).invoke({"messages": [HumanMessage("hi")]}, {"configurable": IDS})
    assert stored(plain) == ["hi", "ok"] * 2


def test_an_answer_to_a_question_that_was_deleted_meanwhile_is_not_stored(plain: Memory) -> None:
    plain.save_turn(said("old", "x"), **IDS)
    asked = HumanMessage("secret", id="Q")
    plain.history.append([asked], **IDS)
    plain.context([asked], **IDS)
    plain.history.delete(["Q"], thread_id="t")
    assert plain.save_turn([asked, AIMessage("of the secret")], **IDS) == []
    assert stored(plain) == ["old", "x"]


def test_a_long_list_of_repeated_words_is_compared_in_little_time(plain: Memory) -> None:
    talk = said(*["ping", "pong"] * 200)
    plain.history.append(talk, **IDS)
    began = thread_time()
    plain.context([*said(*["ping", "pong"] * 400), HumanMessage("new")], **IDS)
    assert thread_time() - began < 1
