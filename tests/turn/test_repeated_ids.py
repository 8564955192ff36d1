"""Answers whose ids repeat, as those of caches and of LangChain's fakes do."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import Memory
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import Scripted

IDS: dict[str, Any] = {"thread_id": "t", "user_id": "u"}


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
    agent: Any = create_agent(model, [], middleware=[MemoryMiddleware(plain)], checkpointer=InMemorySaver())
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
