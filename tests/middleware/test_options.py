"""The options of `MemoryMiddleware`: what it may write, its tools, and what it does on errors."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import IndexOptions, OptionError, RecallOptions, WorkingMemoryOptions
from langchain_workingmem._engine.effects import Plan
from langchain_workingmem.errors import EmbeddingError, RedisConnectionError, RedisReplyError
from langchain_workingmem.faces import agent_turns
from langchain_workingmem.faces.agent_calls import HookCall
from langchain_workingmem.faces.agent_turns import AgentTurns
from langchain_workingmem.history import save_messages
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import (
    Bench,
    ModelDownError,
    Scripted,
    agent_of,
    ask,
    calling,
    configured,
    remembered,
    said,
    weather,
)
from tests.middleware.samples import PROMPT, TURN, UPDATE, seed, stored

# ---------------------------------------------------------------------- options


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


def test_persist_false_stores_no_message_but_working_memory(bench: Bench) -> None:
    memory = bench.memory(working_memory=WorkingMemoryOptions(template=""))
    model = Scripted.says(calling((UPDATE, {"memory": "lives in Rome"}), id="a"), "noted")
    bench.run(create_agent(model, [], middleware=[MemoryMiddleware(memory, persist=False)]), ask("I live in Rome"))
    assert memory.history.messages("t") == []
    assert memory.working_memory.get(**TURN).text == "lives in Rome"


@pytest.mark.parametrize(
    ("chosen", "given"),
    [(None, [UPDATE, "search_memory"]), ([], []), (["get_working_memory"], ["get_working_memory"])],
)
def test_tools_that_the_agent_is_given(bench: Bench, chosen: list[str] | None, given: list[str]) -> None:
    memory = bench.recalling(working_memory=WorkingMemoryOptions())
    model = Scripted.says("hi")
    agent = create_agent(model, [weather], middleware=[MemoryMiddleware(memory, tools=chosen)])
    bench.run(agent, ask("hello"))
    assert sorted(model.tools[0]) == sorted([*given, "weather"])


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[HookCall]:
    """Return the calls of the model beside which a question began to be saved."""
    calls: list[HookCall] = []
    save = AgentTurns.save_question

    def watched(turns: AgentTurns, call: HookCall) -> Plan[None]:
        calls.append(call)
        return save(turns, call)

    monkeypatch.setattr(AgentTurns, "save_question", watched)
    return calls


@pytest.mark.parametrize(
    ("options", "call"),
    [({"read_only": True}, {}), ({"persist": False}, {}), ({}, {"read_only": True}), ({}, {"persist": False})],
)
def test_where_nothing_is_saved_nothing_runs_beside_the_model(
    bench: Bench, begun: list[HookCall], options: Any, call: Any
) -> None:
    middleware = MemoryMiddleware(bench.memory(), **options)
    bench.run(create_agent(Scripted.says("hi"), [], middleware=[middleware]), ask("q"), configured("t", memory=call))
    assert begun == []


def test_a_question_is_saved_beside_one_call_of_the_model(bench: Bench, begun: list[HookCall]) -> None:
    model = Scripted.says(calling(("weather", {"city": "Oslo"}), id="a"), "sunny")
    middleware = MemoryMiddleware(bench.memory())
    bench.run(create_agent(model, [weather], middleware=[middleware]), ask("weather?"))
    assert len(begun) == 1


def test_a_question_that_is_stored_is_saved_beside_no_call_of_the_model(bench: Bench, begun: list[HookCall]) -> None:
    memory = bench.memory()
    seed(memory, "hello", "hi", "weather?")
    given = {"messages": [HumanMessage("hello"), AIMessage("hi"), HumanMessage("weather?")]}  # sent again, without ids
    model = Scripted.says(calling(("weather", {"city": "Oslo"}), id="a"), "sunny")
    middleware = MemoryMiddleware(memory)
    bench.run(create_agent(model, [weather], middleware=[middleware]), given)
    assert begun == []
    assert stored(memory)[:4] == ["human: hello", "ai: hi", "human: weather?", "ai: weather#a-0"]


def test_a_bug_beside_the_model_is_in_the_log_and_costs_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = bench.memory()
    bugs = [KeyError("a bug")]

    def save(*arguments: Any, **options: Any) -> Plan[list[BaseMessage]]:
        if bugs:
            raise bugs.pop()
        return save_messages(*arguments, **options)

    monkeypatch.setattr(agent_turns, "save_messages", save)
    bench.run(create_agent(Scripted.says("hi"), [], middleware=[MemoryMiddleware(memory)]), ask("q"))
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)
    assert stored(memory) == ["human: q", "ai: hi"]


def test_a_turn_that_a_full_server_refuses_is_logged_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory = bench.memory(on_error="log")

    def save(*_: Any, **__: Any) -> Plan[list[BaseMessage]]:
        raise RedisReplyError("OOM command not allowed", remedy="raise maxmemory")

    monkeypatch.setattr(agent_turns, "save_messages", save)
    cities = [calling(("weather", {"city": city}), id=city) for city in ("Oslo", "Rome")]
    agent = create_agent(Scripted.says(*cities, "hi", "ho"), [weather], middleware=[MemoryMiddleware(memory)])
    for turns in (1, 2):
        bench.run(agent, ask("hello"))
        assert [record.message for record in caplog.records if "not saved" in record.message] == [
            "the turn is not saved: OOM command not allowed: raise maxmemory"
        ] * turns


def test_an_unknown_tool_is_refused(bench: Bench) -> None:
    with pytest.raises(OptionError, match="no tool 'remember'"):
        MemoryMiddleware(bench.memory(), tools=["remember"])


DEAD = "redis://localhost:1"


@pytest.mark.usefixtures("impatient")
def test_with_on_error_log_the_agent_answers_without_redis(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    memory = bench.recalling(redis_url=DEAD, working_memory=WorkingMemoryOptions())
    model = Scripted.says(calling(("weather", {"city": "Oslo"}), id="a"), "hi")
    agent = create_agent(model, [weather], system_prompt=PROMPT, middleware=[MemoryMiddleware(memory, on_error="log")])
    with caplog.at_level(logging.WARNING, "langchain_workingmem"):
        result = bench.run(agent, ask("hello"))
    assert result["messages"][-1].text == "hi"
    assert said(model.seen[0]) == [f"system: {PROMPT}", "human: hello"]
    assert "answers without memory" in caplog.text
    assert "not saved" in caplog.text


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


def test_a_broken_embedding_model_costs_the_recall_only(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    memory = bench.recalling(on_error="log")
    seed(memory, "one", "two")
    bench.embeddings.broken = RuntimeError("no quota")
    model = Scripted.says("four")
    bench.run(agent_of(model, memory), ask("three"))
    assert said(model.seen[0]) == ["human: one", "ai: two", "human: three"]
    assert stored(memory) == ["human: one", "ai: two", "human: three", "ai: four"]
    assert "no quota" in caplog.text


def test_what_the_middleware_does_on_errors_counts_more_than_the_memorys(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an embedding model the agent has history and working memory, and each message is saved once."""
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=""))
    seed(memory, "one", "two")
    memory.working_memory.update("Ann has a dog", **TURN)
    bench.embeddings.broken = RuntimeError("no quota")
    model = Scripted.says(calling(("weather", {"city": "Oslo"}), id="a"), "four")
    agent = create_agent(model, [weather], middleware=[MemoryMiddleware(memory, on_error="log")])
    with caplog.at_level(logging.WARNING, "langchain_workingmem"):
        bench.run(agent, ask("three"))
    assert "Ann has a dog" in remembered(model.seen[0])
    assert said(model.seen[0]) == ["human: one", "ai: two", "human: three"]
    new = ["human: three", "ai: weather#a-0", "tool: sunny in Oslo", "ai: four"]
    assert stored(memory) == ["human: one", "ai: two", *new]
    fates = [record.getMessage().split("; ")[1].partition(";")[0] for record in caplog.records]
    assert fates == ["this turn goes without recall", *["the messages are stored without vectors"] * 2]
    bench.embeddings.broken = None
    assert memory.recall.reindex(progress=False) == 2  # a call without words and the result of a tool have no vectors
    assert bench.embeddings.calls[-1] == ["three", "four"]


def test_the_middleware_may_be_stricter_than_the_memory(bench: Bench) -> None:
    memory = bench.recalling(on_error="log")
    seed(memory, "one", "two")
    bench.embeddings.broken = RuntimeError("no quota")
    agent = create_agent(Scripted.says(), [], middleware=[MemoryMiddleware(memory, on_error="raise")])
    with pytest.raises(EmbeddingError, match="no quota"):
        bench.run(agent, ask("three"))


def test_with_on_error_log_an_index_that_was_built_otherwise_costs_the_recall_only(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    seed(bench.recalling(), "one", "two")
    other = bench.recalling(recall=RecallOptions(index=IndexOptions(dtype="float32")))
    model = Scripted.says("four")
    agent = create_agent(model, [], middleware=[MemoryMiddleware(other, on_error="log")])
    with caplog.at_level(logging.WARNING, "langchain_workingmem"):
        bench.run(agent, ask("three"))
    assert said(model.seen[0]) == ["human: one", "ai: two", "human: three"]
    assert stored(other) == ["human: one", "ai: two", "human: three", "ai: four"]
    assert "reindex" in caplog.text
