"""A question without words: the model is called with something, and nothing empty is stored."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from tests.helpers.models import Bench, Scripted, agent_of, configured


@pytest.mark.parametrize("content", ["", [{"type": "text", "text": " "}]])
@pytest.mark.parametrize("saver", [None, InMemorySaver()])
def test_an_agent_never_calls_its_model_with_nothing(bench: Bench, content: Any, saver: InMemorySaver | None) -> None:
    memory, model = bench.memory(), Scripted.says("Yes?", "Fine.")
    agent = agent_of(model, memory, checkpointer=saver)
    thread = f"t{bool(content)}{bool(saver)}"
    for asked in (content, "How are you?"):
        bench.run(agent, {"messages": [HumanMessage(asked)]}, configured(thread, "u"))
    speech = "" if saver else "<said_by_assistant>\nYes?\n</said_by_assistant>\n\n"  # a state keeps the empty question
    assert [seen[-1].text for seen in model.seen] == ["(empty message)", f"{speech}How are you?"]
    assert [one.text for one in memory.history.messages(thread)] == ["Yes?", "How are you?", "Fine."]
    assert memory.context("", thread_id="new", user_id="u").messages[-1].text == "(empty message)"
