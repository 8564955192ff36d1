"""What each operation of `memory.observations` costs in round trips, as its docstring says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import LocalEmbeddings, Memory, ObservationOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.trips import Trips
    from tests.helpers.types import Make


def costs(memory: Memory, trips: Trips, scope: str, thread_id: str, resource_id: str) -> dict[str, int]:
    """Return the round trips of each operation, for a user with one thread."""
    ids: dict[str, Any] = {"thread_id": thread_id, "resource_id": resource_id}
    log_ids = ids if scope == "thread" else {"resource_id": resource_id}
    for at in range(4):
        memory.history.append([HumanMessage(f"{thread_id} hut {at}"), AIMessage(f"{thread_id} bed {at}")], **ids)
    found: dict[str, int] = {}

    def count(name: str, call: Callable[[], Any]) -> Any:
        before = trips.count
        result = call()
        found[name] = trips.count - before
        return result

    part = memory.observations
    log = count("observe", lambda: part.observe(**ids))
    count("observe nothing", lambda: part.observe(**ids))
    first, second = (one.id for one in log.observations)
    count("get", lambda: part.get(**log_ids))
    count("sources", lambda: part.sources(first, **log_ids))
    count("delete", lambda: part.delete(second, **log_ids))
    count("clear", lambda: part.clear(**log_ids))
    return found


THREAD = {"get": 1, "sources": 2, "delete": 3, "clear": 3}
THREAD |= {"observe nothing": 6, "observe": 10}
RESOURCE = {"get": 1, "sources": 2, "delete": 4, "clear": 7}
RESOURCE |= {"observe nothing": 9, "observe": 15}
RECALL: dict[str, int] = {}  # more


@pytest.mark.parametrize("recall", [False, True])
@pytest.mark.parametrize("scope", ["thread", "resource"])
def test_each_operation_costs_the_round_trips_that_are_promised(
    make_memory: Make, trips: Trips, scope: Any, recall: bool
) -> None:
    notes = AIMessage("- [1,2] A hut.\n- [3] A bed.")
    options = ObservationOptions(
        model=FakeMessagesListChatModel(responses=[notes]),
        scope=scope,
        message_tokens=20,
        keep_tokens=0,
        background=False,
    )
    memory = make_memory(embeddings=LocalEmbeddings() if recall else None, observations=options)
    costs(memory, trips, scope, "first", "warms up")
    found = costs(memory, trips, scope, "t", "ann")
    promised = THREAD if scope == "thread" else RESOURCE
    more = RECALL if recall else {}
    assert found == {name: count + more.get(name, 0) for name, count in promised.items()}
