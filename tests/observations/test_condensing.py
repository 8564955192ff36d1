"""A long log of a user is condensed thread by thread, so that no line tells of two: what is deleted in one stays nowhere."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import ObservationOptions
from tests.helpers.observers import Echo
from tests.helpers.types import Make

IDS: Any = {"resource_id": "maya"}
THREADS = ("sea", "land")


def stored(raw: redis.Redis, prefix: str) -> bytes:
    """Return all that hashes hold."""
    found: Any = raw
    hashes = (key for key in found.scan_iter(f"{prefix}:*") if found.type(key) == b"hash")
    return b"".join(b"".join(found.hgetall(key).values()) for key in hashes)


@pytest.mark.parametrize("deleted", THREADS)
def test_words_of_a_deleted_message_are_in_no_condensed_line(
    make_memory: Make, raw: redis.Redis, prefix: str, deleted: str
) -> None:
    options = ObservationOptions(
        model=Echo(), scope="resource", message_tokens=10_000, keep_tokens=0, observation_tokens=8, background=False
    )
    memory = make_memory(observations=options)
    for thread in THREADS:
        first = [HumanMessage(f"secret{thread} is what I say", id=f"q{thread}"), AIMessage("noted", id=f"a{thread}")]
        memory.history.append(first, thread_id=thread, **IDS)
        memory.history.append([HumanMessage("is that all?"), AIMessage("it is")], thread_id=thread, **IDS)
    for thread in THREADS:
        memory.observations.observe(thread, **IDS)
    lines = memory.observations.get(**IDS).observations
    assert all(len({thread for thread, _ in one.sources}) == 1 for one in lines)
    assert {one.sources[0][0] for one in lines if one.level} == {*THREADS}
    memory.history.delete([f"q{deleted}"], thread_id=deleted, **IDS)
    assert f"secret{deleted}".encode() not in stored(raw, prefix)
    (other,) = {*THREADS} - {deleted}
    assert any(f"secret{other}" in one.text for one in memory.observations.get(**IDS))
