"""Lists that clients send: with ids or without, on another branch, or without words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import Memory, WorkingMemoryOptions
from tests.helpers.conversations import ai, result
from tests.helpers.models import Bench, Scripted, agent_of, configured
from tests.helpers.types import Make
from tests.turn.test_clients_at_once import texts

TURN: dict[str, Any] = {"thread_id": "t", "user_id": "ann"}


def lines(*words: str) -> list[BaseMessage]:
    """What a client without ids sends: questions and answers in turn."""
    return [(HumanMessage, AIMessage)[at % 2](text) for at, text in enumerate(words)]


def turn(memory: Memory, answer: str, *sent: str) -> list[str]:
    """One turn of a client that sends these; returns what the model is shown."""
    given = lines(*sent)
    context = memory.context(given, **TURN)
    memory.save_turn([*given, AIMessage(answer)], **TURN)
    return texts(context.messages)


@pytest.fixture
def talked(plain: Memory) -> Memory:
    """Two turns, the first with tool traffic."""
    traffic = [ai("", "x", id="c"), result("x", "r")]
    plain.save_turn([HumanMessage("one", id="q0"), *traffic, AIMessage("two", id="a0")], **TURN)
    plain.save_turn([HumanMessage("three", id="q1"), AIMessage("four", id="a1")], **TURN)
    return plain


WHOLE = ["one", "", "done", "two", "three", "four"]


def test_messages_without_ids_get_those_that_are_stored(talked: Memory) -> None:
    given = lines("one", "two", "three", "four", "five")
    talked.context(given, **TURN)
    assert [message.id for message in given[:4]] == ["q0", "a0", "q1", "a1"]
    saved = talked.save_turn([*lines("one", "two", "three", "four", "five"), AIMessage("six")], **TURN)
    assert [message.id for message in saved[:4]] == ["q0", "a0", "q1", "a1"]
    assert saved[4].id == talked.history.messages("t")[-2].id


def test_what_stands_behind_a_question_is_not_recalled_when_it_is_asked_again(memory: Memory) -> None:
    memory.save_turn(lines("hello", "hi", "which cheese?", "gouda"), **TURN)
    memory.history.append([AIMessage("cheese of the day: brie")], **TURN)
    assert "cheese of the day: brie" in texts(memory.recall.search("which cheese?", user_id="ann").messages)
    again = memory.context(lines("hello", "hi", "which cheese?"), **TURN)
    assert "brie" not in str(again.messages)


@pytest.mark.both_faces
def test_the_copy_of_the_question_is_saved_in_the_user_s_words(make_memory: Make, face: str) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions())
    savers: list[Callable[[list[BaseMessage], str], Any]] = [
        lambda found, thread: memory.save_turn(found, thread_id=thread, user_id="ann"),
        lambda found, thread: memory.history.append(found, thread_id=thread, user_id="ann"),
    ]
    if face == "sync":
        savers.append(lambda found, thread: memory.chat_history(thread, "ann").add_messages(found))
    for number, save in enumerate(savers):
        thread = f"t{number}"
        context = memory.context([HumanMessage("hello", id="q")], thread_id=thread, user_id="ann")
        assert "<working_memory>" in context.messages[-1].text
        save([*context.messages, AIMessage("hi", id="a")], thread)
        assert memory.history.messages(thread) == [HumanMessage("hello", id="q"), AIMessage("hi", id="a")]


@pytest.mark.parametrize("content", ["", [{"type": "text", "text": " "}]])
def test_an_agent_never_calls_its_model_with_nothing(bench: Bench, content: Any, saver: InMemorySaver | None) -> None:
    memory, model = bench.memory(), Scripted.says("Yes?", "Fine.")
    agent = agent_of(model, memory, checkpointer=saver)
    thread = f"t{bool(content)}{bool(saver)}"
    for asked in (content, "How are you?"):
        bench.run(agent, {"messages": [HumanMessage(asked)]}, configured(thread, "u"))
    speech = "<said_by_assistant>\nYes?\n</said_by_assistant>\n\n"
    assert [seen[-1].text for seen in model.seen] == ["(empty message)", f"{speech}How are you?"]
    assert [one.text for one in memory.history.messages(thread)] == ["Yes?", "How are you?", "Fine."]
    assert memory.context("", thread_id="new", user_id="u").messages[-1].text == "(empty message)"


def test_a_greeting_in_the_list_stands_in_front_of_the_user_s_words(bench: Bench) -> None:
    memory, model = bench.memory(), Scripted.says("Fine.", "Good.")
    agent = agent_of(model, memory)
    for asked in ("How are you?", "And now?"):
        bench.run(agent, {"messages": [AIMessage("Welcome!"), HumanMessage(asked)]}, configured("t", "u"))
    starts = [
        seen[0].text.replace("<said_by_assistant>\nWelcome!\n</said_by_assistant>\n\n", "") for seen in model.seen
    ]
    begins = [(seen[0].type, start) for seen, start in zip(model.seen, starts, strict=True)]
    assert begins == [("human", "How are you?")] * 2
    stored = [one.text for one in memory.history.messages("t")]
    assert stored == ["Welcome!", "How are you?", "Fine.", "And now?", "Good."]


def test_a_model_that_nobody_asks_is_told_what_it_has_said(bench: Bench) -> None:
    memory, model = bench.memory(), Scripted.says("And?")
    memory.history.append([AIMessage("Welcome <b>!", id="w")], thread_id="t", user_id="u")
    bench.run(agent_of(model, memory), {"messages": [AIMessage("Go on.", id="g")]}, configured("t", "u"))
    assert "<said_by_assistant>\nWelcome &lt;b&gt;!" in model.seen[0][0].text


@pytest.mark.parametrize(("first", "edited"), [("a A b", "a A b2"), ("HI b", "HI b2")])
def test_an_edit_behind_what_began_the_first_list_hides_nothing_and_repeats_nothing(
    plain: Memory, first: str, edited: str
) -> None:
    """It may be the next question of a program that sends the same examples with each, and perhaps its last turns."""

    def turn(words: str, answer: str) -> str:
        said = [(("user", "ai")[word.isupper()], word) for word in words.split()]
        plain.save_turn([*said, ("ai", answer)], thread_id="t", user_id="u")
        return " ".join(one.text for one in plain.history.messages("t"))

    turn(first, "B")
    assert turn(edited, "B2") == f"{first} B b2 B2"
    assert turn(f"{edited} B2 c", "C") == f"{first} B b2 B2 c C"
    assert turn(f"{edited} B2 c2", "C2") == f"{first} B b2 B2 c2 C2"
    assert turn(f"{first[:-2]} c2 C2 d", "D") == f"{first} B b2 B2 c2 C2 d D"
    assert turn(f"{first[:-2]} b2 B2 e E f", "F").startswith(f"{first} B b2 B2 c2 C2 d D")
