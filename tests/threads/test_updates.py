"""`threads.update(working_memory=...)`: title, metadata and working memory in one call."""

from __future__ import annotations

from typing import Any

import pytest

from langchain_workingmem import (
    Memory,
    OptionError,
    ReadOnlyError,
    RedisConnectionError,
    ThreadNotFoundError,
    ThreadOwnershipError,
    WorkingMemoryValidationError,
)
from langchain_workingmem.threads import api as plans
from tests.helpers.trips import Trips
from tests.helpers.types import Make
from tests.working_memory.samples import Person, with_memory


@pytest.fixture(params=["resource", "thread"])
def memory(make_memory: Make, request: pytest.FixtureRequest) -> Memory:
    memory = with_memory(make_memory, schema=Person, scope=request.param)
    memory.threads.create(thread_id="t", resource_id="ann", title="old", working_memory={"name": "Ann", "age": 3})
    return memory


OWNER: dict[str, Any] = {"resource_id": "ann"}
ANN: dict[str, Any] = {"thread_id": "t", **OWNER}


def test_everything_changes_in_two_round_trips(memory: Memory, trips: Trips) -> None:
    thread = memory.threads.update("t", title="new", metadata={"a": 1}, working_memory={"name": "Anna"})
    assert (thread.title, thread.metadata, thread.resource_id) == ("new", {"a": 1}, "ann")
    state = memory.working_memory.get(**ANN)
    assert (state.value, state.revision, state.origin) == (Person(name="Anna"), 2, "update")
    assert trips.of(lambda: memory.threads.update("t", title="c", working_memory={"name": "Bo"}, **OWNER)) == 2
    assert trips.of(lambda: memory.threads.update("t", title="d", **OWNER)) == 1


def test_working_memory_that_is_left_out_stays(memory: Memory) -> None:
    memory.threads.update("t", title="new")
    assert memory.working_memory.get(**ANN).value == Person(name="Ann", age=3)


def test_none_empties_it(memory: Memory) -> None:
    memory.threads.update("t", working_memory=None)
    assert memory.threads.get("t").title == "old"  # type: ignore[union-attr]
    assert memory.working_memory.get(**ANN).is_empty


def test_what_does_not_fit_changes_nothing_at_all(memory: Memory) -> None:
    with pytest.raises(WorkingMemoryValidationError, match="age"):
        memory.threads.update("t", title="new", working_memory={"age": "old"})
    assert memory.threads.get("t").title == "old"  # type: ignore[union-attr]
    assert memory.working_memory.get(**ANN).revision == 1


def test_a_thread_that_is_not_there_or_is_not_theirs_changes_nothing(memory: Memory) -> None:
    with pytest.raises(ThreadNotFoundError):
        memory.threads.update("nowhere", resource_id="ann", working_memory={"name": "Eve"})
    with pytest.raises(ThreadOwnershipError):
        memory.threads.update("t", resource_id="eve", working_memory={"name": "Eve"})
    assert memory.working_memory.get(**ANN).revision == 1


def test_it_is_refused_where_it_is_off_or_only_shown(make_memory: Make, plain: Memory) -> None:
    plain.threads.create(thread_id="t", resource_id="ann", title="old")
    with pytest.raises(OptionError, match="working_memory=WorkingMemoryOptions"):
        plain.threads.update("t", title="new", working_memory="x")
    with pytest.raises(ReadOnlyError):
        with_memory(make_memory, read_only=True).threads.update("t", title="new", working_memory="x")
    assert plain.threads.get("t").title == "old"  # type: ignore[union-attr]


def test_when_the_second_half_fails_the_error_says_so(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise RedisConnectionError("gone")
        yield

    monkeypatch.setattr(plans, "write_revision", failing)
    with pytest.raises(RedisConnectionError) as caught:
        memory.threads.update("t", title="new", working_memory={"name": "Anna"})
    assert "title and metadata are changed, working memory is not" in str(caught.value.__notes__)
    monkeypatch.undo()
    assert memory.threads.get("t").title == "new"  # type: ignore[union-attr]
    memory.threads.update("t", title="new", working_memory={"name": "Anna"})
    assert memory.working_memory.get(**ANN).value == Person(name="Anna")
