"""Words and ids of answers that repeat, as those of caches do: nothing is lost, and nothing comes twice."""

from __future__ import annotations

from time import thread_time
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_workingmem import Memory
from tests.helpers.models import Scripted, agent_of

IDS: Any = {"thread_id": "t", "user_id": "u"}


def said(*texts: str, ids: str = "") -> list[BaseMessage]:
    kinds: list[Any] = [HumanMessage, AIMessage]
    return [kinds[at % 2](text, id=f"{ids}{at}" if ids else None) for at, text in enumerate(texts)]


def stored(memory: Memory) -> list[str]:
    return [str(one.text) for one in memory.history.messages("t")]


def test_a_turn_that_is_saved_again_hides_nothing_of_others(plain: Memory) -> None:
    for texts, ids in ((("q0", "a0"), "o"), (("q1", "a1"), "n"), (("q0", "a0"), "o")):  # a webhook comes twice
        plain.save_turn(said(*texts, ids=ids), **IDS)
    assert stored(plain) == ["q0", "a0", "q1", "a1"]


def test_a_list_goes_on_behind_the_first_question_with_the_newest_answer(plain: Memory) -> None:
    turns = [said(f"q{at}", f"a{at}") for at in range(3)]
    for turn in turns:
        plain.save_turn(turn, **IDS)
    plain.save_turn([HumanMessage("q0"), AIMessage("a2"), HumanMessage("q3"), AIMessage("a3")], **IDS)
    assert stored(plain) == ["q0", "a0", "q1", "a1", "q2", "a2", "q3", "a3"]


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


def test_a_long_list_of_repeated_words_is_compared_in_little_time(plain: Memory) -> None:
    talk = said(*["ping", "pong"] * 200)
    plain.history.append(talk, **IDS)
    began = thread_time()
    plain.context([*said(*["ping", "pong"] * 400), HumanMessage("new")], **IDS)
    assert thread_time() - began < 1


@pytest.mark.parametrize("answer", ["answer {}", "Sure."])
@pytest.mark.parametrize("numbered", [True, False])
def test_a_client_that_sends_its_whole_list_keeps_every_answer(plain: Memory, answer: str, numbered: bool) -> None:
    said: list[Any] = []
    for turn in range(4):
        said.append(HumanMessage(f"question {turn}", id=f"q{turn}" if numbered else None))
        shown = plain.context(said, **IDS).messages
        assert [one.text for one in shown] == [one.text for one in said]
        said.append(AIMessage(answer.format(turn), id="X"))
        plain.save_turn(said, **IDS)
    stored = plain.history.messages("t", superseded=True)
    assert [one.text for one in stored] == [one.text for one in said]


def test_an_edited_question_keeps_its_answer_whose_id_an_older_one_had(plain: Memory) -> None:
    model = Scripted.says(*(AIMessage(f"answer {turn}", id="rep") for turn in range(3)))
    agent = agent_of(model, plain, checkpointer=InMemorySaver())
    config: Any = {"configurable": IDS}
    agent.invoke({"messages": [HumanMessage("I live in Oslo")]}, config)
    asked, answered = agent.get_state(config).values["messages"]
    edited = [RemoveMessage(id=answered.id), HumanMessage("I live in Bergen", id=asked.id)]
    agent.invoke({"messages": edited}, config)
    agent.invoke({"messages": [HumanMessage("thanks")]}, config)
    state = [one.text for one in agent.get_state(config).values["messages"]]
    assert state == ["I live in Bergen", "answer 1", "thanks", "answer 2"]
    assert [one.text for one in plain.history.messages("t")] == state
    everything = [one.text for one in plain.history.messages("t", superseded=True)]
    assert everything == ["I live in Oslo", "answer 0", *state]


def test_a_question_that_is_saved_again_without_an_id_is_a_new_one(plain: Memory) -> None:
    plain.context("hi", **IDS)
    for answer in ("hello", "hello again"):
        plain.save_turn(said("hi", answer), **IDS)
    assert stored(plain) == ["hi", "hello", "hi", "hello again"]


def trip(city: str) -> list[BaseMessage]:
    """A structured answer."""
    call = {"name": "Trip", "args": {"city": city}, "id": city}
    return [AIMessage("", tool_calls=[call]), ToolMessage(f"to {city}", tool_call_id=city)]


def test_lists_without_ids_that_hold_structured_answers_are_stored_once(plain: Memory) -> None:
    for turns in range(1, 4):
        talk = [
            [HumanMessage("q1"), *trip("Linz")],
            [HumanMessage("q2"), AIMessage("a2")],
            [HumanMessage("q3"), *trip("Graz")],
        ]
        plain.save_turn([message for turn in talk[:turns] for message in turn], **IDS)
    assert stored(plain) == ["q1", "", "to Linz", "q2", "a2", "q3", "", "to Graz"]
    plain.history.append(plain.history.messages("t"), **IDS)  # an equal answer stays an answer
    assert [row.record["kind"] for row in plain.history.page("t") if row.role == "ai"] == ["a", "a", "a"]


def test_an_edit_in_a_list_without_ids_of_structured_answers_begins_a_branch(plain: Memory) -> None:
    first = [HumanMessage("q1"), *trip("Linz")]
    for more in ([], [HumanMessage("q2"), *trip("Graz")], [HumanMessage("q2 edited"), *trip("Wels")]):
        plain.save_turn([message.model_copy() for message in (*first, *more)], **IDS)
    assert stored(plain) == ["q1", "", "to Linz", "q2 edited", "", "to Wels"]


def test_another_id_of_a_stored_question_begins_no_race(plain: Memory) -> None:
    agent = agent_of(Scripted.says("a1", "a2"), plain, checkpointer=InMemorySaver())
    agent.invoke({"messages": [HumanMessage("q1")]}, {"configurable": IDS})
    state = agent.invoke({"messages": said("q1", "a1", "q2")}, {"configurable": IDS})["messages"]
    copy = state[2]  # of q1, as the client has sent all of its list
    plain.save_turn([HumanMessage("q1", id=copy.id), AIMessage("other")], **IDS)
    assert stored(plain) == ["q1", "other"]


def test_a_window_behind_constant_messages_may_hold_two_new_turns(plain: Memory) -> None:
    front = ["example", "its answer"]
    for length in (2, 4):
        plain.save_turn(said(*front, *["q1", "a1", "q2", "a2"][:length]), **IDS)
    plain.save_turn(said(*front, "q2", "a2", "q3", "a3", "q4", "a4"), **IDS)
    assert stored(plain) == [*front, "q1", "a1", "q2", "a2", "q3", "a3", "q4", "a4"]
