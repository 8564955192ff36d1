"""The options of `MemoryMiddleware`: what it may write, its tools, and what it does on errors."""

from __future__ import annotations

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage

from langchain_workingmem import WorkingMemoryOptions
from langchain_workingmem.errors import RedisConnectionError
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import Bench, ModelDownError, Scripted, agent_of, ask, remembered, said, weather
from tests.middleware.samples import TURN, UPDATE, seed, stored


def test_read_only_shows_and_writes_nothing(bench: Bench) -> None:
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=""))
    seed(memory, "one", "two")
    memory.working_memory.update("Ann has a dog", **TURN)
    model = Scripted.says("four")
    middleware = MemoryMiddleware(memory, read_only=True)
    bench.run(create_agent(model, [], middleware=[middleware]), ask("three", "q"))
    assert said(model.seen[0]) == ["human: one", "ai: two", "human: three"]
    assert "Ann has a dog" in remembered(model.seen[0])
    assert model.seen[0] == memory.context([HumanMessage("three", id="q")], **TURN, read_only=True).messages
    assert model.tools == [["search_memory"]]
    assert stored(memory) == ["human: one", "ai: two"]


@pytest.mark.parametrize(
    ("chosen", "given"), [(None, [UPDATE, "search_memory"]), (["get_working_memory"], ["get_working_memory"])]
)
def test_tools_that_the_agent_is_given(bench: Bench, chosen: list[str] | None, given: list[str]) -> None:
    memory = bench.recalling(working_memory=WorkingMemoryOptions())
    model = Scripted.says("hi")
    agent = create_agent(model, [weather], middleware=[MemoryMiddleware(memory, tools=chosen)])
    bench.run(agent, ask("hello"))
    assert sorted(model.tools[0]) == sorted([*given, "weather"])


DEAD = "redis://localhost:1"


@pytest.mark.usefixtures("impatient")
def test_with_on_error_raise_a_dead_server_is_an_error(bench: Bench) -> None:
    model = Scripted.says("hi")
    with pytest.raises(RedisConnectionError):
        bench.run(agent_of(model, bench.memory(redis_url=DEAD)), ask("hello"))
    assert model.seen == []


@pytest.mark.usefixtures("impatient")
def test_the_models_error_is_raised_though_saving_fails_too(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    memory = bench.memory(redis_url=DEAD)
    agent = create_agent(
        Scripted.says(ModelDownError("down")), [], middleware=[MemoryMiddleware(memory, on_error="log")]
    )
    with pytest.raises(ModelDownError):
        bench.run(agent, ask("hello"))
    assert "not saved" in caplog.text
