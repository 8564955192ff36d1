"""The stores that the tests of peers make are ours."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from importlib import import_module
from typing import Any, Self
from uuid import uuid4

import pytest
from peer_plugin import OURS, server  # type: ignore[import-not-found] # beside this file

from langchain_workingmem.store import RedisMemoryStore

made: list[RedisMemoryStore] = []
FRESH = {":memory:"}  # each such database is a new one


class Ours(RedisMemoryStore):
    """Our store, made as LangGraph's stores are made; the same connection string is the same database."""

    MIGRATIONS: tuple[str, ...] = ()

    def __init__(self, conn_string: str = ":memory:", *, index: Any = None, ttl: Any = None, **_: Any) -> None:
        name = uuid4().hex if conn_string in FRESH else sha256(conn_string.encode()).hexdigest()
        patient = timedelta(minutes=1)  # 60,000 calls at once wait for a connection, 10 seconds or more
        super().__init__(server.url, index=index, ttl=ttl, key_prefix=f"peers:{name}", timeout=patient)
        made.append(self)

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Any:  # type: ignore[override]
        return cls(conn_string, **options)

    def _cursor(self) -> NoConnection:
        return NoConnection()

    # Redis deletes what has expired, so a sweep has nothing to do
    def start_ttl_sweeper(self, *_: Any, **__: Any) -> None: ...

    def stop_ttl_sweeper(self, *_: Any, **__: Any) -> bool:
        return True

    def sweep_ttl(self) -> int:
        return 0


class AsyncOurs(Ours):
    """The same, as LangGraph's async stores are."""

    def _cursor(self) -> Any:
        return NoAsyncConnection()

    async def setup(self) -> None:  # type: ignore[override]
        await self.asetup()

    async def start_ttl_sweeper(self, *_: Any, **__: Any) -> None: ...  # type: ignore[override]

    async def stop_ttl_sweeper(self, *_: Any, **__: Any) -> bool:  # type: ignore[override]
        return True

    async def sweep_ttl(self) -> int:  # type: ignore[override]
        return 0


class NoConnection:
    """Instead of a connection to Postgres or its cursor, by which the tests make and drop databases and tables."""

    def __class_getitem__(cls, _: Any) -> type[Self]:
        return cls

    @classmethod
    def connect(cls, *_: Any, **__: Any) -> Self:
        return cls()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def execute(self, command: str, *_: Any) -> None:
        if not command.startswith(("CREATE ", "DROP ", "DELETE FROM ")):
            raise NotImplementedError(f"there is no SQL: {command}")


class NoAsyncConnection:
    """The async twin of `NoConnection`."""

    def __class_getitem__(cls, _: Any) -> type[Self]:
        return cls

    @classmethod
    async def connect(cls, *_: Any, **__: Any) -> Self:
        return cls()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def execute(self, command: str, *_: Any) -> None:
        NoConnection().execute(command)


OURS.update({Ours, AsyncOurs})
STORES: dict[str, dict[str, type]] = {
    "langgraph.store.memory": {"InMemoryStore": Ours},
    "langgraph.store.sqlite": {"SqliteStore": Ours},
    "langgraph.store.sqlite.aio": {"AsyncSqliteStore": AsyncOurs},
    "langgraph.store.postgres": {"PostgresStore": Ours, "AsyncPostgresStore": AsyncOurs},
    "psycopg": {"Connection": NoConnection, "AsyncConnection": NoAsyncConnection},
}


for place, replaced in STORES.items():  # before the conftest of the suite is imported, hence before pytest_configure
    with suppress(ImportError):
        for name, ours in replaced.items():
            setattr(import_module(place), name, ours)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    while made:
        asyncio.run(made.pop().aclose())
