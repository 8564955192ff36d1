"""What a memory learns while it is used: the authors of a resource, bounded and safe between threads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from langchain_workingmem._redis import state as module
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem._redis.state import MemoryState


@pytest.fixture
def busy() -> Iterator[None]:
    """Let threads interrupt each other as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("busy")
def test_no_author_is_lost_when_threads_learn_at_once() -> None:
    state = MemoryState(keys=Keys())
    names = [f"name{at}" for at in range(4_000)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: state.note_authors("u", {name}), names))
    assert state.note_authors("u", set()) == {*names}


def test_the_authors_of_the_resource_that_was_searched_longest_ago_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_RESOURCES", 3)
    state = MemoryState(keys=Keys())
    for resource in ("a", "b", "c", "a", "d"):
        state.note_authors(resource, {f"author of {resource}"})
    assert [state.note_authors(resource, set()) for resource in ("a", "c", "d")] == [
        {"author of a"},
        {"author of c"},
        {"author of d"},
    ]
    assert state.note_authors("b", set()) == set()
