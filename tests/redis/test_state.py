"""What a memory learns while it is used, authors and what was shown: bounded, and safe between threads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from langchain_workingmem._redis.state import Recent


@pytest.fixture
def busy() -> Iterator[None]:
    """Let threads interrupt each other as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("busy")
def test_no_author_is_lost_when_threads_learn_at_once() -> None:
    authors: Recent[str, frozenset[str]] = Recent()
    names = [f"name{at}" for at in range(1_000)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: authors.change("u", lambda before: frozenset((name, *(before or ())))), names))
    assert authors.get("u") == frozenset(names)


def test_many_threads_lose_nothing_and_only_what_was_used_last_is_kept() -> None:
    recent: Recent[str | int, int] = Recent(10)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: recent.change("a", lambda before: (before or 0) + 1), range(2000)))
        assert recent.get("a") == 2000
        list(pool.map(lambda at: recent.change(at, lambda _: at), range(2000)))
    assert sum(recent.get(at) is not None for at in range(2000)) == 10
    assert recent.get("a") is None
    for at in range(10):
        recent.put(at, at)
    recent.get(0)
    recent.put("new", 1)
    assert (recent.get(0), recent.get(1)) == (0, None)
