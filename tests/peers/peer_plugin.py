"""A pytest plug-in for the suites of peers: the stores that their tests make are ours, on an embedded Redis.

It is loaded in an environment of its own (`-p peer_plugin`, by `python -m tests.peers`), before any test is imported.
"""

from __future__ import annotations

import asyncio
import socket
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Self
from uuid import uuid4

import pytest

from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.store import RedisMemoryStore

server = EmbeddedRedis()
made: list[RedisMemoryStore] = []
FRESH = {":memory:"}  # each such database is a new one


class Ours(RedisMemoryStore):
    """Our store, made as LangGraph's stores are made; the same connection string is the same database."""

    MIGRATIONS: tuple[str, ...] = ()

    def __init__(self, conn_string: str = ":memory:", *, index: Any = None, ttl: Any = None, **_: Any) -> None:
        name = uuid4().hex if conn_string in FRESH else sha256(conn_string.encode()).hexdigest()
        super().__init__(server.url, index=index, ttl=ttl, key_prefix=f"peers:{name}")
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


def here_only(host: Any, *rest: Any, resolve: Any = socket.getaddrinfo, **more: Any) -> Any:
    """Find no address but this machine's: some tests would call a model."""
    if host not in (None, "localhost", "127.0.0.1", "::1"):
        raise socket.gaierror(socket.EAI_NONAME, f"{host}: the suites of peers run without a network")
    return resolve(host, *rest, **more)


socket.getaddrinfo = here_only


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--peer", help="the suite, as expected.toml names it")


def pytest_configure(config: pytest.Config) -> None:
    server.start()
    config.add_cleanup(server.close)


def reaches(named: Any, seen: set[Any]) -> bool:
    """Whether a test, a fixture or a class of the tests names one of our stores, itself or through what it names."""
    if named in (Ours, AsyncOurs):
        return True
    named = getattr(named, "__wrapped__", getattr(named, "__func__", named))
    if not isinstance(named, FunctionType | type) or not named.__module__.startswith("tests") or named in seen:
        return False
    seen.add(named)
    if isinstance(named, type):
        return any(reaches(each, seen) for each in vars(named).values() if isinstance(each, FunctionType))
    return any(reaches(named.__globals__.get(name), seen) for name in names_in(named.__code__))


def names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Keep the tests that make a store; those that are listed are expected to fail."""
    expected = tomllib.loads(Path(__file__).with_name("expected.toml").read_text())[config.getoption("--peer")]
    kept: list[Any] = []
    left: list[Any] = []
    for item in items:
        fixtures = [each[-1].func for each in item._fixtureinfo.name2fixturedefs.values()]
        (kept if any(reaches(each, set()) for each in [item.function, *fixtures]) else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept
    unseen = set(expected)
    for item in items:
        place = item.nodeid.removeprefix("tests/")
        for name in {place, place.split("[")[0]} & set(expected):
            unseen.discard(name)
            item.add_marker(pytest.mark.xfail(reason=expected[name], strict=True))
    if unseen:
        raise pytest.UsageError(
            f"expected.toml names what is no test of {config.getoption('--peer')}: {sorted(unseen)}"
        )


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    while made:
        asyncio.run(made.pop().aclose())


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    counts = Counter({kind: len(reports) for kind, reports in terminalreporter.stats.items()})
    failed = counts["failed"] + counts["error"]
    terminalreporter.write_line(
        f"| {config.getoption('--peer')} | {counts['passed']} | {counts['xfailed']} | {failed} | {counts['skipped']} |"
    )
