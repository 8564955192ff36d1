"""Namespaces: which are refused, which are equal, and how they are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langgraph.store.base import InvalidNamespaceError, PutOp

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

pytestmark = pytest.mark.in_turn("face")
NAMES = [("a", "x", "1"), ("a", "x", "2"), ("a", "y", "1"), ("b", "x", "1"), ("a",), ("a", "x", "1", "deep")]
LABELS = ["a b", "a:b", "a/b", "%", "_", "a,b", "{a}", "a|b", "'", '"', "\\", "日本", "?", "[a]", "-a", "@a", "x" * 200]
BAD: dict[str, Any] = {
    "empty label": ("a", ""),
    "period": ("a.b",),
    "number": ("a", 1),
    "nothing": ("a", None),
}


def fill(store: BaseStore, names: list[tuple[str, ...]] = NAMES) -> None:
    """Put an item into each namespace."""
    store.batch([PutOp(name, "k", {"of": "/".join(name)}) for name in names])


@pytest.mark.parametrize("kind", BAD)
def test_an_invalid_label_is_refused_everywhere(store: BaseStore, kind: str) -> None:
    bad = BAD[kind]
    for call in (
        lambda: store.put(bad, "k", {}),
        lambda: store.get(bad, "k"),
        lambda: store.delete(bad, "k"),
        lambda: store.search(bad),
        lambda: store.list_namespaces(prefix=bad),
        lambda: store.list_namespaces(suffix=bad),
    ):
        with pytest.raises(InvalidNamespaceError):
            call()


@pytest.mark.parametrize("bad", [(), ("langgraph",), ("langgraph", "a")], ids=["none", "reserved", "below"])
def test_nothing_is_put_at_the_root_or_below_the_reserved_one(store: BaseStore, bad: tuple[str, ...]) -> None:
    with pytest.raises(InvalidNamespaceError):
        store.put(bad, "k", {})
    assert store.search(()) == []


@pytest.mark.parametrize("label", LABELS)
def test_a_label_may_have_odd_characters(store: BaseStore, label: str) -> None:
    others = ["a", "b", "ab", "A", "xx"]
    fill(store, [(label, "box"), ("box", label), *((other, "box") for other in others)])
    found = store.search((label,))
    assert [(item.namespace, item.key) for item in found] == [((label, "box"), "k")]
    item = store.get(("box", label), "k")
    assert item is not None
    assert item.namespace == ("box", label)
    assert store.list_namespaces(prefix=(label,)) == [(label, "box")]
    assert store.list_namespaces(suffix=(label,)) == [("box", label)]


def test_labels_are_compared_whole_and_by_case(store: BaseStore) -> None:
    names: list[tuple[str, ...]] = [("user",), ("user1",), ("User",), ("user", "1"), ("1", "user"), ("use", "r")]
    fill(store, names)
    assert {item.namespace for item in store.search(("user",))} == {("user",), ("user", "1")}
    assert set(store.list_namespaces(prefix=("user",))) == {("user",), ("user", "1")}
    assert set(store.list_namespaces(suffix=("user",))) == {("user",), ("1", "user")}


def test_all_are_listed_once(store: BaseStore) -> None:
    assert store.list_namespaces() == []
    fill(store)
    store.put(NAMES[0], "other", {})
    assert sorted(store.list_namespaces()) == sorted(NAMES)


def test_prefix_and_suffix_and_both(store: BaseStore) -> None:
    fill(store)
    listed = store.list_namespaces
    assert set(listed(prefix=("a", "x"))) == {("a", "x", "1"), ("a", "x", "2"), ("a", "x", "1", "deep")}
    assert set(listed(suffix=("x", "1"))) == {("a", "x", "1"), ("b", "x", "1")}
    assert set(listed(prefix=("a",), suffix=("1",))) == {("a", "x", "1"), ("a", "y", "1")}
    assert listed(prefix=("c",)) == []
    assert listed(prefix=("a", "x", "1", "deep", "er")) == []


def test_a_star_stands_for_any_label(store: BaseStore) -> None:
    fill(store)
    listed = store.list_namespaces
    assert set(listed(prefix=("*", "x"))) == {name for name in NAMES if name[1:2] == ("x",)}
    assert set(listed(suffix=("x", "*"))) == {("a", "x", "1"), ("a", "x", "2"), ("b", "x", "1")}
    assert set(listed(prefix=("*", "x"), suffix=("*", "1"))) == {("a", "x", "1"), ("b", "x", "1")}


def test_deeper_ones_are_cut_and_listed_once(store: BaseStore) -> None:
    fill(store)
    assert sorted(store.list_namespaces(max_depth=2)) == [("a",), ("a", "x"), ("a", "y"), ("b", "x")]
    assert sorted(store.list_namespaces(max_depth=1)) == [("a",), ("b",)]
    assert sorted(store.list_namespaces(prefix=("a", "x"), max_depth=3)) == [("a", "x", "1"), ("a", "x", "2")]


def test_pages_of_namespaces_are_the_whole(store: BaseStore) -> None:
    fill(store, [("page", f"{number:02}") for number in range(25)])
    pages = [store.list_namespaces(prefix=("page",), limit=10, offset=start) for start in (0, 10, 20, 30)]
    assert [len(page) for page in pages] == [10, 10, 5, 0]
    assert sorted(name for page in pages for name in page) == [("page", f"{number:02}") for number in range(25)]


def test_a_hundred_are_listed_by_default(store: BaseStore) -> None:
    fill(store, [("many", str(number)) for number in range(105)])
    assert len(store.list_namespaces()) == 100
    assert len(store.list_namespaces(limit=200)) == 105


def test_one_without_items_is_not_listed(store: BaseStore) -> None:
    fill(store, [("a", "b"), ("a", "c")])
    store.get(("a", "d"), "k")
    store.delete(("a", "b"), "k")
    assert store.list_namespaces() == [("a", "c")]
