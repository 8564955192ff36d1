"""Search below a namespace, with filters and pages, without vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langgraph.store.base import PutOp, SearchItem

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

pytestmark = pytest.mark.in_turn("face")
NS = ("users", "maya")
PETS: dict[str, dict[str, Any]] = {
    "dog": {"kind": "pet", "age": 3, "tame": True, "weight": 7.5},
    "cat": {"kind": "pet", "age": 10, "tame": False, "weight": 4.25},
    "car": {"kind": "thing", "age": 3, "note": None},
    "odd": {"kind": "it's 100 %", "age": -1, "a b": 1},
}
FILTERS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "text": ({"kind": "pet"}, {"dog", "cat"}),
    "number": ({"age": 3}, {"dog", "car"}),
    "float": ({"weight": 4.25}, {"cat"}),
    "true": ({"tame": True}, {"dog"}),
    "false": ({"tame": False}, {"cat"}),
    "two fields": ({"kind": "pet", "age": 3}, {"dog"}),
    "odd text": ({"kind": "it's 100 %"}, {"odd"}),
    "odd name": ({"a b": 1}, {"odd"}),
    "no match": ({"kind": "PET"}, set()),
    "no such field": ({"colour": "red"}, set()),
    "nothing": ({}, set(PETS)),
}
OPERATORS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "eq": ({"kind": {"$eq": "pet"}}, {"dog", "cat"}),
    "ne": ({"kind": {"$ne": "pet"}}, {"car", "odd"}),
    "gt": ({"age": {"$gt": 3}}, {"cat"}),
    "gte": ({"age": {"$gte": 3}}, {"dog", "cat", "car"}),
    "lt": ({"age": {"$lt": 3}}, {"odd"}),
    "lte": ({"age": {"$lte": 3}}, {"dog", "car", "odd"}),
    "below infinity": ({"age": {"$lt": float("inf"), "$gt": float("-inf")}}, {"dog", "cat", "car", "odd"}),
    "a range": ({"age": {"$gt": -1, "$lt": 10}}, {"dog", "car"}),
    "with equality": ({"age": {"$gte": 3}, "kind": "pet"}, {"dog", "cat"}),
}


def fill(store: BaseStore) -> None:
    """Put the pets, and one of them into another namespace."""
    store.batch([PutOp(NS, key, value) for key, value in PETS.items()] + [PutOp(("other",), "dog", PETS["dog"])])


def test_it_finds_what_is_below_the_prefix(store: BaseStore) -> None:
    names = [("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("b", "a")]
    store.batch([PutOp(name, "k", {}) for name in names])
    for prefix in [(), ("a",), ("a", "b"), ("b",), ("c",)]:
        below = {name for name in names if name[: len(prefix)] == prefix}
        assert {item.namespace for item in store.search(prefix)} == below


def test_what_it_finds_is_the_item_without_a_score(store: BaseStore) -> None:
    store.put(NS, "dog", PETS["dog"])
    (found,) = store.search(NS)
    item = store.get(NS, "dog")
    assert item is not None
    assert isinstance(found, SearchItem)
    assert (found.namespace, found.key, found.value, found.score) == (NS, "dog", PETS["dog"], None)
    assert (found.created_at, found.updated_at) == (item.created_at, item.updated_at)


@pytest.mark.parametrize("kind", FILTERS)
def test_a_filter_compares_fields(store: BaseStore, kind: str) -> None:
    fill(store)
    wanted, keys = FILTERS[kind]
    assert {item.key for item in store.search(NS, filter=wanted)} == keys


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_filter_has_operators(store: BaseStore, kind: str) -> None:
    fill(store)
    wanted, keys = OPERATORS[kind]
    assert {item.key for item in store.search(NS, filter=wanted)} == keys


def test_an_unknown_operator_is_refused(store: BaseStore) -> None:
    fill(store)
    with pytest.raises(ValueError):  # noqa: PT011 - each store says it in its own words
        store.search(NS, filter={"age": {"$near": 3}})


def test_a_filter_is_data_and_no_code(store: BaseStore) -> None:
    fill(store)
    for text in ("x' OR '1'='1", "pet | thing", "*", "@kind:{pet}", "%", "') OR 1=1 --"):
        assert store.search(NS, filter={"kind": text}) == []


def test_ten_are_found_by_default(store: BaseStore) -> None:
    store.batch([PutOp(NS, str(number), {}) for number in range(12)])
    assert len(store.search(NS)) == 10
    assert len(store.search(NS, limit=100)) == 12


@pytest.mark.parametrize("wanted", [None, {"even": True}], ids=["all", "filter"])
def test_pages_put_together_are_the_whole(store: BaseStore, wanted: dict[str, Any] | None) -> None:
    store.batch([PutOp((*NS, str(n % 3)), str(n), {"even": n % 2 == 0}) for n in range(30)])
    expected = {str(n) for n in range(30) if wanted is None or n % 2 == 0}
    pages = [store.search(NS, filter=wanted, limit=4, offset=start) for start in range(0, 32, 4)]
    keys = [item.key for page in pages for item in page]
    assert len(keys) == len(expected)
    assert set(keys) == expected
    assert store.search(NS, filter=wanted, limit=4, offset=100) == []


def test_an_update_is_found_by_its_new_fields_only(store: BaseStore) -> None:
    fill(store)
    store.put(NS, "dog", {"kind": "wolf"})
    assert [item.key for item in store.search(NS, filter={"kind": "pet"})] == ["cat"]
    assert [item.key for item in store.search(NS, filter={"kind": "wolf"})] == ["dog"]
