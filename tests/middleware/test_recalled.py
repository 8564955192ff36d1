"""`MemoryMiddleware` alone: what an agent that calls tools is shown of its earlier conversations."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage

from langchain_workingmem import RecallOptions
from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, configured, remembered, weather

pytestmark = pytest.mark.in_turn("face")

MONDAY, FRIDAY = configured("monday", "ann"), configured("friday", "ann")


def shown(messages: list[BaseMessage]) -> list[str]:
    """Return the lines of the recalled messages, without their times."""
    return shown_in(remembered(messages))


def shown_in(block: str) -> list[str]:
    return [": ".join(one) for one in re.findall(r'<message role="(\w+)"[^>]*>(.*?)</message>', block, re.DOTALL)]


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


def test_a_model_sees_numbers_of_conversations_and_names_of_pictures_and_files(bench: Bench) -> None:
    """Ids of threads tell a model nothing, and what a message shows of itself must tell of its attachments."""
    memory = bench.memory(embeddings=bench.embeddings, recall=RecallOptions(top_k=3, message_range=0))
    picture = {"type": "image", "base64": "QUFBQQ==", "mime_type": "image/png"}
    file = {"type": "file", "base64": "QUFBQQ==", "filename": 'tax "<2026>".pdf', "mime_type": "application/pdf"}
    model = Scripted.says(
        "a dog", "noted", "noted", "hello", calling(("search_memory", {"query": "red harness"}), id="c"), "the harness"
    )
    agent = agent_of(model, memory)
    told = [
        ("0b5c6a1e-uuid", "ann", "my dog with the red harness", picture),
        ("7d1f44e2-uuid", "ann", "the bill of the red harness", file),
        ("5a90c2d7-uuid", "bob", "my cat with the red harness", picture),
    ]
    for thread, user, text, block in told:
        asked: list[Any] = [{"type": "text", "text": text}, block]
        bench.run(agent, {"messages": [HumanMessage(asked)]}, configured(thread, user))
    memory.threads.update("7d1f44e2-uuid", title="Taxes")
    bench.run(agent, ask("hi"), FRIDAY)
    bench.run(agent, ask("red harness"), configured("new", "ann"))
    for text in (remembered(model.seen[-2]), str(model.seen[-1][-1].text)):
        assert re.findall('label="([^"]*)"', text) == ["conversation 1", "Taxes"]
        assert [line for line in shown_in(text) if line.startswith("user")] == [
            "user: my dog with the red harness\n[picture]",
            'user: the bill of the red harness\n[file: tax "&lt;2026&gt;".pdf]',
        ]
        assert "uuid" not in text
        assert "QUFB" not in text
