"""The LangGraph store: items, batches, namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
import redis
from langchain_core.messages import HumanMessage
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchOp,
)

from langchain_workingmem import Memory, OptionError, RecallOptions
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.faces import AsyncFace
from tests.helpers.odd_ids import NAMES
from tests.helpers.trips import Trips

pytestmark = pytest.mark.in_turn("face")

Make = Callable[..., RedisMemoryStore]
NS = ("memories", "maya")


def test_a_deleted_item_leaves_no_key(store: RedisMemoryStore, raw: redis.Redis, prefix: str) -> None:
    for _ in range(2):
        store.put(NS, "dog", {"name": "Nougat"})
        store.delete(NS, "dog")
        store.delete(NS, "dog")
    assert store.get(NS, "dog") is None
    assert list(raw.scan_iter(f"{prefix}:item*")) == []


def test_an_update_keeps_the_time_of_creation_and_a_large_value_comes_back(store: RedisMemoryStore) -> None:
    store.put(NS, "dog", {})
    first = cast("Item", store.get(NS, "dog"))
    value = {"text": "0123456789" * 100_000, "fields": {f"field {number}": number for number in range(2_000)}}
    store.put(NS, "dog", value)
    second = cast("Item", store.get(NS, "dog"))
    assert first.created_at == first.updated_at == second.created_at < second.updated_at
    assert first.created_at.tzinfo is not None
    assert second.value == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": object()}, "'k' in .*maya.* is not JSON .*object"),
        ({"a": {1: "x"}}, "key 1 is no str"),
        ({"a": [float("nan")]}, "'k' in .*maya.* is not JSON .*range"),
        ("text", "is a str: use a dict"),
    ],
)
def test_what_json_cannot_carry_is_refused_and_nothing_is_written(
    store: RedisMemoryStore, value: Any, message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        store.put(NS, "k", value)
    assert store.get(NS, "k") is None


OUTSIDE: list[Op] = [  # of what a namespace may be
    *(PutOp(cast("Any", bad), "k", {}) for bad in (("a.b",), ("a", ""), (1,))),
    *(PutOp(("a.b",), "k", None), GetOp(("a", ""), "k"), SearchOp(("a.b",))),
    *(ListNamespacesOp((MatchCondition(end, ("a.b",)),)) for end in cast("Any", ("prefix", "suffix"))),
]
IMPOSSIBLE: list[Op] = [
    *(SearchOp(NS, {"a": {"$near": [1]}}), SearchOp(NS, limit=-1), ListNamespacesOp(limit=-1)),
    *(ListNamespacesOp(max_depth=0), ListNamespacesOp((MatchCondition(cast("Any", "infix"), ("a",)),))),
    *(PutOp(NS, "k", {"a": {1, 2}}), PutOp(NS, "k", {}, ttl=0), PutOp(NS, "k", {}, ttl=cast("Any", "1"))),
    cast("Op", ("put", "k")),
]


@pytest.mark.parametrize("bad", OUTSIDE + IMPOSSIBLE)
def test_one_bad_operation_stops_the_batch_before_anything_is_written(store: RedisMemoryStore, bad: Op) -> None:
    with pytest.raises(InvalidNamespaceError if bad in OUTSIDE else OptionError):
        store.batch([PutOp(NS, "good", {}), bad])
    for root in ((), ("langgraph", "a")):  # nothing is put there
        with pytest.raises(InvalidNamespaceError):
            store.put(root, "k", {})
    assert store.search(()) == []


def test_operations_cost_one_round_trip(store: RedisMemoryStore, trips: Trips) -> None:
    assert trips.of(lambda: store.put(NS, "k", {"n": 1})) == 1
    assert trips.of(lambda: store.get(NS, "k")) == 1
    assert trips.of(lambda: store.search(NS, filter={"n": 1})) == 1
    assert trips.of(lambda: store.list_namespaces(prefix=NS[:1])) == 1
    assert trips.of(lambda: store.delete(NS, "k")) == 1
    assert trips.of(lambda: store.batch([PutOp(NS, str(number), {"n": number}) for number in range(100)])) == 1
    assert trips.of(lambda: store.batch([GetOp(NS, str(number)) for number in range(100)])) == 1
    assert trips.of(lambda: store.batch([GetOp(NS, "1"), SearchOp(NS), SearchOp(NS), PutOp(NS, "1", {})])) == 4


def at_once(store: Any, calls: list[tuple[Any, ...]]) -> list[Any]:
    """Do calls from several threads, or of the async twins at once, and return the replies in order."""
    if isinstance(store, AsyncFace):

        async def gathered() -> list[Any]:
            return await asyncio.gather(*(getattr(store._target, f"a{name}")(*words) for name, *words in calls))

        return store._runner.run(gathered())
    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(lambda call: getattr(store, call[0])(*call[1:]), calls))


def test_calls_at_once_leave_what_was_not_deleted_and_each_read_has_its_own_reply(store: RedisMemoryStore) -> None:
    store.batch(PutOp(NS, f"old {number}", {"n": number}) for number in range(40))  # any iterable
    calls: list[Any] = [("delete", NS, f"old {number}") for number in range(40)]
    calls[::2] = [("put", NS, f"new {number}", {}) for number in range(0, 40, 2)]
    calls[::4] = [("get", NS, f"old {number}") for number in range(0, 40, 4)]
    assert [item.value["n"] for item in at_once(store, calls)[::4]] == [*range(0, 40, 4)]
    kept = {f"new {number}" for number in range(2, 40, 4)} | {f"old {number}" for number in range(0, 40, 2)}
    assert {item.key for item in store.search(NS, limit=100)} == kept


def test_a_filter_is_data_and_no_code_and_there_are_defaults(store: RedisMemoryStore) -> None:
    """Whatever filters, conditions and depths mean is in test_differential.py."""
    store.put(NS, "dog", {"kind": "pet", "it's 100 %": 3})
    assert [item.key for item in store.search(NS, filter={"it's 100 %": {"$gt": 2}})] == ["dog"]
    for text in ("x' OR '1'='1", "pet | thing", "*", "@kind:{pet}", "%"):
        assert store.search(NS, filter={"kind": text}) == []
    store.batch([PutOp(("many", str(number)), "k", {}) for number in range(101)])
    assert (len(store.search(())), len(store.list_namespaces())) == (10, 100)


def test_namespaces_are_exact_segments_of_any_characters(store: RedisMemoryStore) -> None:
    labels = [name for name in NAMES if "." not in name]
    store.batch([PutOp((label, "box"), "k", {"of": label}) for label in labels])
    store.batch([PutOp(("box", label), "k", {"of": label}) for label in labels])
    searches = store.batch([SearchOp((label,)) for label in labels])
    for label, found in zip(labels, cast("list[Any]", searches), strict=True):
        assert [(item.namespace, item.value) for item in found] == [((label, "box"), {"of": label})]
    items = cast("list[Any]", store.batch([GetOp(("box", label), "k") for label in labels]))
    assert [item.value["of"] for item in items] == labels
    expected = sorted([(label, "box") for label in labels] + [("box", label) for label in labels])
    assert store.list_namespaces(limit=1000) == expected
    for label in labels:
        if label != "*":
            assert store.list_namespaces(prefix=(label,)) == [(label, "box")]
            assert store.list_namespaces(suffix=(label,)) == [("box", label)]


def test_it_shares_the_server_with_a_memory_of_the_same_prefix(
    store: RedisMemoryStore, make_memory: Callable[..., Memory], embeddings: WordEmbeddings
) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions())
    memory.history.append([HumanMessage("hello there")], thread_id="maya", user_id="maya")
    store.put(("maya",), "k", {"text": "hello there"})
    assert memory.threads.list().total == 1
    assert len(memory.recall.search("hello", user_id="maya").hits) == 1
    assert store.list_namespaces() == [("maya",)]
    memory.threads.delete("maya")
    assert store.get(("maya",), "k") is not None


def test_stores_of_other_prefixes_see_nothing(make_store: Make, prefix: str) -> None:
    make_store().put(NS, "k", {})
    for other in (f"{prefix}:", f"{prefix}:item", f"{prefix}x", prefix[:-1]):
        store = make_store(key_prefix=other)
        assert store.get(NS, "k") is None
        assert store.search(()) == []
        assert store.list_namespaces() == []


def test_an_index_that_somebody_dropped_is_made_again(store: RedisMemoryStore, raw: redis.Redis, prefix: str) -> None:
    store.put(NS, "k", {"n": 1})
    raw.execute_command("FT.DROPINDEX", f"{prefix}:items")  # type: ignore[no-untyped-call]
    raw.script_flush()
    assert [item.key for item in store.search(NS, filter={"n": 1})] == ["k"]
    assert store.list_namespaces() == [NS]
