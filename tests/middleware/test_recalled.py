"""`MemoryMiddleware` alone: what an agent that calls tools is shown of its earlier conversations."""

from __future__ import annotations

import re

import pytest
from langchain_core.messages import BaseMessage

from langchain_workingmem import RecallOptions
from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, configured, remembered, weather

pytestmark = pytest.mark.in_turn("face")

MONDAY, FRIDAY = configured("monday", "ann"), configured("friday", "ann")


def shown(messages: list[BaseMessage]) -> list[str]:
    """Return the lines of the recalled messages, without their times."""
    found = re.findall(r'<message role="(\w+)"[^>]*>(.*?)</message>', remembered(messages), re.DOTALL)
    return [": ".join(one) for one in found]


@pytest.mark.parametrize("calls", [1, 12])
def test_a_recalled_question_of_an_agent_with_tools_comes_with_its_answer(bench: Bench, calls: int) -> None:
    memory = bench.memory(embeddings=bench.embeddings, recall=RecallOptions(top_k=1))
    looks = [calling(("weather", {"city": f"Oslo {at}"}), id=f"c{at}") for at in range(calls)]
    model = Scripted.says("hello", *looks, "bring a coat", "welcome", "as before")
    agent = agent_of(model, memory, tools=[weather])
    for text in ("hi", "what should I wear in Oslo?", "thanks"):
        bench.run(agent, ask(text), MONDAY)
    bench.run(agent, ask("Oslo again: what should I wear?"), FRIDAY)
    assert shown(model.seen[-1]) == ["assistant: hello", "user: what should I wear in Oslo?", "assistant: bring a coat"]
