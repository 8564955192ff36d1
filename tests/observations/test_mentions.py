"""A condensed line that tells of several threads: what is deleted in one of them stays nowhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, ObservationOptions
from tests.helpers.observers import Echo
from tests.helpers.types import Make

IDS: Any = {"resource_id": "maya"}
THREADS = ("sea", "land")


@pytest.fixture
def condensed(make_memory: Make) -> Memory:
    """A log of the user with lines that tell of both threads."""
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
    lines = memory.observations.get(**IDS)
    assert {thread for one in lines if "secretsea" in one.text for thread, _ in one.sources} == {*THREADS}
    return memory


def stored(raw: redis.Redis, prefix: str) -> bytes:
    """Return all that hashes hold."""
    found: Any = raw
    hashes = (key for key in found.scan_iter(f"{prefix}:*") if found.type(key) == b"hash")
    return b"".join(b"".join(found.hgetall(key).values()) for key in hashes)


@pytest.mark.parametrize("deleted", THREADS)
@pytest.mark.parametrize("way", ["message", "clear", "thread", "transfer"])
def test_words_of_a_deleted_message_are_in_no_line(
    condensed: Memory, raw: redis.Redis, prefix: str, deleted: str, way: str
) -> None:
    match way:
        case "message":
            condensed.history.delete([f"q{deleted}"], thread_id=deleted, **IDS)
        case "clear":
            condensed.history.clear(deleted, **IDS)
        case "thread":
            condensed.threads.delete(deleted, **IDS)
        case _:
            condensed.threads.transfer(deleted, to="jonas", **IDS)
    assert not any(f"secret{deleted}" in one.text for one in condensed.observations.get(**IDS))
    (other,) = {*THREADS} - {deleted}
    shown = condensed.context("what?", thread_id=other, **IDS)
    assert f"secret{deleted}" not in str(shown.messages)
    assert f"secret{other}" in str(shown.messages), "what was said in the other thread is shown as it was"
    if way != "transfer":
        assert f"secret{deleted}".encode() not in stored(raw, prefix)


def test_an_edited_line_goes_as_well(condensed: Memory) -> None:
    for one in condensed.observations.get(**IDS):
        condensed.observations.update(one.id, f"{one.text} indeed", **IDS)
    condensed.history.delete(["qsea"], thread_id="sea", **IDS)
    assert not any("secretsea" in one.text for one in condensed.observations.get(**IDS))


def test_an_import_remembers_what_a_line_tells_of(condensed: Memory, make_memory: Make, prefix: str) -> None:
    records = [json.loads(json.dumps(one)) for one in condensed.export_resource("maya")]
    other = make_memory(key_prefix=f"{prefix}x", observations=ObservationOptions(model=Echo(), scope="resource"))
    other.import_resource(records)
    texts = [[one.text for one in memory.observations.get(**IDS)] for memory in (condensed, other)]
    assert texts[0] == texts[1]
    other.history.delete(["qland"], thread_id="land", **IDS)
    assert not any("secretland" in one.text for one in other.observations.get(**IDS))
    other.delete_resource("maya")


def test_a_line_that_tells_of_a_missing_message_is_not_imported(
    condensed: Memory, make_memory: Make, prefix: str
) -> None:
    def is_there(record: dict[str, Any]) -> bool:
        return not (record["kind"] == "message" and record["message"]["data"]["id"] == "qland")

    records = [one for one in condensed.export_resource("maya") if is_there(one)]
    other = make_memory(key_prefix=f"{prefix}x", observations=ObservationOptions(model=Echo(), scope="resource"))
    other.import_resource(records)
    assert not any("secretland" in one.text for one in other.observations.get(**IDS))
    other.delete_resource("maya")
