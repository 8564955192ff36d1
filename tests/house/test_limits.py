"""Input of any size and shape, and options: taken as they are, or refused with the remedy before anything is sent."""

# mypy: disable-error-code="arg-type"
from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import (
    HistoryOptions,
    IndexOptions,
    Memory,
    OptionError,
    RecallOptions,
    WorkingMemoryOptions,
)
from langchain_workingmem._engine.plan import Command
from langchain_workingmem.errors import WorkingMemError
from langchain_workingmem.history import save
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.types import Make
from tests.working_memory.samples import with_memory

IDS: Any = {"thread_id": "t", "user_id": "u"}
MIB = 2**20


class Constant(WordEmbeddings):
    """Gives every text one vector, quickly."""

    vector: Any = (1.0, 0.0)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.vector] * len(texts)


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage("hi", id="m", name="n" * MIB, additional_kwargs={"k": "v" * MIB}),
        AIMessage("", id="m", tool_calls=[{"name": "f", "args": {"a": at}, "id": str(at)} for at in range(10_000)]),
        ToolMessage("", id="m", tool_call_id="c", artifact=list(range(100_000))),
    ],
    ids=["name and metadata", "tool calls", "artifact"],
)
def test_a_huge_message_comes_back_as_it_was(make_memory: Make, message: BaseMessage) -> None:
    memory = make_memory(embeddings=Constant(), recall=RecallOptions(filterable=("k",)))
    memory.history.append([message], **IDS)
    assert memory.history.messages("t") == [message]
    assert memory.threads.clone("t").thread.message_count == 1
    assert memory.threads.delete("t")


@pytest.mark.parametrize(("algorithm", "most"), [("flat", 100_000), ("hnsw", 10_000)])
def test_too_many_messages_for_one_step_are_refused(
    make_memory: Make, algorithm: Any, most: int, commands: list[Command], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert save.MOST_AT_ONCE[algorithm] == most
    monkeypatch.setitem(save.MOST_AT_ONCE, algorithm, 10)
    memory = make_memory(embeddings=Constant(), recall=RecallOptions(index=IndexOptions(algorithm=algorithm)))
    with pytest.raises(OptionError, match=r"messages and chunks in one atomic step.*save them in several calls"):
        memory.history.append([HumanMessage("hi") for _ in range(6)], **IDS)
    assert commands == []


@pytest.mark.parametrize("number", [2**53 + 1, -(10**5000)], ids=["2^53", "-10^5000"])
def test_a_number_that_no_server_holds_is_refused(number: int, make_memory: Make) -> None:
    memory = make_memory(embeddings=Constant(), working_memory=WorkingMemoryOptions(template=""))
    noted: Any = memory.working_memory
    search: Any = partial(memory.recall.search, "hi", user_id="u")
    tries: list[Callable[[], Any]] = [
        *(partial(search, top_k=number), partial(search, message_range=number)),
        partial(memory.context, "hi", **IDS, message_range=(0, number)),
        *(partial(memory.history.messages, "t", last=number), partial(memory.history.page, "t", limit=number)),
        *(partial(memory.history.for_user, "u", limit=number), partial(memory.threads.list, limit=number)),
        partial(memory.threads.clone, "t", last_messages=number),
        *(partial(noted.revisions, user_id="u", limit=number), partial(noted.revert, number, user_id="u")),
        partial(noted.update, "x", user_id="u", expected_revision=number),
        *(partial(HistoryOptions, last_messages=number), partial(WorkingMemoryOptions, revisions=number)),
        *(partial(RecallOptions, chunk_tokens=number), partial(IndexOptions, m=number)),
    ]
    for attempt in tries:
        with pytest.raises(OptionError, match=r"use (at most|an int of at least)"):
            attempt()


def nested(levels: int, wrap: Callable[[Any], Any] = lambda inner: {"a": inner}) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = wrap(found)
    return found


def endless() -> Any:
    """Make what holds itself twice at each level, so that whoever walks through it never ends."""
    one: dict[str, Any] = {}
    one |= {"a": [one], "b": [one]}
    return one


NO_JSON: dict[str, Any] = {
    "deep dicts": nested(102),
    "very deep lists": nested(100_000, lambda inner: [inner]),
    "itself": endless(),
    "a huge number": 10**5000,
    "NaN": math.nan,
    "an object": object(),
    "bytes that are no text": b"\xff",
    "keys that are bytes": {b"\xff": 1},
}
# what working memory writes as JSON, because its schemas may have such fields
NO_PLAIN_JSON: dict[str, Any] = {
    "bytes": b"x",
    "a set": {1, 2},
    "numbers as keys": {1: 2},
    "a pair as key": {"a": [{(1, 2): 3}]},
}
BOTH = NO_JSON | NO_PLAIN_JSON
Refuse = Callable[..., None]


@pytest.fixture
def refuse(raw: redis.Redis, prefix: str) -> Refuse:
    """See that each call is refused in few words and leaves nothing behind."""
    client: Any = raw

    def written() -> dict[bytes, bytes]:
        return {key: client.dump(key) for key in client.scan_iter(f"{prefix}*", count=1000)}

    def check(*calls: Callable[[], object], words: str | None = None) -> None:
        before = written()
        for call in calls:
            with pytest.raises(WorkingMemError, match=words) as found:
                call()
            assert isinstance(found.value, ValueError)
            assert len(str(found.value)) < 1000
        assert written() == before

    return check


@pytest.mark.parametrize("value", BOTH.values(), ids=BOTH)
def test_metadata_of_threads_that_is_no_json_is_refused(plain: Memory, refuse: Refuse, value: Any) -> None:
    plain.threads.create(thread_id="t", user_id="u", metadata={"x": 1})
    within: Any = {"y": 1, "x": value}
    for metadata, words in ((within, "use strings, numbers, booleans"), (value, None)):
        refuse(
            partial(plain.threads.create, thread_id="new", user_id="u", metadata=metadata),
            partial(plain.threads.update, "t", title="new", metadata=metadata),
            partial(plain.threads.clone, "t", new_thread_id="new", metadata=metadata),
            words=words,
        )
        refuse(partial(plain.threads.list, user_id="u", metadata=metadata))  # as a filter, it may also be too deep


@pytest.mark.parametrize("value", NO_JSON.values(), ids=NO_JSON)
@pytest.mark.parametrize("mode", ["merge", "replace", "append"])
def test_an_update_of_working_memory_that_is_no_json_is_refused(
    make_memory: Make, refuse: Refuse, value: Any, mode: Any
) -> None:
    memory = with_memory(make_memory, schema={"type": "object"})
    memory.working_memory.update({"x": [1]}, **IDS)
    for odd in ({"x": value}, {"x": [value]}, [value]):
        refuse(partial(memory.working_memory.update, odd, mode=mode, **IDS))


@pytest.mark.parametrize("levels", [101, 100_000])
def test_a_message_is_stored_without_an_artifact_that_is_no_json(
    levels: int, plain: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    value = nested(levels)
    with pytest.raises(OptionError, match=r"nested deeper than 100 levels|recursion"):
        plain.history.append([AIMessage("", tool_calls=[{"name": "f", "args": value, "id": "c"}])], **IDS)
    message = ToolMessage("hi", tool_call_id="c", id="m", artifact=value, additional_kwargs={"deep": value, "flat": 1})
    plain.history.append([message], **IDS)
    assert plain.history.messages("t") == [ToolMessage("hi", tool_call_id="c", id="m", additional_kwargs={"flat": 1})]
    assert "not JSON in its artifact" in caplog.text


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: HistoryOptions(last_messages=-1), ["last_messages=-1", "int of at least 0"]),
        (lambda: HistoryOptions(media="first"), ["media='first'"]),
        (lambda: HistoryOptions(token_counter="exact"), ["token_counter='exact'", "'approximate'"]),
        (lambda: HistoryOptions(exclude_tools="search"), ["exclude_tools='search'", "list of tool names"]),
        (lambda: HistoryOptions(roles=[]), ["roles is empty", "at least one role, or leave it out"]),
        (lambda: RecallOptions(message_range=(1, 2, 3)), ["message_range=(1, 2, 3)", "pair (before, after)"]),
        (lambda: RecallOptions(scope="resource"), ["scope='resource'", "'user'", "'thread'"]),
        (lambda: RecallOptions(threshold=float("nan")), ["threshold=nan", "0 to 1"]),
        (lambda: RecallOptions(embedding_timeout=30), ["embedding_timeout=30", "positive timedelta"]),
        (lambda: RecallOptions(index={"m": 4}), ["index is of type dict", "IndexOptions(...)"]),
        (lambda: Memory(recall={"top_k": 3}), ["recall is of type dict", "RecallOptions(...)"]),
        (lambda: Memory(embeddings=5, recall=RecallOptions()), ["embeddings is of type int", "'local'"]),
        (lambda: MemoryMiddleware("x"), ["memory is of type str", "Memory(...)"]),
        (lambda: RecallOptions(filterable="topic"), ["filterable='topic'", "list of metadata keys"]),
        (lambda: IndexOptions(algorithm="svs"), ["algorithm='svs'", "'flat'", "'hnsw'"]),
        (lambda: IndexOptions(dtype="int8", distance="ip"), ["dtype='int8'", "distance='cosine'"]),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_what_was_seen_and_the_remedy(
    make: Callable[[], object], words: list[str]
) -> None:
    with pytest.raises(OptionError) as caught:
        make()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, WorkingMemError)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda memory: memory.history.delete(5, thread_id="t"), "use a list of ids"),
        (lambda memory: memory.history.delete(thread_id="t"), "pass one of them"),
        (lambda memory: memory.working_memory.undo(5, user_id="u"), "pass a JSON Pointer"),
    ],
)
def test_an_argument_that_cannot_be_read_is_refused(make_memory: Make, call: Callable[[Any], Any], remedy: str) -> None:
    with pytest.raises(OptionError, match=remedy):
        call(make_memory(working_memory=WorkingMemoryOptions()))
