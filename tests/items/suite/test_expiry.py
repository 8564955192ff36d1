"""Items that expire."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from langgraph.store.base import BaseStore, PutOp

from langchain_workingmem.store import RedisMemoryStore

pytestmark = pytest.mark.in_turn("face")
NS = ("users", "maya")


LIFETIME = 100.0  # of an item, in seconds
Wait = Callable[[float], None]  # for so many lifetimes


@pytest.fixture
def store(make_store: Callable[..., RedisMemoryStore]) -> BaseStore:
    return make_store(ttl={"default_ttl": LIFETIME / 60, "refresh_on_read": True})


@pytest.fixture
def wait(raw: redis.Redis, prefix: str) -> Wait:
    """Let time pass without waiting: all that will expire is so much older."""

    def older(lifetimes: float) -> None:
        passed = int(LIFETIME * lifetimes * 1000)
        for key in raw.scan_iter(f"{prefix}:item*:{{*"):
            if (left := int(raw.pttl(key))) >= 0:
                raw.hincrby(key, "expires_at", -passed)
                raw.pexpire(key, left - passed)

    return older


def test_the_store_says_that_it_supports_them(store: BaseStore) -> None:
    assert store.supports_ttl
    assert store.ttl_config is not None


def test_an_item_expires_after_the_default_or_its_own_time(store: BaseStore, wait: Wait) -> None:
    store.put(NS, "default", {})
    store.put(NS, "short", {}, ttl=LIFETIME / 60 / 4)
    store.put(NS, "long", {}, ttl=10)
    store.put(NS, "for ever", {}, ttl=None)
    wait(0.5)
    assert store.get(NS, "short", refresh_ttl=False) is None
    assert store.get(NS, "default", refresh_ttl=False) is not None
    wait(0.75)
    assert store.get(NS, "default") is None
    assert {item.key for item in store.search(NS)} == {"long", "for ever"}


def test_a_namespace_goes_with_its_last_item(store: BaseStore, wait: Wait) -> None:
    store.put((*NS, "a"), "k", {})
    store.put((*NS, "b"), "k", {}, ttl=10)
    wait(1.25)
    assert store.list_namespaces() == [(*NS, "b")]


def test_a_read_gives_the_whole_time_again_unless_told_not_to(store: BaseStore, wait: Wait) -> None:
    for key in ("get", "search", "get only", "search only"):
        store.put((*NS, key), "k", {})
    wait(0.6)
    assert store.get((*NS, "get"), "k") is not None
    assert store.search((*NS, "search"))
    assert store.get((*NS, "get only"), "k", refresh_ttl=False) is not None
    assert store.search((*NS, "search only"), refresh_ttl=False)
    wait(0.6)
    assert {item.namespace[-1] for item in store.search(NS, refresh_ttl=False)} == {"get", "search"}


def test_a_put_gives_its_time_again(store: BaseStore, wait: Wait) -> None:
    store.put(NS, "again", {"n": 1})
    store.put(NS, "for ever", {"n": 1})
    wait(0.6)
    store.put(NS, "again", {"n": 2})
    store.put(NS, "for ever", {"n": 2}, ttl=None)
    wait(0.6)
    assert {item.key for item in store.search(NS, refresh_ttl=False)} == {"again", "for ever"}
    wait(0.6)
    assert {item.key for item in store.search(NS, refresh_ttl=False)} == {"for ever"}


def test_an_expired_item_may_be_put_again(store: BaseStore, wait: Wait) -> None:
    store.put(NS, "k", {"n": 1}, ttl=LIFETIME / 60 / 4)
    wait(0.5)
    store.put(NS, "k", {"n": 2}, ttl=10)
    (item,) = store.search(NS)
    assert item.value == {"n": 2}
    assert item.created_at == item.updated_at


def test_a_batch_has_a_time_for_each_item(store: BaseStore, wait: Wait) -> None:
    store.batch([PutOp(NS, "short", {}, ttl=LIFETIME / 60 / 4), PutOp(NS, "long", {}, ttl=10)])
    wait(0.5)
    assert [item.key for item in store.search(NS)] == ["long"]
