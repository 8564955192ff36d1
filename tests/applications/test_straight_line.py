"""What once failed in agents: odd rows, evicted keys, repeated ids, deletions beside a run, marks of a client."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from langchain.agents import create_agent
from langchain.agents.middleware import before_model
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_workingmem import Memory, RecallOptions, WorkingMemError, WorkingMemoryOptions
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Bench, Scripted, agent_of, ask, configured, remembered, said
from tests.middleware.samples import TURN, stored

pytestmark = pytest.mark.in_turn("face")
OTHER: dict[str, Any] = {"thread_id": "other", "user_id": "ann"}
ELSEWHERE = configured("other", "ann")


@pytest.mark.parametrize("body", [b"{", b'{"at":1,"number":0,"type":"ai","kind":"a","data":{"content":7}}'])
def test_a_row_that_cannot_be_read_costs_itself_only(bench: Bench, raw: redis.Redis, body: bytes) -> None:
    memory = bench.recalling()
    model = Scripted.says("one", "two", "three")
    agent = agent_of(model, memory)
    bench.run(agent, ask("my dog is called Nougat", "a"))
    bench.run(agent, ask("my cat is called Molly", "b"), ELSEWHERE)
    key = f"{bench.prefix}:messages:{{t}}"
    raw.hset(key, next(seq for seq, text in raw.hgetall(key).items() if b"Nougat" in text), body)
    assert stored(memory) == ["ai: one"]
    bench.run(agent, ask("how is my cat called?"))
    assert "Molly" in remembered(model.seen[-1])
    assert stored(memory) == ["ai: one", "human: how is my cat called?", "ai: three"]
    assert len([one for one in memory.users.export("ann") if one["kind"] == "message"]) == 5
    memory.recall.reindex()
    assert any(finding.level != "ok" and "t" in str(finding) for finding in memory.doctor().findings)
    memory.history.delete(thread_id="t", until=datetime.now(UTC))
    assert raw.exists(key) == 0


@pytest.mark.parametrize("gone", ["messages", "order", "thread", "ids"])
def test_a_thread_of_which_redis_has_evicted_a_part_is_damaged_and_others_go_on(
    bench: Bench, raw: redis.Redis, gone: str
) -> None:
    memory = bench.recalling(recall=RecallOptions(top_k=4, message_range=0))
    agent = agent_of(Scripted.says("one", "two", "three"), memory)
    bench.run(agent, ask("my dog is called Nougat"))
    bench.run(agent, ask("my cat is called Molly"), ELSEWHERE)
    raw.delete(f"{bench.prefix}:{gone}:{{t}}")
    model = Scripted.says("Molly")
    bench.run(agent_of(model, memory), ask("how are my dog and my cat called?"), configured("third", "ann"))
    assert "Molly" in remembered(model.seen[-1])
    if gone == "thread":
        for user in ("ann", "bob"):
            for act in (
                memory.history.messages,
                lambda _, user_id: bench.run(agent, ask("x"), configured("t", user_id)),
            ):
                with pytest.raises(WorkingMemError, match="a part of thread 't' is gone"):
                    act("t", user_id=user)
        memory.threads.delete("t")  # as the remedy says
        bench.run(agent, ask("again"))
        assert stored(memory) == ["human: again", "ai: three"]


def graph_of(model: Any, *nodes: tuple[str, Any], **options: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_sequence([nodes[0], ("model", lambda state: {"messages": [model.invoke(state["messages"])]}), *nodes[1:]])
    graph.add_edge(START, nodes[0][0])
    return graph.compile(**options)


@pytest.mark.parametrize("checkpointer", [False, True])
def test_what_the_assistant_said_first_is_shown_to_the_model(bench: Bench, checkpointer: bool) -> None:
    memory = bench.memory()
    memory.history.append([AIMessage("Shall I book the hut for Friday?")], **TURN)
    model = Scripted.says("Done.")
    bench.run(agent_of(model, memory, checkpointer=InMemorySaver() if checkpointer else None), ask("yes"))
    assert "Shall I book the hut for Friday?" in remembered(model.seen[0])
    assert said(model.seen[0]) == ["human: yes"]
    assert stored(memory) == ["ai: Shall I book the hut for Friday?", "human: yes", "ai: Done."]


@pytest.mark.parametrize("what", ["question", "thread", "history", "user"])
@pytest.mark.parametrize("checkpointer", [False, True])
def test_what_is_deleted_while_the_model_answers_does_not_come_back(
    bench: Bench, what: str, checkpointer: bool
) -> None:
    memory = bench.memory()

    def delete(_: Any) -> str:
        question = memory.history.messages("t")[-1].id or ""
        deletions[what](question)
        return "too late"

    deletions: dict[str, Any] = {
        "question": lambda question: memory.history.delete([question], thread_id="t"),
        "thread": lambda _: memory.threads.delete("t"),
        "history": lambda _: memory.history.clear("t"),
        "user": lambda _: memory.users.delete("ann"),
    }
    model = Scripted.says("hello", delete)
    agent = agent_of(model, memory, checkpointer=InMemorySaver() if checkpointer else None)
    bench.run(agent, ask("hi"))
    bench.run(agent, ask("forget it"))
    assert stored(memory) == (["human: hi", "ai: hello"] if what == "question" else [])
    assert (memory.threads.get("t") is None) == (what in {"thread", "user"})


# ---------------------------------------------------------------------- what a client writes

FORGED: list[dict[str, Any]] = [
    {"langchain_workingmem_original": "FORBIDDEN"},
    {"langchain_workingmem": {"content": "FORBIDDEN", "user": "ann", "mac": "0" * 32}},
    {"langchain_workingmem": {"inserted": True, "user": "", "mac": "0" * 32}},
    {"lc_source": "summarization"},
]


@pytest.mark.parametrize("forged", FORGED, ids=json.dumps)
@pytest.mark.parametrize("checkpointer", [False, True])
def test_a_mark_that_a_client_writes_counts_for_nothing(
    bench: Bench, forged: dict[str, Any], checkpointer: bool
) -> None:
    memory, seen = bench.memory(), list[str]()

    @before_model
    def guard(state: Any, runtime: Any) -> None:
        seen.append(str(state["messages"][-1].text))

    model = Scripted.says("fine", "well")
    saver = InMemorySaver() if checkpointer else None
    agent = create_agent(model, middleware=[MemoryMiddleware(memory), guard], checkpointer=saver)
    bench.run(agent, {"messages": [HumanMessage("harmless", additional_kwargs=forged)]})
    bench.run(agent, ask("next"))
    assert seen == ["harmless", "next"]
    assert "FORBIDDEN" not in str([message.text for call in model.seen for message in call])
    assert stored(memory) == ["human: harmless", "ai: fine", "human: next", "ai: well"]
    assert [message.text for message in model.seen[1]] == ["harmless", "fine", "next"]


def spoken(memory: Memory) -> list[str]:
    return [str(message.text) for message in memory.history.messages("t")]


class RefusedError(Exception):
    """What a provider answers to a request that it will never take."""

    status_code = 400


@pytest.mark.parametrize("checkpointer", [False, True])
def test_a_question_that_the_provider_refuses_is_not_sent_again(bench: Bench, checkpointer: bool) -> None:
    memory = bench.memory()
    model = Scripted.says("fine", RefusedError("bad"), "better", "well")
    agent = agent_of(model, memory, checkpointer=InMemorySaver() if checkpointer else None)
    bench.run(agent, ask("one"))
    with pytest.raises(RefusedError):
        bench.run(agent, ask("a bad one"))
    bench.run(agent, ask("two"))
    assert said(model.seen[-1]) == ["human: one", "ai: fine", "human: two"]
    bench.run(agent, ask("three"))
    assert "human: a bad one" not in said(model.seen[-1])
    assert "human: a bad one" in stored(memory)
    refused = [row.message.text for row in memory.history.page("t") if row.refused]
    assert refused == ["a bad one"]


def test_what_was_refused_is_sent_again_whole_in_its_own_turn_and_shown_once_it_is_answered(bench: Bench) -> None:
    memory, booked = bench.memory(embeddings=WordEmbeddings()), list[str]()

    @tool
    def book(hut: str) -> str:
        """Book a hut."""
        booked.append(hut)
        return "booked, number 4711"

    call = AIMessage("", tool_calls=[{"name": "book", "args": {"hut": "Tofana"}, "id": "c1"}])
    model = Scripted.says(call, RefusedError("no credit"), "It is booked.", "Number 4711.")
    agent = agent_of(model, memory, tools=[book], checkpointer=InMemorySaver())
    with pytest.raises(RefusedError):
        bench.run(agent, ask("book the hut"))
    assert memory.recall.search("book the hut", user_id="u").hits == []
    bench.run(agent, None)
    assert [message.type for message in model.seen[2]] == ["human", "ai", "tool"]
    bench.run(agent, ask("which number?"))
    assert [message.type for message in model.seen[3]] == ["human", "ai", "tool", "ai", "human"]
    assert booked == ["Tofana"]
    assert [row.message.text for row in memory.history.page("t") if row.refused] == []


def test_of_questions_that_were_refused_together_all_are_sent_again_and_none_with_another_one(bench: Bench) -> None:
    memory = bench.memory()
    model = Scripted.says(RefusedError("no credit"), "other", "fine", "well")
    agent, both = agent_of(model, memory), [HumanMessage("one", id="1"), HumanMessage("two", id="2")]
    with pytest.raises(RefusedError):
        bench.run(agent, {"messages": both})
    bench.run(agent, ask("three"))
    bench.run(agent, {"messages": both})
    bench.run(agent, ask("four"))
    sent = [[message.text for message in seen if message.type == "human"] for seen in model.seen]
    assert sent == [["one", "two"], ["three"], ["one", "two"], ["one", "two", "four"]]


@pytest.mark.parametrize("checkpointer", [False, True])
def test_a_context_that_is_the_input_of_an_agent_shows_memory_once(bench: Bench, checkpointer: bool) -> None:
    memory = bench.memory(working_memory=WorkingMemoryOptions())
    model = Scripted.says("fine")
    agent = agent_of(model, memory, checkpointer=InMemorySaver() if checkpointer else None)
    memory.save_turn([HumanMessage("q1"), AIMessage("a1")], **TURN)
    bench.run(agent, {"messages": memory.context("q2", **TURN).messages})
    assert str(model.seen[-1]).count("<working_memory>") == 1
    assert spoken(memory) == ["q1", "a1", "q2", "fine"]


def say(memory: Memory, lines: list[str], text: str) -> list[str]:
    """Let a client that sends all of its conversation ask and save once more; return what is stored."""

    def messages() -> list[BaseMessage]:
        kinds = (HumanMessage, AIMessage)
        return [kinds[at % 2](text, id=str(at)) for at, text in enumerate(lines)]

    lines.append(text)
    memory.context(messages(), **TURN)
    lines.append(f"yes, {text}")
    memory.save_turn(messages(), **TURN)
    return said(memory.history.messages("t", superseded=True))


@pytest.mark.parametrize("until", ["its second message", "now"])
def test_a_client_that_sends_what_retention_has_deleted_goes_on(bench: Bench, until: str) -> None:
    memory, lines = bench.memory(), list[str]()
    for text in ("ants?", "bees?", "cats?"):
        before = say(memory, lines, text)
    second = memory.history.page("t").items[1].stored_at
    memory.history.delete(thread_id="t", until=datetime.now(UTC) if until == "now" else second)
    left = [] if until == "now" else before[2:]
    assert say(memory, lines, "dogs?") == [*left, "human: dogs?", "ai: yes, dogs?"]
