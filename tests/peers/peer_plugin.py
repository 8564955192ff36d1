"""A pytest plug-in for the suites of peers: it keeps the tests that use ours, and knows which are expected to fail.

It is loaded in an environment of its own, before any test is imported (`-p peer_plugin -p store_plugin`). The second
plug-in puts ours in place of theirs, and names it in `OURS`.
"""

from __future__ import annotations

import socket
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from langchain_workingmem.embedded import EmbeddedRedis

server = EmbeddedRedis()
OURS: set[Any] = set()


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
    """Whether a test, a fixture or a class of the tests names one of ours, itself or through what it names."""
    if isinstance(named, type) and named in OURS:
        return True
    named = getattr(named, "__wrapped__", getattr(named, "__func__", named))
    if not isinstance(named, FunctionType | type) or not named.__module__.startswith("test") or named in seen:
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
    """Keep the tests that make one of ours; those that are listed are expected to fail."""
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


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    counts = Counter({kind: len(reports) for kind, reports in terminalreporter.stats.items()})
    failed = counts["failed"] + counts["error"]
    terminalreporter.write_line(
        f"| {config.getoption('--peer')} | {counts['passed']} | {counts['xfailed']} | {failed} | {counts['skipped']} |"
    )
