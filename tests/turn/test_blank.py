"""A question without words: the model is called with something, and nothing empty is stored."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Bench, Scripted, ask, configured
from tests.helpers.types import Make

IDS: Any = {"thread_id": "t", "user_id": "u"}
BLANK: list[Any] = ["", [{"type": "text", "text": " "}]]


@pytest.mark.parametrize("content", BLANK)
def test_a_blank_question_is_shown_as_one_and_not_stored(make_memory: Make, content: Any) -> None:
    memory = make_memory(embeddings=WordEmbeddings())
    for turn in range(2):
        context = memory.context([HumanMessage(content, id=f"q{turn}")], **IDS)
        assert context.messages[-1].text.endswith("(empty message)")
        memory.save_turn([*context.messages, AIMessage(f"What is it? {turn}")], **IDS)
    assert [one.text for one in memory.history.messages("t")] == ["What is it? 0", "What is it? 1"]
    assert memory.context("", **IDS).messages[-1].text.endswith("(empty message)")


@pytest.mark.parametrize("saver", [None, InMemorySaver()])
def test_an_agent_never_calls_its_model_with_nothing(bench: Bench, saver: InMemorySaver | None) -> None:
    memory, model = bench.memory(), Scripted.says("Yes?", "Fine.")
    agent = create_agent(model, [], middleware=[MemoryMiddleware(memory)], checkpointer=saver)
    for text in ("", "How are you?"):
        bench.run(agent, ask(text), configured("t", "u"))
    speech = "" if saver else "<said_by_assistant>\nYes?\n</said_by_assistant>\n\n"  # a state keeps the empty question
    assert [[one.text for one in seen][-1] for seen in model.seen] == ["(empty message)", f"{speech}How are you?"]
    assert [one.text for one in memory.history.messages("t")] == ["Yes?", "How are you?", "Fine."]
