"""The suite for stores, on ours and on LangGraph's store in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.store import RedisMemoryStore
from langchain_workingmem.testing.stores import (
    AsyncExpiringStoreTests,
    AsyncStoreTests,
    AsyncVectorStoreTests,
    ExpiringStoreTests,
    StoreTests,
    VectorStoreTests,
)

IN_MEMORY = {
    "test_an_update_keeps_the_time_of_creation": "it sets both times",
    "test_one_without_items_is_not_listed": "it lists namespaces that are empty or were only read",
}
IN_MEMORY_VECTORS = {
    "test_items_with_the_same_text_may_be_put_together": "it counts a text once and its places twice",
    "test_an_update_replaces_the_vectors": "it keeps the vectors of fields that the new value lacks",
}


class TestOurs(StoreTests):
    @pytest.fixture
    def store(self, server: EmbeddedRedis, prefix: str) -> Iterator[BaseStore]:
        with RedisMemoryStore.from_conn_string(server.url, key_prefix=prefix) as store:
            yield store


class TestOursWithVectors(VectorStoreTests):
    @pytest.fixture
    def store(self, server: EmbeddedRedis, prefix: str) -> Iterator[BaseStore]:
        with RedisMemoryStore.from_conn_string(server.url, key_prefix=prefix, index=self.index) as store:
            yield store


class Aged:
    """Lets time pass for our store without waiting: all that will expire is so much older."""

    lifetime = 100.0

    @pytest.fixture(autouse=True)
    def _look(self, raw: redis.Redis, prefix: str) -> None:
        self.raw, self.keys = raw, f"{prefix}:item*:{{*"

    def wait(self, store: BaseStore, lifetimes: float) -> None:
        passed = int(self.lifetime * lifetimes * 1000)
        for key in self.raw.scan_iter(self.keys):
            if (left := int(self.raw.pttl(key))) >= 0:
                self.raw.hincrby(key, "expires_at", -passed)
                self.raw.pexpire(key, left - passed)


class TestOursWithTimes(Aged, ExpiringStoreTests):
    @pytest.fixture
    def store(self, server: EmbeddedRedis, prefix: str) -> Iterator[BaseStore]:
        with RedisMemoryStore.from_conn_string(server.url, key_prefix=prefix, ttl=self.ttl) as store:
            yield store


class Opened:
    """Opens our store in the event loop of a test."""

    options: dict[str, Any] = {}

    @pytest.fixture(autouse=True)
    def _place(self, server: EmbeddedRedis, prefix: str) -> None:
        self.place = server.url, prefix

    def open_store(self) -> RedisMemoryStore:
        return RedisMemoryStore(self.place[0], key_prefix=self.place[1], **self.options)


class TestOursAsync(Opened, AsyncStoreTests):
    pass


class TestOursAsyncWithVectors(Opened, AsyncVectorStoreTests):
    @property
    def options(self) -> dict[str, Any]:  # type: ignore[override]
        return {"index": self.index}


class TestOursAsyncWithTimes(Opened, Aged, AsyncExpiringStoreTests):
    @property
    def options(self) -> dict[str, Any]:  # type: ignore[override]
        return {"ttl": self.ttl}


class TestInMemory(StoreTests):
    checks_batches = False
    expected_failures = IN_MEMORY

    @pytest.fixture
    def store(self) -> InMemoryStore:
        return InMemoryStore()


class TestInMemoryWithVectors(VectorStoreTests):
    expected_failures = IN_MEMORY_VECTORS

    @pytest.fixture
    def store(self) -> InMemoryStore:
        return InMemoryStore(index=self.index)


class TestInMemoryAsync(AsyncStoreTests):
    checks_batches = False
    expected_failures = IN_MEMORY

    @asynccontextmanager
    async def open_store(self) -> AsyncIterator[BaseStore]:
        yield InMemoryStore()
