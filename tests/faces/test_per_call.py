"""`config["configurable"]["memory"]`: what a single call of an agent or a graph may leave out."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent

from langchain_workingmem import HistoryOptions, Memory, OptionError, RecallOptions, WorkingMemoryOptions
from langchain_workingmem.middleware import MemoryMiddleware
from tests.faces.nodes_samples import Recording, chat, say, texts
from tests.faces.nodes_samples import stored as kept
from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, configured, remembered
from tests.helpers.trips import Trips
from tests.helpers.types import Invoke
from tests.middleware.samples import UPDATE, seed, stored

pytestmark = pytest.mark.in_turn("face")


def told(**call: Any) -> Any:
    return configured("t", "ann", memory=call)


@pytest.fixture
def remembers(bench: Bench) -> Memory:
    """Four messages in the thread, one elsewhere that the question is like, and working memory."""
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=""))
    seed(memory, "one", "two", "three", "four")
    seed(memory, "my cat is named Molly", thread="pets")
    memory.working_memory.update("likes tea", user_id="ann")
    return memory


def asked(bench: Bench, agent: Any, model: Scripted, **call: Any) -> list[str]:
    bench.run(agent, ask("my cat"), told(**call))
    return [f"{message.type}: {message.text}" for message in model.seen[-1]]


def test_recall_is_left_out(bench: Bench, remembers: Memory) -> None:
    model = Scripted.says("a", "b")
    agent = agent_of(model, remembers)
    assert "Molly" not in str(asked(bench, agent, model, recall=False))
    assert bench.embeddings.calls.count(["my cat"]) == 1  # to store it: nobody looks for it
    assert "Molly" in str(asked(bench, agent, model))


def test_recall_is_narrowed(bench: Bench, remembers: Memory) -> None:
    model = Scripted.says("a", "b", "c", "d")
    agent = agent_of(model, remembers)
    for narrow in ({"scope": "thread"}, {"since": "2999-01-01"}, {"roles": ["tool"]}, {"threshold": 1}):
        assert "Molly" not in str(asked(bench, agent, model, persist=False, recall=narrow)), narrow


def test_fewer_messages_are_shown(bench: Bench, remembers: Memory) -> None:
    model = Scripted.says("a", "b")
    agent = agent_of(model, remembers)
    lines = str(asked(bench, agent, model, last_messages=2, recall=False, persist=False))
    assert ("two" in lines, "three" in lines, "four" in lines) == (False, True, True)
    lines = str(asked(bench, agent, model, last_messages=0, recall=False))
    assert "four" not in lines


def test_nothing_is_saved(bench: Bench, remembers: Memory) -> None:
    model = Scripted.says(calling((UPDATE, {"memory": "has a cat"}), id="a"), "b")
    lines = asked(bench, agent_of(model, remembers), model, persist=False)
    assert "four" in str(lines)
    assert len(stored(remembers)) == 4
    assert "has a cat" in remembers.working_memory.get(user_id="ann").text


def test_nothing_is_written(bench: Bench, remembers: Memory) -> None:
    model = Scripted.says(calling((UPDATE, {"memory": "has a cat"}), id="a"), "b", "c")
    agent = agent_of(model, remembers)
    lines = asked(bench, agent, model, read_only=True)
    assert model.tools[:2] == [["search_memory"], ["search_memory"]]
    assert "this call is read-only" in str(lines)
    assert "likes tea" in str(lines)
    assert "likes tea" in remembered(model.seen[0])
    assert "update_working_memory" not in remembered(model.seen[0])
    assert remembers.working_memory.get(user_id="ann").text == "likes tea"
    assert len(stored(remembers)) == 4
    asked(bench, agent, model)
    assert UPDATE in model.tools[-1]


def test_no_call_lifts_what_the_middleware_says(bench: Bench, remembers: Memory) -> None:
    for options in ({"read_only": True}, {"persist": False}):
        model = Scripted.says("b")
        middleware = MemoryMiddleware(remembers, **options)  # type: ignore[arg-type]
        asked(bench, create_agent(model, [], middleware=[middleware]), model, read_only=False, persist=True)
        assert len(stored(remembers)) == 4
        assert (UPDATE in model.tools[-1]) is ("persist" in options)


@pytest.mark.parametrize("on_error", ["raise", "log"])
@pytest.mark.parametrize(
    "call", [{"last_messages": 11}, {"recall": {"top_k": 2}}, {"recall": {"user_id": "bob"}}, {"write": True}]
)
def test_a_call_that_asks_for_more_is_refused(bench: Bench, remembers: Memory, on_error: Any, call: Any) -> None:
    model = Scripted.says("a")
    agent = create_agent(model, [], middleware=[MemoryMiddleware(remembers, on_error=on_error)])
    with pytest.raises(OptionError, match=r"config\['configurable'\]\['memory'\]"):
        bench.run(agent, ask("my cat"), told(**call))
    assert model.seen == []
    assert len(stored(remembers)) == 4


def test_to_ask_for_recall_where_it_is_off_is_refused(bench: Bench) -> None:
    with pytest.raises(OptionError, match="recall is off"):
        bench.run(agent_of(Scripted.says("a"), bench.memory()), ask("my cat"), told(recall={"top_k": 1}))


def test_a_call_costs_no_more(bench: Bench, remembers: Memory, trips: Trips) -> None:
    agent = agent_of(Scripted.says(*"abcd"), remembers)
    assert trips.of(lambda: bench.run(agent, ask("my cat"), told(last_messages=1, recall={"top_k": 1}))) == 4
    assert trips.of(lambda: bench.run(agent, ask("my cat"), told(read_only=True, recall=False))) == 1


# ---------------------------------------------------------------------- nodes


def test_nodes_follow_a_call(remembering: Memory, model: Recording, invoke: Invoke) -> None:
    graph = chat(remembering, model)
    invoke(graph, say("my cat is Molly"), told())
    for call in ({"read_only": True}, {"persist": False}):
        invoke(graph, say("my cat"), told(**call))
        assert kept(remembering) == ["my cat is Molly", "re: my cat is Molly"]
    assert ["update_working_memory" in str(seen) for seen in model.seen] == [True, False, True]
    invoke(graph, say("my cat"), told(last_messages=0, recall=False, persist=False))
    assert "Molly" not in "\n".join(texts(model.seen[-1]))


def test_nodes_refuse_what_a_call_may_not_say(remembering: Memory, model: Recording, invoke: Invoke) -> None:
    with pytest.raises(OptionError, match="only lower"):
        invoke(chat(remembering, model), say("one"), told(last_messages=3))
    assert kept(remembering) == []


# ---------------------------------------------------------------------- context


def test_a_context_without_recall_or_history(memory: Memory) -> None:
    words = [("user", "my cat is Molly"), ("ai", "sweet"), ("user", "one"), ("ai", "two")]
    memory.save_turn(words, thread_id="t", user_id="ann")
    ids: Any = {"thread_id": "t", "user_id": "ann"}
    assert texts(memory.context("my cat", **ids, recall=False, last_messages=2).messages) == ["one", "two", "my cat"]
    assert texts(memory.context("my cat", **ids, recall=False, last_messages=0).messages) == ["my cat"]
    assert memory.context("my cat", **ids, recall=False).recalled.hits == []
    assert memory.context("my cat", **ids, last_messages=0).recalled.hits != []


def test_a_program_may_ask_for_more_than_the_options(make_memory: Any) -> None:
    memory = make_memory(history=HistoryOptions(last_messages=1))
    memory.save_turn([("user", "one"), ("ai", "two")], thread_id="t", user_id="ann")
    shown = memory.context("three", thread_id="t", user_id="ann", last_messages=9).messages
    assert texts(shown) == ["one", "two", "three"]


def test_a_context_refuses_what_contradicts_itself(memory: Memory, plain: Memory) -> None:
    ids: Any = {"thread_id": "t", "user_id": "ann"}
    with pytest.raises(OptionError, match="recall=False and top_k"):
        memory.context("one", **ids, recall=False, top_k=3)
    with pytest.raises(OptionError, match="recall=True"):
        memory.context("one", **ids, recall=True)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="last_messages"):
        memory.context("one", **ids, last_messages=-1)
    assert texts(plain.context("one", **ids, recall=False).messages) == ["one"]


def test_recall_options_stay_those_of_the_memory(bench: Bench) -> None:
    """A budget of a call does not bring more hits than `top_k`."""
    memory = bench.memory(embeddings=bench.embeddings, recall=RecallOptions(top_k=1, message_range=0))
    seed(memory, "my cat is Molly", "my cat is Tom", thread="pets")
    model = Scripted.says("a")
    bench.run(agent_of(model, memory), ask("my cat is"), told(recall={"max_tokens": 1000}))
    assert str(model.seen[0]).count("my cat is ") == 1
