"""Titles that the agent's own model makes."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call

from langchain_workingmem import TitleOptions
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import CONFIG, Bench, Scripted, agent_of, ask

pytestmark = pytest.mark.both_faces


def finish(bench: Bench, memory: Any) -> None:
    """Wait for what runs in the background."""
    bench.runner.run(memory.aclose())


def test_the_agents_own_model_makes_the_title(bench: Bench) -> None:
    memory = bench.memory(title=TitleOptions())
    model = Scripted.says("sunny", "Weather in Oslo")
    bench.run(agent_of(model, memory), ask("how is the weather in Oslo?"))
    finish(bench, memory)
    thread = memory.threads.get("t")
    assert thread is not None
    assert thread.title == "Weather in Oslo"
    assert [message.text for message in model.seen[1][1:]] == ["how is the weather in Oslo?"]
    assert model.tools[1] == []


def test_a_model_of_the_options_counts_more(bench: Bench) -> None:
    namer = Scripted.says("A title")
    memory = bench.memory(title=TitleOptions(model=namer))
    model = Scripted.says("hi")
    bench.run(agent_of(model, memory), ask("hello"))
    finish(bench, memory)
    thread = memory.threads.get("t")
    assert thread is not None
    assert thread.title == "A title"
    assert len(model.seen) == 1


def test_the_title_is_made_by_the_model_that_answers(bench: Bench) -> None:
    """Other middleware may choose another one for the call."""
    chosen = Scripted.says("hi", "A title")

    @wrap_model_call
    def choose(request: Any, handler: Any) -> Any:
        return handler(request.override(model=chosen))

    @wrap_model_call
    async def achoose(request: Any, handler: Any) -> Any:
        return await handler(request.override(model=chosen))

    memory = bench.memory(title=TitleOptions())
    other: Any = choose if bench.face == "sync" else achoose
    agent = create_agent(Scripted.says(), [], middleware=[other, MemoryMiddleware(memory)])
    bench.run(agent, ask("hello"))
    finish(bench, memory)
    thread = memory.threads.get("t")
    assert thread is not None
    assert thread.title == "A title"


def test_a_failing_title_harms_no_turn(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    memory = bench.memory(title=TitleOptions())
    model = Scripted.says("hi", RuntimeError("no quota"))
    with caplog.at_level(logging.WARNING, "langchain_workingmem"):
        result = bench.run(agent_of(model, memory), ask("hello"), CONFIG)
        finish(bench, memory)
    assert result["messages"][-1].text == "hi"
    assert "has no title yet" in caplog.text
