"""Items of the LangGraph store that expire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from langgraph.store.base import PutOp

from langchain_workingmem import OptionError
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embedded import wait_until
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.trips import Trips

Make = Callable[..., RedisMemoryStore]
pytestmark = pytest.mark.in_turn("face")
NS = ("memories", "maya")
SECOND = 1 / 60  # in minutes
TAGS: dict[str, Any] = {"tags": ["red fox", "blue sea", "old wine"]}


def left(raw: redis.Redis, prefix: str) -> list[int]:
    """Return how long each item and vector has to live, in ms; -1 is for ever."""
    return [int(raw.pttl(key)) for key in raw.scan_iter(f"{prefix}:item*:{{*")]


def expire_early(raw: redis.Redis, prefix: str) -> None:
    """Let all that will expire do so now, as if the time had passed."""
    seconds, micros = raw.time()
    past = seconds * 1000 + micros // 1000 - 1
    for key in raw.scan_iter(f"{prefix}:item*:{{*"):
        if raw.pttl(key) >= 0:
            raw.hset(key, "expires_at", str(past))


def test_an_item_expires_with_all_its_vectors_and_its_namespace(
    make_store: Make, embeddings: WordEmbeddings, raw: redis.Redis, prefix: str
) -> None:
    store = make_store(index={"dims": 64, "embed": embeddings, "fields": ["tags[*]"]})
    store.put(NS, "short", TAGS, ttl=0.05 * SECOND)
    store.put(("other",), "long", TAGS)
    wait_until(lambda: store.get(NS, "short", refresh_ttl=False) is None)
    assert [item.key for item in store.search((), query="red fox")] == ["long"]
    assert [item.key for item in store.search(())] == ["long"]
    assert store.list_namespaces() == [("other",)]
    wait_until(lambda: len(left(raw, prefix)) == 3)
    wait_until(lambda: raw.ft(f"{prefix}:items").search("*").total == 1)
    wait_until(lambda: raw.ft(f"{prefix}:item-vectors").search("*").total == 3)


def test_what_the_server_still_holds_of_an_expired_item_shortens_no_page(
    make_store: Make, embeddings: WordEmbeddings, raw: redis.Redis, prefix: str
) -> None:
    store = make_store(index={"dims": 64, "embed": embeddings, "fields": ["tags[*]"]})
    for number in range(12):
        store.put((*NS, str(number)), str(number), TAGS | {"n": number}, ttl=SECOND * 3600 if number % 2 else None)
    expire_early(raw, prefix)
    even = [str(number) for number in range(10, -1, -2)]
    for query in (None, "red fox"):
        for wanted in (None, {"n": {"$gte": 0}}, {"n": {"$ne": -1}}):
            pages = [
                store.search(NS, query=query, filter=wanted, limit=2, offset=start, refresh_ttl=False)
                for start in (0, 2, 4, 6)
            ]
            assert [len(page) for page in pages] == [2, 2, 2, 0]
            assert sorted(item.key for page in pages for item in page) == sorted(even)
    assert store.list_namespaces(limit=3, offset=3) == [(*NS, number) for number in ("4", "6", "8")]


LIFETIME = 100.0  # of an item, in seconds
Wait = Callable[[float], None]  # for so many lifetimes


@pytest.fixture
def brief(make_store: Make) -> RedisMemoryStore:
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


def test_an_item_expires_after_the_default_or_its_own_time(brief: RedisMemoryStore, wait: Wait) -> None:
    brief.batch([PutOp(NS, "short", {}, ttl=LIFETIME / 60 / 4), PutOp(NS, "long", {}, ttl=10)])
    brief.put(NS, "default", {})
    brief.put(NS, "for ever", {}, ttl=None)
    wait(0.5)
    assert brief.get(NS, "short", refresh_ttl=False) is None
    assert brief.get(NS, "default", refresh_ttl=False) is not None
    wait(0.75)
    assert brief.get(NS, "default") is None
    assert {item.key for item in brief.search(NS)} == {"long", "for ever"}
    brief.put(NS, "default", {"n": 2}, ttl=10)
    again = brief.get(NS, "default")
    assert again is not None
    assert again.created_at == again.updated_at


def test_a_put_or_a_read_gives_the_whole_time_again_unless_told_not_to(brief: RedisMemoryStore, wait: Wait) -> None:
    for key in ("get", "search", "get only", "search only", "put", "put for ever"):
        brief.put((*NS, key), "k", {})
    wait(0.6)
    assert brief.get((*NS, "get"), "k") is not None
    assert brief.search((*NS, "search"))
    assert brief.get((*NS, "get only"), "k", refresh_ttl=False) is not None
    assert brief.search((*NS, "search only"), refresh_ttl=False)
    brief.put((*NS, "put"), "k", {"n": 2})
    brief.put((*NS, "put for ever"), "k", {"n": 2}, ttl=None)
    for left in ({"get", "search", "put", "put for ever"}, {"put for ever"}):
        wait(0.6)
        assert {item.namespace[-1] for item in brief.search(NS, refresh_ttl=False)} == left


def test_refreshing_costs_a_search_one_more_round_trip_and_only_then(make_store: Make, trips: Trips) -> None:
    store = make_store()
    store.put(NS, "k", {}, ttl=10)
    store.put(("other",), "k", {})
    assert trips.of(lambda: store.get(NS, "k")) == 1
    assert trips.of(lambda: store.search(NS)) == 2
    assert trips.of(lambda: store.search(NS, refresh_ttl=False)) == 1
    assert trips.of(lambda: store.search(("other",))) == 1


@pytest.mark.parametrize("minutes", [0, float("nan"), "5", True])
def test_a_time_that_cannot_be_is_refused(minutes: Any) -> None:
    with pytest.raises(OptionError, match="positive number of minutes"):
        RedisMemoryStore(ttl={"default_ttl": minutes})
