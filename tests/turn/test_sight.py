"""What models have been shown: bounded records, safe between threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from langchain_workingmem._redis.state import Recent


def test_only_the_entries_that_were_used_last_are_kept() -> None:
    recent: Recent[str, int] = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert [recent.get(key) for key in "abc"] == [1, None, 3]


def test_many_threads_lose_nothing() -> None:
    recent: Recent[str | int, int] = Recent(10)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: recent.change("a", lambda before: (before or 0) + 1), range(2000)))
        list(pool.map(lambda at: recent.change(at, lambda _: at), range(2000)))
    assert sum(recent.get(at) is not None for at in range(2000)) == 10
    recent.change("a", lambda before: before)
    assert recent.get("a") is None
