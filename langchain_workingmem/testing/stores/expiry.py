"""Items that expire."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from langgraph.store.base import PutOp, TTLConfig

from langchain_workingmem.testing.stores.suite import Suite

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

NS = ("users", "maya")


class ExpiringStoreTests(Suite):
    """Items live as long as they were told to: the store is made with `ttl=self.ttl`."""

    lifetime: ClassVar[float] = 2.0
    """How long an item lives by default in these tests, in seconds; some tests wait twice as long."""

    @property
    def ttl(self) -> TTLConfig:
        """LangGraph's TTLConfig for the store."""
        return {"default_ttl": self.lifetime / 60, "refresh_on_read": True}

    def sweep(self, store: BaseStore) -> None:
        """Delete what has expired; for stores that do so in the background or when told."""

    def wait(self, store: BaseStore, lifetimes: float) -> None:
        """Let a time pass."""
        time.sleep(self.lifetime * lifetimes)
        self.sweep(store)

    def test_the_store_says_that_it_supports_them(self, store: BaseStore) -> None:
        assert store.supports_ttl
        assert store.ttl_config is not None

    def test_an_item_expires_after_the_default_or_its_own_time(self, store: BaseStore) -> None:
        store.put(NS, "default", {})
        store.put(NS, "short", {}, ttl=self.lifetime / 60 / 4)
        store.put(NS, "long", {}, ttl=10)
        store.put(NS, "for ever", {}, ttl=None)
        self.wait(store, 0.5)
        assert store.get(NS, "short", refresh_ttl=False) is None
        assert store.get(NS, "default", refresh_ttl=False) is not None
        self.wait(store, 0.75)
        assert store.get(NS, "default") is None
        assert {item.key for item in store.search(NS)} == {"long", "for ever"}

    def test_a_namespace_goes_with_its_last_item(self, store: BaseStore) -> None:
        store.put((*NS, "a"), "k", {})
        store.put((*NS, "b"), "k", {}, ttl=10)
        self.wait(store, 1.25)
        assert store.list_namespaces() == [(*NS, "b")]

    def test_a_read_gives_the_whole_time_again_unless_told_not_to(self, store: BaseStore) -> None:
        for key in ("get", "search", "get only", "search only"):
            store.put((*NS, key), "k", {})
        self.wait(store, 0.6)
        assert store.get((*NS, "get"), "k") is not None
        assert store.search((*NS, "search"))
        assert store.get((*NS, "get only"), "k", refresh_ttl=False) is not None
        assert store.search((*NS, "search only"), refresh_ttl=False)
        self.wait(store, 0.6)
        assert {item.namespace[-1] for item in store.search(NS, refresh_ttl=False)} == {"get", "search"}

    def test_a_put_gives_its_time_again(self, store: BaseStore) -> None:
        store.put(NS, "again", {"n": 1})
        store.put(NS, "for ever", {"n": 1})
        self.wait(store, 0.6)
        store.put(NS, "again", {"n": 2})
        store.put(NS, "for ever", {"n": 2}, ttl=None)
        self.wait(store, 0.6)
        assert {item.key for item in store.search(NS, refresh_ttl=False)} == {"again", "for ever"}
        self.wait(store, 0.6)
        assert {item.key for item in store.search(NS, refresh_ttl=False)} == {"for ever"}

    def test_an_expired_item_may_be_put_again(self, store: BaseStore) -> None:
        store.put(NS, "k", {"n": 1}, ttl=self.lifetime / 60 / 4)
        self.wait(store, 0.5)
        store.put(NS, "k", {"n": 2}, ttl=10)
        (item,) = store.search(NS)
        assert item.value == {"n": 2}
        assert item.created_at == item.updated_at

    def test_a_batch_has_a_time_for_each_item(self, store: BaseStore) -> None:
        store.batch([PutOp(NS, "short", {}, ttl=self.lifetime / 60 / 4), PutOp(NS, "long", {}, ttl=10)])
        self.wait(store, 0.5)
        assert [item.key for item in store.search(NS)] == ["long"]
