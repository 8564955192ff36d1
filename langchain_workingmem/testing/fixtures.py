"""Fixtures of pytest: a real Redis for a run of tests, and names of its own for each test.

pytest_plugins = ["langchain_workingmem.testing.fixtures"]  # in conftest.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from langchain_workingmem._engine.effects import send
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_workingmem._engine.effects import Plan


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The URL of a private Redis with Search, which ends with the run. Each process of pytest-xdist has its own.

    Override it in your conftest.py to test on another Redis, also with `scope="session"`.
    """
    with EmbeddedRedis() as server:
        yield server.url


@pytest.fixture
def key_prefix(redis_url: str) -> Iterator[str]:
    """A key prefix that no other test has; its keys and indexes are deleted behind the test."""
    prefix = f"test-{uuid4().hex[:16]}"
    yield prefix
    with Memory(redis_url, key_prefix=prefix) as memory:
        memory._core.run(_forget(prefix))


@pytest.fixture
def make_memory(redis_url: str, key_prefix: str) -> Iterator[Callable[..., Memory]]:
    """Make a `Memory` with the options that are passed, on the Redis of the run; it is closed behind the test.

    All memories of one test have the same data, as several processes of an application have.
    """
    made: list[Memory] = []

    def make(**options: Any) -> Memory:
        made.append(Memory(redis_url, **{"key_prefix": key_prefix, **options}))
        return made[-1]

    yield make
    for memory in made:
        memory.close()


def _forget(prefix: str) -> Plan[None]:
    (indexes,) = yield from send(("FT._LIST",))
    for index in (index for index in indexes if index.startswith(prefix.encode())):
        yield from send(("FT.DROPINDEX", index))
    cursor: Any = "0"
    while True:
        ((cursor, keys),) = yield from send(("SCAN", cursor, "MATCH", f"{prefix}*", "COUNT", "10000"))
        if keys:
            yield from send(("UNLINK", *keys))
        if int(cursor) == 0:
            return
