"""`MemoryMiddleware` and clients that send the conversation again, whole or in part."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, said, weather
from tests.middleware.samples import stored

pytestmark = pytest.mark.in_turn("face")

# ---------------------------------------------------------------------- clients that keep the conversation


def test_a_conversation_that_is_sent_whole_is_not_doubled(bench: Bench) -> None:
    memory = bench.memory()
    model = Scripted.says(calling(("weather", {"city": "Oslo"}), id="a"), "sunny", "yes", "bye")
    agent = agent_of(model, memory, tools=[weather])
    sent: list[Any] = []
    for text in ("weather?", "sure?", "thanks"):
        sent.append(HumanMessage(text))
        given = [message.model_copy(update={"id": None}) for message in sent]
        sent = bench.run(agent, {"messages": given})["messages"]
        assert said(model.seen[-1]) == said(sent[:-1])
    assert stored(memory) == said(sent)


def test_a_conversation_whose_answers_have_the_ids_of_the_client_is_not_doubled(bench: Bench) -> None:
    memory = bench.memory()
    model = Scripted.says("two", "four")
    agent = agent_of(model, memory)
    bench.run(agent, ask("one", "h1"))
    sent = [HumanMessage("one", id="h1"), AIMessage("two", id="client"), HumanMessage("three", id="h2")]
    bench.run(agent, {"messages": sent})
    assert model.seen[1] == sent
    assert stored(memory) == ["human: one", "ai: two", "human: three", "ai: four"]


def test_a_conversation_that_is_sent_without_its_tool_calls_keeps_its_order(bench: Bench) -> None:
    memory = bench.memory()
    model = Scripted.says(calling(("weather", {"city": "Oslo"}), id="a"), "sunny", "yes")
    agent = agent_of(model, memory, tools=[weather])
    bench.run(agent, ask("weather?"))
    sent = [HumanMessage("weather?"), AIMessage("sunny"), HumanMessage("sure?")]
    bench.run(agent, {"messages": sent})
    shown = said(model.seen[2])
    whole = stored(memory)[:-1]
    assert shown == [line for line in whole if line in shown]
