"""The LangGraph store: items, batches, namespaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import redis
import redis.asyncio
from langchain_core.messages import HumanMessage
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, Op, PutOp, SearchOp

from langchain_workingmem import Memory, OptionError, RecallOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.odd_ids import NAMES
from tests.helpers.trips import Trips

pytestmark = pytest.mark.in_turn("face")

Make = Callable[..., RedisMemoryStore]
NS = ("memories", "maya")


def value_of(store: RedisMemoryStore, key: str, namespace: tuple[str, ...] = NS) -> Any:
    item = store.get(namespace, key)
    return item and item.value


# ------------------------------------------------------------------ items


def test_a_deleted_item_leaves_no_key(store: RedisMemoryStore, raw: redis.Redis, prefix: str) -> None:
    for _ in range(2):
        store.put(NS, "dog", {"name": "Nougat"})
        store.delete(NS, "dog")
        store.delete(NS, "dog")
    assert store.get(NS, "dog") is None
    assert list(raw.scan_iter(f"{prefix}:item*")) == []


@pytest.mark.parametrize(
    "value",
    [
        {"big": 2**70, "small": -(2**70), "tiny": 5e-324, "huge": 1.7e308},
        {"nul": "a\0b", "surrogate": "\ud800"},
    ],
)
def test_values_that_other_stores_lose_survive(store: RedisMemoryStore, value: dict[str, Any]) -> None:
    store.put(NS, "k", value)
    assert value_of(store, "k") == value
    assert [item.value for item in store.search(NS)] == [value]


@pytest.mark.parametrize(("value", "wanted"), [(1, 1.0), (1.0, 1), (1, True), ([1, 2.0], [1.0, 2])])
def test_a_filter_finds_what_python_calls_equal(store: RedisMemoryStore, value: Any, wanted: Any) -> None:
    store.put(NS, "k", {"n": value})
    assert [item.key for item in store.search(NS, filter={"n": wanted})] == ["k"]


@pytest.mark.parametrize("key", ["", "a\0b", "\ud800", "x" * 10_000])
def test_any_string_is_a_key(store: RedisMemoryStore, key: str) -> None:
    store.put(NS, key, {"key": key})
    assert value_of(store, key) == {"key": key}
    assert [item.key for item in store.search(NS)] == [key]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": object()}, "'k' in .*maya.* is not JSON .*object"),
        ({"a": {1: "x"}}, "key 1 is no str"),
        ({"a": [{None: "x"}]}, "key None is no str"),
        ({"a": [float("nan")]}, "'k' in .*maya.* is not JSON .*range"),
        ({"a": {"b": float("-inf")}}, "'k' in .*maya.* is not JSON .*range"),
        ("text", "is a str: use a dict"),
        ([], "is a list: use a dict"),
    ],
)
def test_what_json_cannot_carry_is_refused_and_nothing_is_written(
    store: RedisMemoryStore, value: Any, message: str
) -> None:
    store.put(NS, "k", {"old": 1})
    with pytest.raises(OptionError, match=message):
        store.put(NS, "k", value)
    assert value_of(store, "k") == {"old": 1}


# ------------------------------------------------------------------ batches


@pytest.mark.parametrize(
    "bad",
    [
        PutOp(("a.b",), "k", {}),
        PutOp(("",), "k", {}),
        PutOp(cast("Any", (1,)), "k", {}),
        GetOp(("a\0",), "k"),
        SearchOp(("a.b",)),
        SearchOp(NS, {"a": {"$near": [1]}}),
        SearchOp(NS, limit=-1),
        SearchOp(NS, offset=-1),
        ListNamespacesOp((MatchCondition(cast("Any", "infix"), ("a",)),)),
        ListNamespacesOp((MatchCondition("prefix", ("a.b",)),)),
        ListNamespacesOp(limit=-1),
        ListNamespacesOp(max_depth=0),
        PutOp(NS, "k", {"a": {1, 2}}),
        PutOp(NS, "k", {}, ttl=0),
        PutOp(NS, "k", {}, ttl=-1),
        PutOp(NS, "k", {}, ttl=float("inf")),
        PutOp(NS, "k", {}, ttl=cast("Any", "1")),
        cast("Op", ("put", "k")),
    ],
)
def test_one_bad_operation_stops_the_batch_before_anything_is_written(store: RedisMemoryStore, bad: Op) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - InvalidNamespaceError or OptionError
        store.batch([PutOp(NS, "good", {}), bad])
    assert store.get(NS, "good") is None


def test_operations_cost_one_round_trip(store: RedisMemoryStore, trips: Trips) -> None:
    assert trips.of(lambda: store.put(NS, "k", {"n": 1})) == 1
    assert trips.of(lambda: store.get(NS, "k")) == 1
    assert trips.of(lambda: store.search(NS, filter={"n": 1})) == 1
    assert trips.of(lambda: store.list_namespaces(prefix=NS[:1])) == 1
    assert trips.of(lambda: store.delete(NS, "k")) == 1
    assert trips.of(lambda: store.batch([PutOp(NS, str(number), {"n": number}) for number in range(100)])) == 1
    assert trips.of(lambda: store.batch([GetOp(NS, str(number)) for number in range(100)])) == 1
    assert trips.of(lambda: store.batch([GetOp(NS, "1"), SearchOp(NS), SearchOp(NS), PutOp(NS, "1", {})])) == 4


# ------------------------------------------------------------------ namespaces


def test_namespaces_are_exact_segments_of_any_characters(store: RedisMemoryStore) -> None:
    labels = [name for name in NAMES if "." not in name]
    store.batch([PutOp((label, "box"), "k", {"of": label}) for label in labels])
    store.batch([PutOp(("box", label), "k", {"of": label}) for label in labels])
    searches = store.batch([SearchOp((label,)) for label in labels])
    for label, found in zip(labels, cast("list[Any]", searches), strict=True):
        assert [(item.namespace, item.value) for item in found] == [((label, "box"), {"of": label})]
    for label, item in zip(
        labels, cast("list[Any]", store.batch([GetOp(("box", label), "k") for label in labels])), strict=True
    ):
        assert item.value == {"of": label}
    expected = sorted([(label, "box") for label in labels] + [("box", label) for label in labels])
    assert store.list_namespaces(limit=1000) == expected
    for label in labels:
        if label != "*":
            assert store.list_namespaces(prefix=(label,)) == [(label, "box")]
            assert store.list_namespaces(suffix=(label,)) == [("box", label)]


@pytest.mark.nightly
def test_more_namespaces_and_items_than_any_cap_are_listed(store: RedisMemoryStore) -> None:
    count = 12_000
    for start in range(0, count, 1000):
        store.batch([PutOp(("all", str(place)), "k", {"n": place, "s": "x"}) for place in range(start, start + 1000)])
    assert len(store.list_namespaces(limit=count + 1)) == count
    assert len(store.list_namespaces(prefix=("all", "*"), limit=100, offset=11_950)) == 50
    assert [item.value["n"] for item in store.search(("all",), limit=3, offset=11_000)] == [999, 998, 997]
    assert len(store.search(("all",), limit=count + 1, filter={"s": "x"})) == count
    assert [item.value["n"] for item in store.search(("all",), filter={"n": {"$lt": 100}}, limit=2, offset=97)] == [
        2,
        1,
    ]
    assert store.search(("all",), filter={"n": {"$lt": 0}}) == []


# ------------------------------------------------------------------ sync and async callers


def test_borrowed_clients_stay_open(server: EmbeddedRedis, make_store: Make, face: str, prefix: str) -> None:
    with redis.Redis.from_url(server.url, decode_responses=True, protocol=3) as client:
        store = RedisMemoryStore(client=client, key_prefix=prefix)
        store.put(NS, "k", {"é": [1.5]})
        assert [item.value for item in store.search(NS, filter={"é": [1.5]})] == [{"é": [1.5]}]
        assert store.list_namespaces() == [NS]
        store.close()
        assert client.ping()


# ------------------------------------------------------------------ beside others


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
