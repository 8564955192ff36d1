"""What models have been shown: bounded records, safe between threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from langchain_workingmem._redis.state import Recent, ShownDocuments


def test_the_newest_text_counts_for_each_thread_and_memory() -> None:
    documents = ShownDocuments()
    assert documents.text("t", "k") is None
    for thread, key, text in (("t", "k", "a"), ("u", "k", "b"), ("t", "l", "c"), (None, "k", ""), ("t", "k", "d")):
        documents.note(thread, key, text)
    assert [documents.text(*one) for one in (("t", "k"), ("u", "k"), ("t", "l"), (None, "k"))] == ["d", "b", "c", ""]


def test_what_a_tool_says_counts_behind_its_step() -> None:
    documents = ShownDocuments()
    documents.note("t", "k", "prompt")
    documents.note("t", "k", "first", 1)
    documents.note("t", "k", "second", 1)
    assert [documents.text("t", "k", step) for step in (1, 2, None)] == ["prompt", "second", "second"]
    documents.note("t", "k", "third", 2)
    assert [documents.text("t", "k", step) for step in (2, 3, None)] == ["second", "third", "third"]
    documents.note("t", "k", "new prompt")
    assert documents.text("t", "k", 3) == "new prompt"


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
