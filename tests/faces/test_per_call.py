"""`config["configurable"]["memory"]`: what a single call of an agent or a graph may leave out."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent

from langchain_workingmem import Memory, OptionError, RecallOptions, WorkingMemoryOptions
from langchain_workingmem.faces import limits_of
from langchain_workingmem.middleware import MemoryMiddleware
from tests.faces.nodes_samples import Recording, chat, say, texts
from tests.faces.nodes_samples import stored as kept
from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, configured, remembered
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


def test_a_private_chat_shows_and_stores_nothing(bench: Bench, remembers: Memory) -> None:
    model = Scripted.says("a")
    private: Any = {"recall": False, "working_memory": False, "read_only": True, "persist": False, "last_messages": 0}
    assert asked(bench, agent_of(model, remembers), model, **private) == ["human: my cat"]
    assert model.tools == [["search_memory"]]
    assert len(stored(remembers)) == 4
    context = remembers.context("my cat", thread_id="t", user_id="ann", recall=False, working_memory=False)
    assert context.working_memory is None
    assert "likes tea" not in str(context)


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
@pytest.mark.parametrize("call", [{"last_messages": 11}, {"recall": {"top_k": 2}}])
def test_a_call_that_asks_for_more_is_refused(bench: Bench, remembers: Memory, on_error: Any, call: Any) -> None:
    model = Scripted.says("a")
    agent = create_agent(model, [], middleware=[MemoryMiddleware(remembers, on_error=on_error)])
    with pytest.raises(OptionError, match=r"config\['configurable'\]\['memory'\]"):
        bench.run(agent, ask("my cat"), told(**call))
    assert model.seen == []
    assert len(stored(remembers)) == 4


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("yes", "is of type str: use a dict with some of read_only, persist, working_memory, recall, last_messages"),
        ({"readonly": True}, "unknown keys.*readonly.*read_only, persist, working_memory, recall, last_messages"),
        ({"read_only": 1}, "read_only.*True or False"),
        ({"recall": True}, "recall.*use False, or a dict"),
        ({"recall": {"user_id": "bob"}}, "recall.*unknown keys.*user_id.*top_k"),
        ({"last_messages": -1}, "last_messages"),
        ({"last_messages": True}, "last_messages"),
    ],
)
def test_what_is_wrong_is_refused(given: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        limits_of({"configurable": {"memory": given}})


def test_a_call_cannot_widen_the_scope_of_recall_and_a_filter_is_checked(bench: Bench) -> None:
    memory, model = bench.recalling(recall=RecallOptions(scope="thread")), Scripted.says("a")
    for call, words in (({"scope": "user"}, r"scope.*use one of 'thread'"), ({"metadata": "kind"}, "metadata")):
        with pytest.raises(OptionError, match=words):
            asked(bench, agent_of(model, memory), model, recall=call)
    assert model.seen == []


def test_nodes_follow_a_call(remembering: Memory, model: Recording, invoke: Invoke) -> None:
    graph = chat(remembering, model)
    invoke(graph, say("my cat is Molly"), told())
    for call in ({"read_only": True}, {"persist": False}):
        invoke(graph, say("my cat"), told(**call))
        assert kept(remembering) == ["my cat is Molly", "re: my cat is Molly"]
    assert ["update_working_memory" in str(seen) for seen in model.seen] == [True, False, True]
    invoke(graph, say("my cat"), told(last_messages=0, recall=False, persist=False))
    assert "Molly" not in "\n".join(texts(model.seen[-1]))


def test_a_context_refuses_what_contradicts_itself(memory: Memory, plain: Memory) -> None:
    ids: Any = {"thread_id": "t", "user_id": "ann"}
    with pytest.raises(OptionError, match="recall=False and top_k"):
        memory.context("one", **ids, recall=False, top_k=3)
    with pytest.raises(OptionError, match="recall=True"):
        memory.context("one", **ids, recall=True)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="last_messages"):
        memory.context("one", **ids, last_messages=-1)
    assert texts(plain.context("one", **ids, recall=False).messages) == ["one"]
