"""Input of any size and shape is stored as it is, or refused with the remedy before anything of it is sent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import (
    EmbeddingError,
    HistoryOptions,
    IndexOptions,
    Memory,
    OptionError,
    RecallOptions,
    WorkingMemError,
    WorkingMemoryOptions,
    WorkingMemoryValidationError,
)
from langchain_workingmem._engine.plan import Command
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.history import save
from langchain_workingmem.threads import copies
from tests.helpers.embeddings import WordEmbeddings

Make = Callable[..., Memory]
IDS: Any = {"thread_id": "t", "user_id": "u"}
MIB = 2**20


class Constant(WordEmbeddings):
    """Gives every text one vector, quickly."""

    vector: Any = (1.0, 0.0)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.vector] * len(texts)


@pytest.fixture
def quick(make_memory: Make) -> Memory:
    return make_memory(embeddings=Constant(), recall=RecallOptions(filterable=("k",)))


def nested(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = {"a": found}
    return found


def deeper(frames: int, call: Callable[[], Any]) -> Any:
    """Call from somewhere deep in Python's stack."""
    return call() if not frames else deeper(frames - 1, call)


def written(commands: list[Command]) -> list[Command]:
    return [command for command in commands if command[0] in {"EVALSHA", "EVAL"}]


# ---------------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage("word " * (MIB // 4), id="m"),
        HumanMessage("é" * MIB, id="m"),
        HumanMessage("hi", id="m", name="n" * MIB, additional_kwargs={"k": "v" * MIB}),
        AIMessage("", id="m", tool_calls=[{"name": "f", "args": {"a": at}, "id": str(at)} for at in range(10_000)]),
        HumanMessage([{"type": "text", "text": str(at)} for at in range(5_000)], id="m"),
        ToolMessage("", id="m", tool_call_id="c", artifact=list(range(100_000))),
    ],
    ids=["words", "a word", "name and metadata", "tool calls", "blocks", "artifact"],
)
def test_a_huge_message_comes_back_as_it_was(quick: Memory, message: BaseMessage) -> None:
    quick.history.append([message], **IDS)
    assert quick.history.messages("t") == [message]
    assert quick.threads.clone("t").thread.message_count == 1
    assert quick.threads.delete("t")


def test_a_clone_of_large_messages_goes_in_steps(quick: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[BaseMessage] = [HumanMessage("x" * 3000 + str(at), id=str(at)) for at in range(30)]
    quick.history.append(messages, **IDS)
    monkeypatch.setattr(copies, "STEP_BYTES", 10_000)
    copy = quick.threads.clone("t")
    assert copy.thread.message_count == 30
    copied = quick.history.messages(copy.thread.id)
    assert [message.content for message in copied] == [message.content for message in messages]
    assert len(quick.recall.search("x", thread_id=copy.thread.id, scope="thread", top_k=99)) == 30


# ---------------------------------------------------------------------- numbers of things


@pytest.mark.nightly
def test_50_000_messages_in_one_append(server: EmbeddedRedis, prefix: str) -> None:
    messages: list[BaseMessage] = [HumanMessage(f"number {at}", id=str(at)) for at in range(50_000)]
    with Memory(server.url, embeddings=Constant(), recall=RecallOptions(), key_prefix=prefix) as memory:
        assert memory.history.append(messages, **IDS) == messages
        assert memory.history.messages("t", last=49_000) == messages[1000:]
        assert memory.recall.search("number 49999", user_id="u", top_k=1).hits
        assert memory.history.delete([str(at) for at in range(49_999)], thread_id="t") == 49_999
        assert memory.history.messages("t") == messages[-1:]


@pytest.mark.parametrize(("algorithm", "most"), [("flat", 100_000), ("hnsw", 10_000)])
def test_too_many_messages_for_one_step_are_refused(
    make_memory: Make, algorithm: Any, most: int, commands: list[Command]
) -> None:
    assert save.MOST[algorithm] == most
    memory = make_memory(embeddings=Constant(), recall=RecallOptions(index=IndexOptions(algorithm=algorithm)))
    with pytest.raises(OptionError, match=r"messages and chunks in one atomic step.*save them in several calls"):
        memory.history.append([HumanMessage("hi") for _ in range(most // 2 + 1)], **IDS)
    assert commands == []


@pytest.mark.parametrize("number", [2**53 + 1, -(10**5000)], ids=["2^53", "-10^5000"])
def test_a_number_that_no_server_holds_is_refused(number: int, make_memory: Make) -> None:
    memory = make_memory(
        embeddings=Constant(), recall=RecallOptions(), working_memory=WorkingMemoryOptions(template="")
    )
    tries: list[Callable[[], Any]] = [
        lambda: memory.recall.search("hi", user_id="u", top_k=number),
        lambda: memory.recall.search("hi", user_id="u", message_range=number),
        lambda: memory.context("hi", **IDS, message_range=(0, number)),
        lambda: memory.history.messages("t", last=number),
        lambda: memory.history.page("t", limit=number),
        lambda: memory.history.for_user("u", limit=number),
        lambda: memory.threads.list(limit=number),
        lambda: memory.threads.clone("t", last_messages=number),
        lambda: memory.working_memory.revisions(user_id="u", limit=number),
        lambda: memory.working_memory.revert(number, user_id="u"),
        lambda: memory.working_memory.update("x", user_id="u", expected_revision=number),
        lambda: HistoryOptions(last_messages=number),
        lambda: WorkingMemoryOptions(revisions=number),
        lambda: RecallOptions(chunk_tokens=number),
        lambda: IndexOptions(m=number),
    ]
    for attempt in tries:
        with pytest.raises(OptionError, match=r"use (at most|an int of at least)"):
            attempt()


def test_numbers_that_would_exhaust_the_server_are_refused_with_the_largest_that_work(quick: Memory) -> None:
    tries: list[tuple[str, Callable[[], Any]]] = [
        (
            "top_k=100001: use at most 100000",
            lambda: quick.recall.search("hi", user_id="u", top_k=100_001),
        ),
        ("message_range=10001: use at most 10000", lambda: RecallOptions(message_range=10_001)),
        ("m=513: use at most 512", lambda: IndexOptions(m=513)),
        ("ef_construction=4097: use at most 4096", lambda: IndexOptions(ef_construction=4097)),
        ("ef_runtime=4097: use at most 4096", lambda: IndexOptions(ef_runtime=4097)),
    ]
    for message, attempt in tries:
        with pytest.raises(OptionError, match=message):
            attempt()


# ---------------------------------------------------------------------- nesting


def test_json_of_many_levels_is_read_back_from_anywhere_in_the_stack(plain: Memory) -> None:
    value = nested(80)
    call: Any = {"name": "f", "args": value, "id": "c", "type": "tool_call"}
    message = AIMessage("", id="m", tool_calls=[call], additional_kwargs={"k": value})
    plain.history.append([message], **IDS)
    assert deeper(300, lambda: plain.history.messages("t")) == [message]
    assert plain.threads.update("t", metadata={"k": value}).metadata == {"k": value}


@pytest.mark.parametrize("levels", [101, 100_000])
def test_json_of_more_levels_is_refused_or_left_out_as_what_is_no_json(
    levels: int, plain: Memory, make_memory: Make, caplog: pytest.LogCaptureFixture
) -> None:
    value = nested(levels)
    with pytest.raises(OptionError, match=r"nested deeper than 100 levels|recursion"):
        plain.history.append([AIMessage("", tool_calls=[{"name": "f", "args": value, "id": "c"}])], **IDS)
    with pytest.raises(OptionError, match=r"nested deeper than 100 levels|recursion"):
        plain.threads.create(user_id="u", metadata={"k": value})
    noted = make_memory(working_memory=WorkingMemoryOptions(schema={"type": "object"}))
    with pytest.raises(WorkingMemoryValidationError, match=r"nested deeper than 100 levels|depth exceeded"):
        noted.working_memory.update(value, user_id="u")
    message = ToolMessage("hi", tool_call_id="c", id="m", artifact=value, additional_kwargs={"deep": value, "flat": 1})
    plain.history.append([message], **IDS)
    assert plain.history.messages("t") == [ToolMessage("hi", tool_call_id="c", id="m", additional_kwargs={"flat": 1})]
    assert "not JSON in its artifact" in caplog.text


# ---------------------------------------------------------------------- vectors


@pytest.mark.parametrize(
    "vector",
    [[math.nan] * 2, [], [[1.0]], None, [1e300] * 2],
    ids=["nan", "empty", "nested", "none", "1e300"],
)
def test_vectors_that_are_none_are_an_error_and_the_messages_are_kept(vector: Any, make_memory: Make) -> None:
    model = Constant()
    model.vector = vector
    memory = make_memory(embeddings=model, recall=RecallOptions())
    with pytest.raises(EmbeddingError):
        memory.history.append([HumanMessage("hi", id="m")], **IDS)
    assert memory.history.messages("t") == [HumanMessage("hi", id="m")]
    with pytest.raises(EmbeddingError):
        memory.recall.search("hi", user_id="u")


def test_vectors_of_the_largest_size_work(make_memory: Make) -> None:
    largest = make_memory(embeddings=WordEmbeddings(32_768), recall=RecallOptions())
    largest.history.append([HumanMessage("hi", id="m")], **IDS)
    assert len(largest.recall.search("hi", user_id="u")) == 1


# ---------------------------------------------------------------------- characters


@pytest.mark.parametrize("bad", ["\ud800"])
def test_lone_surrogates_are_kept_where_json_can_and_refused_elsewhere(bad: str, make_memory: Make) -> None:
    memory = make_memory(
        embeddings=WordEmbeddings(),
        recall=RecallOptions(filterable=("k",)),
        working_memory=WorkingMemoryOptions(template=""),
    )
    message = HumanMessage(bad, id="m", name=bad, additional_kwargs={"k": bad})
    memory.history.append([message], **IDS)
    assert memory.history.messages("t") == [message]
    assert memory.threads.update("t", metadata={"k": bad}).metadata == {"k": bad}
    assert memory.threads.list(metadata={"k": bad}).total == 1
    assert len(memory.recall.search(bad, user_id="u", metadata={"k": bad})) == 1
    tries: list[Callable[[], Any]] = [
        lambda: memory.threads.update("t", title=bad),
        lambda: memory.threads.update("t", metadata={bad: 1}),
        lambda: memory.working_memory.update(bad, user_id="u"),
        lambda: memory.history.messages(bad),
        lambda: memory.history.messages("t", before=bad),
        lambda: memory.history.append([HumanMessage("hi", id=bad)], **IDS),
        lambda: memory.history.delete([bad], thread_id="t"),
        lambda: memory.threads.transfer("t", user_id="u", to=bad),
        lambda: memory.threads.clone("t", new_thread_id=bad),
        lambda: memory.recall.search("hi", user_id="u", exclude_message_ids=[bad]),
        lambda: memory.chat_history(bad),
        lambda: memory.threads.list(cursor=bad),
    ]
    for attempt in tries:
        with pytest.raises(WorkingMemError):
            attempt()
