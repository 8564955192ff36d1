"""Working memory on a server: what is read back, what a turn shows of it, and what a failure leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langchain_workingmem import Memory, OptionError, ReadOnlyError
from langchain_workingmem.errors import WorkingMemoryValidationError
from tests.helpers.trips import Trips
from tests.helpers.types import Make
from tests.working_memory.samples import Person, with_memory


def test_each_operation_costs_the_round_trips_that_are_promised(person: Memory, trips: Trips) -> None:
    part = person.working_memory
    ages = iter(range(100))
    assert trips.of(lambda: part.get(user_id="ann")) == 1
    assert trips.of(lambda: part.update({"age": next(ages)}, user_id="ann")) == 2
    assert trips.of(lambda: part.update({"age": next(ages)}, user_id="ann", mode="replace")) == 2
    assert trips.of(lambda: part.revisions(user_id="ann")) == 1
    numbers = iter([1, 2])
    assert trips.of(lambda: part.revert(next(numbers), user_id="ann")) == 3
    assert trips.of(lambda: part.clear(user_id="bob")) == 1  # which is empty


REFUSED: dict[str, Any] = {
    "age": {"age": -1},
    "home.city": {"home": {"city": 3}},
    "would have 3": {"name": "x" * 300},
    "everything that is known": {"name": None, "age": None},
    "not JSON": "nonsense",
    "surrogate|hex escape": {"name": "\ud800"},
    "surrogate|hex escape|facts": {"facts": {"\udfff": 1}},
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_refused_update_says_why_and_changes_nothing(make_memory: Make, words: str) -> None:
    memory = with_memory(make_memory, schema=Person, max_bytes=300)
    before = memory.working_memory.update({"name": "Ann"}, user_id="ann")
    with pytest.raises(WorkingMemoryValidationError, match=words):
        memory.working_memory.update(REFUSED[words], user_id="ann")
    with pytest.raises(OptionError, match="mode='patch': use one of 'replace', 'merge', 'append'"):
        memory.working_memory.update({"age": 4}, user_id="ann", mode="patch")  # type: ignore[arg-type]
    assert memory.working_memory.revisions(user_id="ann") == [before]


@pytest.mark.parametrize("scope", ["user", "thread"])
def test_read_only_memory_is_shown_and_not_written(make_memory: Make, scope: str) -> None:
    ids: dict[str, Any] = {"thread_id": "t", "user_id": "ann"}
    before = with_memory(make_memory, template="", scope=scope).working_memory.update("fact", **ids)
    part = with_memory(make_memory, template="", scope=scope, read_only=True).working_memory
    calls: list[Callable[[], object]] = [
        lambda: part.update("x", **ids),
        lambda: part.update("x", mode="replace", **ids),
        lambda: part.clear(**ids),
        lambda: part.revert(1, **ids),
    ]
    for call in calls:
        with pytest.raises(ReadOnlyError, match="read_only=True"):
            call()
    assert part.get(**ids) == before
    assert part.revisions(**ids) == [before]
