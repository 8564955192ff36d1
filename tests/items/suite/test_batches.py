"""Batches of operations, and calls at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
)

from tests.items.suite.calls import at_once

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore, Op

pytestmark = pytest.mark.in_turn("face")
NS = ("users", "maya")
BAD: dict[str, Any] = {
    "put": PutOp(("a.b",), "k", {}),
    "get": GetOp(("a.b",), "k"),
    "search": SearchOp(("a.b",)),
    "list": ListNamespacesOp((MatchCondition("prefix", ("a.b",)),)),
}


def test_results_come_in_the_order_of_the_operations(store: BaseStore) -> None:
    store.put(NS, "a", {"n": 1})
    store.put(("teams", "red"), "b", {"n": 2})
    ops: list[Op] = [
        GetOp(("teams", "red"), "b"),
        PutOp(NS, "c", {"n": 3}),
        SearchOp(("users",), {"n": 1}),
        GetOp(NS, "missing"),
        ListNamespacesOp((MatchCondition("prefix", ("teams",)),)),
        GetOp(NS, "a"),
    ]
    first, put, found, missing, listed, last = cast("list[Any]", store.batch(ops))
    assert (first.key, put, missing, last.key) == ("b", None, None, "a")
    assert [item.key for item in found] == ["a"]
    assert isinstance(found[0], SearchItem)
    assert listed == [("teams", "red")]
    reversed_order = cast("list[Any]", store.batch([op for op in ops if isinstance(op, GetOp)][::-1]))
    assert [item and item.key for item in reversed_order] == ["a", None, "b"]


def test_a_batch_may_be_empty_or_any_iterable(store: BaseStore) -> None:
    assert store.batch([]) == []
    assert store.batch(PutOp(NS, str(number), {"n": number}) for number in range(3)) == [None] * 3
    assert len(store.search(NS)) == 3


def test_of_several_puts_to_an_item_the_last_wins(store: BaseStore) -> None:
    store.batch([PutOp(NS, "a", {"n": number}) for number in range(5)])
    assert cast("Item", store.get(NS, "a")).value == {"n": 4}


def test_of_a_put_and_a_delete_of_an_item_the_last_wins(store: BaseStore) -> None:
    store.batch([PutOp(NS, "a", {}), PutOp(NS, "a", None), PutOp(NS, "b", None), PutOp(NS, "b", {"n": 1})])
    assert store.get(NS, "a") is None
    assert cast("Item", store.get(NS, "b")).value == {"n": 1}


def test_a_large_batch_is_done_whole(store: BaseStore) -> None:
    store.batch([PutOp((*NS, str(number % 7)), str(number), {"n": number}) for number in range(500)])
    items = cast("list[Item]", store.batch([GetOp((*NS, str(n % 7)), str(n)) for n in range(500)]))
    assert [item.value["n"] for item in items] == list(range(500))


@pytest.mark.parametrize("kind", BAD)
def test_an_invalid_namespace_in_a_batch_is_refused(store: BaseStore, kind: str) -> None:
    with pytest.raises(InvalidNamespaceError):
        store.batch([BAD[kind]])


def test_a_batch_with_an_unknown_operation_writes_nothing(store: BaseStore) -> None:
    store.put(NS, "old", {"n": 1})
    with pytest.raises(Exception):  # noqa: B017, PT011 - LangGraph says not which
        store.batch([PutOp(NS, "new", {}), PutOp(NS, "old", {"n": 2}), cast("Op", object())])
    assert store.get(NS, "new") is None
    assert cast("Item", store.get(NS, "old")).value == {"n": 1}


def test_puts_of_different_keys_at_once_lose_nothing(store: BaseStore) -> None:
    at_once(store, [("put", (*NS, str(n % 5)), str(n), {"n": n}) for n in range(200)])
    assert sorted(item.value["n"] for item in store.search(NS, limit=300)) == list(range(200))


def test_puts_of_one_key_at_once_leave_one_of_the_values(store: BaseStore) -> None:
    at_once(store, [("put", NS, "k", {"n": n, "again": n}) for n in range(50)])
    (item,) = store.search(NS)
    assert item.value["n"] == item.value["again"]


def test_each_read_has_its_own_reply(store: BaseStore) -> None:
    store.batch([PutOp(NS, str(number), {"n": number}) for number in range(50)])
    items = at_once(store, [("get", NS, str(number)) for number in range(50)])
    assert [item.value["n"] for item in items] == list(range(50))


def test_puts_and_deletes_at_once_leave_what_was_not_deleted(store: BaseStore) -> None:
    store.batch([PutOp(NS, f"old {number}", {}) for number in range(40)])
    calls: list[Any] = [("delete", NS, f"old {number}") for number in range(40)]
    calls[::2] = [("put", NS, f"new {number}", {}) for number in range(0, 40, 2)]
    at_once(store, calls)
    kept = {f"new {number}" for number in range(0, 40, 2)} | {f"old {number}" for number in range(0, 40, 2)}
    assert {item.key for item in store.search(NS, limit=100)} == kept
