"""What scripts do to values is what their pure twins do; keys, expiry, a process without a keeper, and a cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, OptionError, WorkingMemoryConflictError, WorkingMemoryOptions
from tests.helpers.types import Make
from tests.keeping.world import ANY, SAID, keep, kept, talk

IDS: Any = {"thread_id": "t", "user_id": "u"}


@pytest.fixture
def memory(make_memory: Make) -> Memory:
    return make_memory(working_memory=WorkingMemoryOptions(schema=ANY))


# ---------------------------------------------------------------------- the twins


# ---------------------------------------------------------------------- who writes


def test_what_a_program_writes_into_a_kept_document_is_said_now(memory: Memory, make_memory: Make) -> None:
    talk(memory, "I live in Lisbon")
    memory.working_memory.update({"name": "Ann"}, **IDS)
    keep(memory, {"/city": "Lisbon"}, "q0")
    other = make_memory(working_memory=WorkingMemoryOptions(schema=ANY, mode="append"))
    other.working_memory.update({"city": "Oslo", "pets": ["Rex"]}, **IDS)
    found = kept(memory).values
    assert [(one.value, one.origin) for one in found.history("/city")] == [("Oslo", "program"), ("Lisbon", "keeper")]
    assert found.history("/name")[0].origin == "program"
    assert found.history("/name")[0].since < found.history("/city")[0].since
    keep(memory, {"/city": "Porto"}, "q0")  # which was said before
    assert memory.working_memory.get(**IDS).value == {"city": "Oslo", "name": "Ann", "pets": ["Rex"]}


def test_a_program_seeds_what_was_said_before(memory: Memory) -> None:
    talk(memory, "I live in Lisbon")
    keep(memory, {"/city": "Lisbon"}, "q0")
    early, late = (datetime.fromtimestamp(SAID / 1_000_000, UTC) + timedelta(days=days) for days in (-1, 1))
    assert memory.working_memory.update({"city": "Oslo"}, said_at=early, **IDS).value == {"city": "Lisbon"}
    assert memory.working_memory.update({"city": "Bern"}, said_at=late, **IDS).value == {"city": "Bern"}
    assert [one.value for one in kept(memory).values.history("/city")] == ["Bern", "Lisbon", "Oslo"]
    with pytest.raises(OptionError, match="said_at"):
        memory.working_memory.update({"city": "Bonn"}, said_at=datetime(2026, 1, 1), **IDS)
    with pytest.raises(OptionError, match="keeper="):
        memory.working_memory.update({"city": "Bonn"}, said_at=early, user_id="who never had a keeper")


def test_an_expected_revision_counts_in_a_kept_document(memory: Memory) -> None:
    talk(memory, "I live in Lisbon")
    keep(memory, {"/city": "Lisbon"}, "q0")
    with pytest.raises(WorkingMemoryConflictError):
        memory.working_memory.update({"city": "Oslo"}, expected_revision=0, **IDS)
    assert memory.working_memory.update({"city": "Oslo"}, expected_revision=1, **IDS).revision == 2
    assert memory.working_memory.update({"city": "Oslo"}, expected_revision=1, **IDS).revision == 2  # a lost reply
    memory.history.delete(["q0"], **IDS)  # of which nothing holds
    assert memory.working_memory.get(**IDS).value == {"city": "Oslo"}


def test_a_document_that_was_there_before_is_seeded(make_memory: Make) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions())
    text = "# User information\n- **First name**: Ann\n- **Location**:\n\nlikes tea"
    before = memory.working_memory.update(text, **IDS)
    talk(memory, "I live in Lisbon")
    keep(memory, {"/Location": "Lisbon"}, "q0", at=SAID * 2)
    state = kept(memory)
    assert state.state.text == text.replace("**Location**:", "**Location**: Lisbon")
    held = state.values.history("/First name")[0]
    assert before.updated_at is not None
    assert held.since == int(before.updated_at.timestamp() * 1_000_000)
    memory.history.delete(["q0"], **IDS)
    assert memory.working_memory.get(**IDS).text == text


# ---------------------------------------------------------------------- keys


@pytest.mark.parametrize("scope", ["user", "thread"])
def test_values_expire_with_their_thread(make_memory: Make, raw: redis.Redis, prefix: str, scope: Any) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(schema=ANY, scope=scope), ttl=timedelta(hours=1))
    talk(memory, "I live in Lisbon")
    keep(memory, {"/city": "Lisbon"}, "q0")
    client: Any = raw
    (key,) = client.scan_iter(f"{prefix}:values:*")
    thread = f"{prefix}:thread:{{t}}"
    assert client.pexpiretime(key) == (client.pexpiretime(thread) if scope == "thread" else -1)
    memory.threads.update("t", metadata={"x": 1})
    memory.history.append([HumanMessage("later")], **IDS)
    memory.history.delete(["q0"], **IDS)
    memory.working_memory.get(**IDS)
    memory.working_memory.update({"name": "Ann"}, **IDS)
    assert client.pexpiretime(key) == (client.pexpiretime(thread) if scope == "thread" else -1)


def test_a_value_of_a_user_outlives_a_thread_that_expires(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    talk(memory, "I live in Lisbon")
    keep(memory, {"/city": "Lisbon"}, "q0")
    raw.delete(*(key for key in raw.scan_iter(f"{prefix}:*") if b"{t}" in key))
    assert memory.working_memory.get(**IDS).value == {"city": "Lisbon"}
