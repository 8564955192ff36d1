"""Data on all nodes of a cluster, and everything that reads them with a search."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, RedisConnectionError
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.operations import Caller

THREADS = 30


class Data:
    """A memory and a store whose data lie on all nodes, and everything that reads them with a search."""

    def __init__(self, memory: Memory, store: RedisMemoryStore, runner: asyncio.Runner | None) -> None:
        self.memory, self.store, self.runner = memory, store, runner

    def fill(self) -> None:
        for place in range(THREADS):
            message = HumanMessage(f"pears {place}", id=str(place))
            self.memory.history.append([message], thread_id=f"thread {place}", user_id="u")
            self.memory.threads.clone("thread 0", new_thread_id=f"copy {place}")
            self.store.put((f"place {place}",), "key", {"text": "pears"})

    def searches(self) -> dict[str, Callable[[], Any]]:
        memory, caller = self.memory, Caller(memory=self.memory, runner=self.runner)
        retriever = memory.as_retriever(top_k=2 * THREADS)
        return {
            "recall.search": lambda: _texts(memory.recall.search("pears", user_id="u", top_k=2 * THREADS).hits),
            "context": lambda: len(memory.context("pears?", thread_id="new", user_id="u").recalled.hits),
            "threads.list": lambda: memory.threads.list(user_id="u", limit=100).total,
            "history.for_user": lambda: memory.history.for_user("u", limit=100).total,
            "as_retriever": lambda: len(caller.invoke(retriever, "pears")),
            "users.export": lambda: len(list(memory.users.export("u"))),
            "store.search": lambda: len(self.store.search((), limit=100)),
            "store.list_namespaces": lambda: len(self.store.list_namespaces(limit=100)),
        }

    def read(self) -> dict[str, Any]:
        return {name: search() for name, search in self.searches().items()}

    def assert_nothing_is_read(self, **more: Any) -> None:
        for name, search in self.searches().items():
            with pytest.raises(RedisConnectionError) as caught:
                pytest.fail(f"{name}: {search()}")
            for key, value in more.items():
                assert getattr(caught.value, key) == value, name


def _texts(hits: Any) -> list[str]:
    return sorted(hit.message.text for hit in hits)
