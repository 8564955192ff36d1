"""Input of any size and shape is stored as it is, or refused with the remedy before anything of it is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import (
    HistoryOptions,
    IndexOptions,
    Memory,
    OptionError,
    RecallOptions,
    WorkingMemoryOptions,
    WorkingMemoryValidationError,
)
from langchain_workingmem._engine.plan import Command
from langchain_workingmem.history import save
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


# ---------------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage("hi", id="m", name="n" * MIB, additional_kwargs={"k": "v" * MIB}),
        AIMessage("", id="m", tool_calls=[{"name": "f", "args": {"a": at}, "id": str(at)} for at in range(10_000)]),
        ToolMessage("", id="m", tool_call_id="c", artifact=list(range(100_000))),
    ],
    ids=["name and metadata", "tool calls", "artifact"],
)
def test_a_huge_message_comes_back_as_it_was(quick: Memory, message: BaseMessage) -> None:
    quick.history.append([message], **IDS)
    assert quick.history.messages("t") == [message]
    assert quick.threads.clone("t").thread.message_count == 1
    assert quick.threads.delete("t")


# ---------------------------------------------------------------------- numbers of things


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


# ---------------------------------------------------------------------- nesting


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
