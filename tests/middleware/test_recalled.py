"""`MemoryMiddleware` alone: what an agent that calls tools is shown of its earlier conversations."""

from __future__ import annotations

import pytest
from langchain_core.messages import BaseMessage

from langchain_workingmem import RecallOptions
from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, configured, remembered, weather

pytestmark = pytest.mark.both_faces

MONDAY, FRIDAY = configured("monday", "ann"), configured("friday", "ann")


def shown(messages: list[BaseMessage]) -> list[str]:
    """Return the lines of the recalled messages, without their times."""
    lines = remembered(messages).splitlines()
    return [
        line.split('"')[1] + ": " + line.split(">")[1].split("<")[0] for line in lines if line.startswith("<message")
    ]


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


def test_a_recalled_answer_comes_with_its_question(bench: Bench) -> None:
    memory = bench.memory(embeddings=bench.embeddings, recall=RecallOptions(top_k=1))
    look = calling(("weather", {"city": "Oslo"}), id="c", text="one moment")
    model = Scripted.says(look, "a red coat with buttons", "as before")
    agent = agent_of(model, memory, tools=[weather])
    bench.run(agent, ask("clothes?"), MONDAY)
    bench.run(agent, ask("red coat with buttons"), FRIDAY)
    assert shown(model.seen[-1]) == ["user: clothes?", "assistant: a red coat with buttons"]
