"""Values that no JSON can hold are refused at the door, with the remedy, and nothing of the call is written."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.store.base import GetOp, PutOp, SearchOp

from langchain_workingmem import Memory, RecallOptions, WorkingMemoryOptions
from langchain_workingmem.errors import OptionError, WorkingMemError
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embeddings import WordEmbeddings
from tests.working_memory.samples import with_memory

IDS: dict[str, Any] = {"thread_id": "t", "user_id": "u"}
HUGE = 10**5000  # more digits than Python prints


def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = wrap(value)
    return value


def endless() -> Any:
    """Make what holds itself twice at each level, so that whoever walks through it never ends."""
    one: dict[str, Any] = {}
    one |= {"a": [one], "b": [one]}
    return one


NO_JSON: dict[str, Any] = {
    "deep dicts": nested(102, lambda inner: {"a": inner}),
    "very deep lists": nested(100_000, lambda inner: [inner]),
    "itself": endless(),
    "a huge number": HUGE,
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
# what JSON can hold, odd as it is
JSON: dict[str, Any] = {
    "a long number": 10**400,
    "a hundred levels": nested(100, lambda inner: [inner]),
    "half an emoji": "\ud83d",
    "half an emoji as key": {"\ud83d": 1},
    "control characters": "\0\x1b[31m\u202e",
    "nothing": None,
}
every = pytest.mark.parametrize("value", (both := NO_JSON | NO_PLAIN_JSON).values(), ids=both)
worst = pytest.mark.parametrize("value", NO_JSON.values(), ids=NO_JSON)
odd = pytest.mark.parametrize("value", JSON.values(), ids=JSON)


@pytest.fixture
def written(raw: redis.Redis, prefix: str) -> Callable[[], dict[bytes, bytes]]:
    """Look at all that is stored."""
    client: Any = raw

    def look() -> dict[bytes, bytes]:
        return {key: client.dump(key) for key in client.scan_iter(f"{prefix}*", count=1000)}

    return look


def refused(call: Callable[[], object], written: Callable[[], Any], kind: type[Exception] = WorkingMemError) -> str:
    """Return what a refusal says, after a look at whether it has left anything behind."""
    before = written()
    with pytest.raises(kind) as found:
        call()
    assert isinstance(found.value, ValueError)
    assert written() == before
    said = str(found.value)
    assert len(said) < 1000
    return said


@odd
def test_store_values_that_json_can_hold(store: RedisMemoryStore, value: Any) -> None:
    if not isinstance(value, list):  # that is one level more
        store.put(("a",), "k", {"x": value})
        assert store.get(("a",), "k").value == {"x": value}  # type: ignore[union-attr]
        assert [item.key for item in store.search(("a",), filter={"x": value})] == ["k"]


@pytest.mark.parametrize(
    "key", [b"k", None, ("a",), 10**5000, nested(10**5, lambda inner: [inner])], ids=lambda one: type(one).__name__
)
def test_keys_of_the_store(store: RedisMemoryStore, written: Any, key: Any) -> None:
    for op in (PutOp(("a",), key, {"x": 1}), GetOp(("a",), key)):
        assert "use a str" in refused(lambda op=op: store.batch([op]), written, OptionError)  # type: ignore[misc]


@pytest.mark.parametrize(
    "query", [b"x", 1, ["x"], nested(10**5, lambda inner: [inner])], ids=lambda one: type(one).__name__
)
def test_queries_of_the_store(store: RedisMemoryStore, written: Any, query: Any) -> None:
    assert "use a str" in refused(lambda: store.batch([SearchOp(("a",), query=query)]), written, OptionError)


@pytest.mark.parametrize("path", [b"x", 1, "", ["x"]], ids=repr)
def test_paths_of_the_store(make_store: Callable[..., RedisMemoryStore], written: Any, path: Any) -> None:
    store = make_store(index={"dims": 64, "embed": WordEmbeddings()})
    refused(lambda: store.put(("a",), "k", {"x": 1}, index=[path]), written, OptionError)
    with pytest.raises(OptionError, match="name fields"):
        make_store(index={"dims": 64, "embed": WordEmbeddings(), "fields": [path]})


@every
def test_store_filters(store: RedisMemoryStore, value: Any) -> None:
    store.put(("a",), "k", {"x": 1})
    for odd in ({"x": value}, {"x": {"$eq": value}}, {"x": {"y": [value]}}, value):
        if isinstance(value, float) and isinstance(odd, dict):  # it equals nothing, as in LangGraph's stores
            assert store.search(("a",), filter=odd) == []
            continue
        with pytest.raises(OptionError, match="filter"):
            store.search(("a",), filter=odd)


@every
def test_metadata_of_threads(plain: Memory, written: Any, value: Any) -> None:
    plain.threads.create(thread_id="t", user_id="u", metadata={"x": 1})
    calls: list[Callable[[dict[str, Any]], object]] = [
        lambda odd: plain.threads.create(thread_id="new", user_id="u", metadata=odd),
        lambda odd: plain.threads.update("t", title="new", metadata=odd),
        lambda odd: plain.threads.clone("t", new_thread_id="new", metadata=odd),
    ]
    for call in calls:
        said = refused(lambda call=call: call({"y": 1, "x": value}), written, OptionError)  # type: ignore[misc]
        assert "use strings, numbers, booleans" in said
        refused(lambda call=call: call(value), written, OptionError)  # type: ignore[misc]
    for odd in (value, {"y": 1, "x": value}):  # as a filter, it may also be too deep
        refused(lambda odd=odd: plain.threads.list(user_id="u", metadata=odd), written, OptionError)  # type: ignore[misc]


@every
def test_metadata_that_recall_filters_on(make_memory: Callable[..., Memory], value: Any) -> None:
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions(filterable=["k"]))
    memory.history.append([HumanMessage("my dog", additional_kwargs={"k": 1})], **IDS)
    for odd in ({"k": value}, value):
        with pytest.raises(OptionError, match="metadata"):
            memory.recall.search("dog", user_id="u", metadata=odd)
        with pytest.raises(OptionError, match="metadata"):
            memory.context("dog", metadata=odd, **IDS)


@every
def test_metadata_of_messages_never_costs_a_message(make_memory: Callable[..., Memory], value: Any) -> None:
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions(filterable=["k"]))
    given = [
        HumanMessage("one", id="1", additional_kwargs={"k": value}),
        AIMessage("two", id="2", response_metadata={"k": value}, additional_kwargs={"metadata": {"k": value}}),
    ]
    memory.save_turn(given, **IDS)
    assert [message.content for message in memory.history.messages("t")] == ["one", "two"]


@pytest.mark.parametrize("name", ["very deep lists", "itself", "a huge number"])
def test_content_that_is_no_json(memory: Memory, written: Any, name: str) -> None:
    memory.history.append([HumanMessage("my dog", id="0")], **IDS)
    odd = [HumanMessage([{"type": "data", "data": both[name]}], id="1"), AIMessage("an answer", id="2")]
    said = refused(lambda: memory.save_turn(odd, **IDS), written, OptionError)
    assert "use JSON values" in said


@pytest.mark.parametrize("name", ["very deep lists", "itself"])
def test_arguments_of_tools_that_nobody_can_send(plain: Memory, name: str) -> None:
    call = AIMessage("", tool_calls=[{"name": "f", "args": {"x": both[name]}, "id": "1"}])
    with pytest.raises(OptionError, match="as plain JSON"):
        plain.context([HumanMessage("hello"), call, ToolMessage("done", tool_call_id="1")], **IDS)


@worst
@pytest.mark.parametrize("mode", ["merge", "replace", "append"])
def test_updates_of_working_memory(make_memory: Callable[..., Memory], written: Any, value: Any, mode: Any) -> None:
    memory = with_memory(make_memory, schema={"type": "object"})
    memory.working_memory.update({"x": [1]}, **IDS)
    for odd in ({"x": value}, {"x": [value]}, [value]):
        refused(lambda odd=odd: memory.working_memory.update(odd, mode=mode, **IDS), written)  # type: ignore[misc]


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"x":' * 100_000, '{"x": NaN}', '{"x": 1e999}', f'{{"x": {"9" * 5000}}}']
)
def test_texts_that_are_no_json_document(make_memory: Callable[..., Memory], written: Any, text: str) -> None:
    memory = with_memory(make_memory, schema={"type": "object"})
    refused(lambda: memory.working_memory.update(text, **IDS), written)


def call(tool: BaseTool, arguments: dict[str, Any], runner: asyncio.Runner | None) -> str:
    return str(runner.run(tool.ainvoke(arguments)) if runner else tool.invoke(arguments))


@pytest.mark.parametrize("name", ["deep dicts", "itself", "NaN", "bytes that are no text", "keys that are bytes"])
def test_arguments_of_the_update_tool(
    make_memory: Callable[..., Memory], runner: asyncio.Runner | None, written: Any, name: str
) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(schema={"type": "object"}))
    (tool,) = memory.tools(**IDS)
    assert "x: 1" in call(tool, {"memory": {"x": 1}}, runner)
    before = written()
    said = call(tool, {"memory": {"x": {"y": NO_JSON[name]}}}, runner)
    assert "not changed" in said or "nothing was changed" in said
    assert "Nothing was done" in call(tool, {"memory": '{"x":' * 100_000}, runner)
    assert written() == before


@pytest.mark.parametrize("name", ["very deep lists", "itself", "a huge number", "an object"])
def test_any_option_names_what_is_wrong_with_it(memory: Memory, store: RedisMemoryStore, name: str) -> None:
    value = NO_JSON[name]
    calls: list[Callable[[], object]] = [
        lambda: memory.recall.search("dog", user_id="u", top_k=value),
        lambda: memory.recall.search("dog", user_id="u", threshold=value),
        lambda: memory.recall.search("dog", user_id="u", since=value),
        lambda: memory.recall.search("dog", user_id="u", roles=[value]),
        lambda: memory.history.messages("t", last=value),
        lambda: memory.history.page("t", cursor=value),
        lambda: memory.threads.list(user_id="u", cursor=value),
        lambda: memory.threads.update("t", title=value),
        lambda: memory.history.append([value], **IDS),
        lambda: store.put(("a",), "k", {"x": 1}, ttl=value),
        lambda: store.search(("a",), limit=value),
    ]
    for one in calls:
        with pytest.raises(OptionError) as found:
            one()
        assert len(str(found.value)) < 1000
