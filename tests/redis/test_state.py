"""What a memory learns while it is used: the authors of a user, bounded and safe between threads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from langchain_workingmem.recall.question import Authors


@pytest.fixture
def busy() -> Iterator[None]:
    """Let threads interrupt each other as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("busy")
def test_no_author_is_lost_when_threads_learn_at_once() -> None:
    authors = Authors()
    names = [f"name{at}" for at in range(1_000)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: authors.note("u", {name}), names))
    assert authors.note("u", set()) == {*names}
