"""A thread that expires takes all that it has with it, and no sooner: its vectors outlive it, however old its messages are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_workingmem import HistoryOptions, Memory, RecallOptions, WorkingMemoryOptions
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem._redis.scripts import renew_vectors
from tests.helpers.embeddings import WordEmbeddings

Make = Callable[..., Memory]
IDS: dict[str, Any] = {"thread_id": "t", "user_id": "u"}
DAY = 86_400_000  # ms
LONG_AGO = datetime.now(UTC) - timedelta(days=30)


@pytest.fixture
def brief(make_memory: Make) -> Memory:
    """A memory whose threads live for a day."""
    options = WorkingMemoryOptions(template="", scope="thread")
    return make_memory(
        embeddings=WordEmbeddings(), recall=RecallOptions(), ttl=timedelta(days=1), working_memory=options
    )


def ttls(raw: redis.Redis, prefix: str, thread_id: str = "t") -> tuple[list[int], list[int]]:
    """Return how long the keys of a thread, and its vectors, still live (ms)."""
    keys = Keys(prefix).of(thread_id)
    own = [raw.pttl(key) for key in keys if key != keys.vector and raw.exists(key)]
    return own, [raw.pttl(key) for key in raw.scan_iter(f"{keys.vector}*")]


def import_old(memory: Memory) -> None:
    told = {"type": "human", "data": {"content": "my dog is Rocky", "id": "1", "type": "human"}}
    records: list[dict[str, Any]] = [
        {"kind": "header", "format": "langchain-workingmem", "version": 1, "user_id": "u"},
        {"kind": "thread", "id": "t"},
        {"kind": "message", "thread_id": "t", "stored_at": LONG_AGO.isoformat(), "message": told},
    ]
    memory.users.load(records)


def create_and_append_old(memory: Memory) -> None:
    memory.threads.create(**IDS)
    memory.history.append([HumanMessage("my dog is Rocky")], said_at=LONG_AGO, **IDS)


def clone_old(memory: Memory) -> None:
    memory.history.append([HumanMessage("my dog is Rocky")], thread_id="s", user_id="u", said_at=LONG_AGO)
    memory.threads.clone("s", new_thread_id="t")


def backfill(memory: Memory) -> None:
    saver = InMemorySaver()
    graph = StateGraph(MessagesState)
    graph.add_node("end", lambda _: {"messages": []})
    graph.add_edge(START, "end")
    app: Any = graph.compile(checkpointer=saver)
    app.invoke({"messages": [HumanMessage("my dog is Rocky")]}, {"configurable": {"thread_id": "t"}})
    memory.threads.backfill(saver, user_id="u", progress=False)


@pytest.mark.parametrize("write", [import_old, create_and_append_old, clone_old, backfill])
def test_vectors_outlive_the_thread_however_old_its_messages_are(
    brief: Memory, raw: redis.Redis, prefix: str, write: Callable[[Memory], None]
) -> None:
    write(brief)
    brief.settled()
    own, vectors = ttls(raw, prefix)
    assert vectors
    assert all(0 < one <= DAY for one in own)
    assert all(DAY < one <= 2 * DAY for one in vectors)
    assert brief.recall.search("dog", **IDS).hits


@pytest.mark.parametrize(
    "write",
    [
        lambda memory: memory.threads.update("t", title="new"),
        lambda memory: memory.working_memory.update("milk", thread_id="t", user_id="u"),
        lambda memory: memory.history.delete(["2"], thread_id="t"),
        lambda memory: memory.history.append([HumanMessage("more")], **IDS),
    ],
    ids=["title", "working memory", "deletion", "message"],
)
def test_every_write_renews_the_vectors_too(
    brief: Memory, raw: redis.Redis, prefix: str, write: Callable[[Memory], object]
) -> None:
    brief.history.append([HumanMessage("my dog is Rocky", id="1"), HumanMessage("bye", id="2")], **IDS)
    keys = Keys(prefix).of("t")
    for key in raw.scan_iter(f"{keys.vector}*"):
        raw.pexpire(key, 3_600_000)
    raw.hset(keys.thread, "vectors_until", 1)
    write(brief)
    brief.settled()
    assert min(ttls(raw, prefix)[1]) > DAY


def test_a_memory_without_ttl_leaves_that_of_a_thread_that_has_no_message_yet(
    brief: Memory, make_memory: Make, raw: redis.Redis, prefix: str
) -> None:
    brief.threads.create(**IDS)
    make_memory(embeddings=WordEmbeddings(), recall=RecallOptions()).save_turn([HumanMessage("a secret")], **IDS)
    own, vectors = ttls(raw, prefix)
    assert all(0 < one <= DAY for one in own)
    assert all(DAY < one <= 2 * DAY for one in vectors)


def test_a_vector_that_an_expired_thread_has_left_lives_as_long_as_the_new_one(
    brief: Memory, make_memory: Make, raw: redis.Redis, prefix: str
) -> None:
    brief.history.append([HumanMessage("my dog is Rocky")], **IDS)
    keys = Keys(prefix).of("t")
    raw.delete(*(key for key in keys if key != keys.vector))  # as when it expires
    lasting = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions())
    lasting.threads.create(**IDS)
    lasting.history.append([HumanMessage("my dog is Rocky")], **IDS)
    assert ttls(raw, prefix)[1] == [-1]


def test_vectors_that_are_renewed_bring_no_deleted_thread_back(brief: Memory, raw: redis.Redis, prefix: str) -> None:
    brief.history.append([HumanMessage("my dog is Rocky")], **IDS)
    state = brief._core.state
    plan = renew_vectors(state, "t")
    effect: Any = next(plan)
    client: Any = raw
    for reading in itertools.count():
        replies = [client.execute_command(*command) for command in effect.commands]
        if reading == 0:
            brief.threads.delete("t")
        try:
            effect = plan.send(replies)
        except StopIteration:
            break
    assert not raw.exists(Keys(prefix).of("t").thread)
    assert brief.users.list().items == []


def test_a_thread_that_redis_has_evicted_in_part_goes_with_its_user(
    make_memory: Make, raw: redis.Redis, prefix: str
) -> None:
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions())
    memory.save_turn([HumanMessage("my dog is Rocky")], **IDS)
    raw.delete(Keys(prefix).of("t").thread)
    report = memory.users.delete("u")
    assert (report.verified, report.messages, report.vectors) == (True, 1, 1)
    assert [*raw.scan_iter(f"{prefix}:*{{t}}*")] == []


def test_what_a_state_has_trimmed_is_recalled_where_all_of_the_history_is_shown(make_memory: Make) -> None:
    memory = make_memory(
        embeddings=WordEmbeddings(),
        recall=RecallOptions(),
        history=HistoryOptions(last_messages=None, max_tokens=None),
    )
    graph = StateGraph(MessagesState)
    seen: list[str] = []

    def look(state: MessagesState) -> dict[str, Any]:
        seen.append(str(state["messages"]))
        return {"messages": []}

    graph.add_node("load", memory.load_node())
    graph.add_node("look", look)
    graph.add_node("save", memory.save_node())
    for begin, end in ((START, "load"), ("load", "look"), ("look", "save")):
        graph.add_edge(begin, end)
    app: Any = graph.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {**IDS}}
    app.invoke({"messages": [HumanMessage("my dog is called Rocky", id="1")]}, config)
    app.update_state(config, {"messages": [RemoveMessage(id="1")]})
    app.invoke({"messages": [HumanMessage("what is my dog called?", id="2")]}, config)
    assert "Rocky" in seen[-1]
