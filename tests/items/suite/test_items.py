"""Putting, getting and deleting one item, and the values that it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from langgraph.store.base import Item

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

pytestmark = pytest.mark.in_turn("face")
NS = ("users", "maya")

VALUES: dict[str, dict[str, Any]] = {
    "empty": {},
    "text": {"text": 'She said: "it\'s 5 %"\n\t\\ {a} [b]'},
    "unicode": {"日本": "🍒 é ß", "ключ": "\u202eabc"},
    "numbers": {"int": 7, "negative": -7, "float": 1.5, "zero": 0, "exact": 2**53},
    "large integers": {"n": 2**63 - 1, "m": -(2**63)},
    "booleans and null": {"yes": True, "no": False, "nothing": None},
    "lists": {"empty": [], "mixed": [1, "1", None, True, [2, [3]]]},
    "nested": {"a": {"b": {"c": {"d": {}}}}, "list": [{"of": [{"dicts": 1}]}]},
    "odd names": {"": 1, "a.b": 2, "$gt": 3, "a b": 4, "'": 5},
}


def test_an_item_is_what_was_put(store: BaseStore) -> None:
    assert store.get(NS, "dog") is None
    store.put(NS, "dog", {"name": "Nougat"})
    item = store.get(NS, "dog")
    assert isinstance(item, Item)
    assert (item.namespace, item.key, item.value) == (NS, "dog", {"name": "Nougat"})


def test_it_is_found_under_its_own_namespace_and_key_only(store: BaseStore) -> None:
    store.put(NS, "dog", {"n": 1})
    for namespace, key in [(NS[:1], "dog"), ((*NS, "x"), "dog"), (NS[::-1], "dog"), (NS, "Dog"), (NS, "do")]:
        assert store.get(namespace, key) is None


def test_an_update_replaces_the_whole_value(store: BaseStore) -> None:
    store.put(NS, "dog", {"name": "Nougat", "age": 3})
    store.put(NS, "dog", {"name": "Bo"})
    assert _value(store, "dog") == {"name": "Bo"}
    assert len(store.search(NS)) == 1


def test_times_have_a_zone_and_an_update_moves_the_second_one(store: BaseStore) -> None:
    store.put(NS, "dog", {"n": 1})
    first = cast("Item", store.get(NS, "dog"))
    store.put(NS, "dog", {"n": 2})
    second = cast("Item", store.get(NS, "dog"))
    assert first.created_at.tzinfo is not None
    assert first.updated_at.tzinfo is not None
    assert first.created_at <= first.updated_at
    assert second.updated_at >= first.updated_at


def test_an_update_keeps_the_time_of_creation(store: BaseStore) -> None:
    store.put(NS, "dog", {"n": 1})
    first = cast("Item", store.get(NS, "dog"))
    store.put(NS, "dog", {"n": 2})
    assert cast("Item", store.get(NS, "dog")).created_at == first.created_at


def test_a_deleted_item_is_gone(store: BaseStore) -> None:
    store.put(NS, "dog", {"n": 1})
    store.put(NS, "cat", {"n": 2})
    store.delete(NS, "dog")
    assert store.get(NS, "dog") is None
    assert [item.key for item in store.search(NS)] == ["cat"]


def test_deleting_what_is_not_there_does_nothing(store: BaseStore) -> None:
    store.delete(NS, "dog")
    store.put(NS, "cat", {})
    store.delete((*NS, "x"), "cat")
    assert _value(store, "cat") == {}


def test_none_as_a_value_deletes(store: BaseStore) -> None:
    store.put(NS, "dog", {"n": 1})
    store.put(NS, "dog", cast("Any", None))
    assert store.get(NS, "dog") is None
    assert store.search(NS) == []


def test_a_deleted_item_may_be_put_again(store: BaseStore) -> None:
    store.put(NS, "dog", {"n": 1})
    store.delete(NS, "dog")
    store.put(NS, "dog", {"n": 2})
    assert _value(store, "dog") == {"n": 2}


def test_a_time_to_live_is_refused_by_a_store_without_any(store: BaseStore) -> None:
    if store.supports_ttl:
        pytest.skip("this store has times to live")
    with pytest.raises(NotImplementedError):
        store.put(NS, "dog", {}, ttl=1)
    assert store.get(NS, "dog") is None


@pytest.mark.parametrize(
    "key", ["a b", "a.b", "a:b", "a/b", "*", "%", "_", "{a}", "a|b", "'", '"', "\\", "日本", "x" * 500]
)
def test_a_key_may_have_odd_characters(store: BaseStore, key: str) -> None:
    store.put(NS, key, {"key": key})
    store.put(NS, "k", {"key": "k"})
    assert _value(store, key) == {"key": key}
    assert sorted(item.key for item in store.search(NS)) == sorted(["k", key])
    store.delete(NS, key)
    assert [item.key for item in store.search(NS)] == ["k"]


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_of_json_comes_back_as_it_was(store: BaseStore, kind: str) -> None:
    store.put(NS, "k", VALUES[kind])
    assert _with_types(_value(store, "k")) == _with_types(VALUES[kind])
    assert [_with_types(item.value) for item in store.search(NS)] == [_with_types(VALUES[kind])]


def test_a_large_value_comes_back_as_it_was(store: BaseStore) -> None:
    text = "0123456789" * 100_000
    store.put(NS, "k", {"text": text})
    assert _value(store, "k") == {"text": text}


def test_many_fields_come_back_as_they_were(store: BaseStore) -> None:
    value = {f"field {number}": number for number in range(2_000)}
    store.put(NS, "k", value)
    assert _value(store, "k") == value


def _value(store: BaseStore, key: str) -> Any:
    item = store.get(NS, key)
    return None if item is None else item.value


def _with_types(value: Any) -> Any:
    """Return a value in which 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return {name: _with_types(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_types(each) for each in value]
    return type(value).__name__, value
