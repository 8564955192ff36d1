"""What scripts do to values is what their pure twins do; keys, expiry, a process without a keeper, and a cluster."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, OptionError, WorkingMemoryConflictError, WorkingMemoryOptions
from langchain_workingmem._engine.effects import send
from langchain_workingmem._text.ranges import parse_ranges
from langchain_workingmem.keeping.claims import Claim, Source
from langchain_workingmem.keeping.store import Kept, change_kept
from langchain_workingmem.keeping.store.forgetting import FORGET
from langchain_workingmem.working_memory import ScopeKey, find_scope_key
from tests.helpers.examples import sample
from tests.helpers.trips import Trips
from tests.helpers.types import Make
from tests.keeping.world import ANY, SAID, keep, kept, talk

IDS: Any = {"thread_id": "t", "resource_id": "u"}
PATHS = ["/a", "/a/b", "/a/b/c", "/d", "/d/e~1f", "/g"]
THREADS = ["t", "other", 'with "quotes" {and} /:|,;\u00fc']


@pytest.fixture
def memory(make_memory: Make) -> Memory:
    return make_memory(working_memory=WorkingMemoryOptions(schema=ANY))


def written(memory: Memory, claims: list[Claim]) -> ScopeKey:
    """Write claims, and return where."""
    state = memory._core.state
    scope_key = memory._core.run(find_scope_key(state, None, "u"))
    memory._core.run(change_kept(state, scope_key, lambda _: (claims, None), "keeper"))
    return scope_key


# ---------------------------------------------------------------------- the twins


def some_claims(draw: random.Random) -> list[Claim]:
    found = []
    for number in range(draw.randint(3, 12)):
        is_timed = draw.random() < 0.5
        sources = tuple(
            Source(draw.choice(THREADS), f"m/{seq}", seq if draw.random() < 0.9 else -1, is_timed * (SAID + seq))
            for seq in draw.sample(range(9), draw.choice([0, 1, 1, 2]))
        )
        said = max((one.said_at for one in sources), default=0)  # as a keeper's claims are said
        found.append(
            Claim(
                path=draw.choice(PATHS),
                value=draw.choice(["x", 1, 2**60, [], {}, [{"y": []}], None, "\u2028"]),
                is_set=draw.random() < 0.7,
                said_at=said or SAID + draw.randint(0, 5),
                recorded_at=SAID + number,
                origin="keeper",
                sources=sources,
                order=number,
            )
        )
    return found


@pytest.mark.parametrize("seed", sample(range(400), 12))
def test_the_script_forgets_what_its_twin_forgets(memory: Memory, seed: int) -> None:
    draw = random.Random(seed)
    scope_key = written(memory, some_claims(draw))
    before = kept(memory, "t").values
    thread, ranges = draw.choice(THREADS), draw.choice(["0-8", "1", "3-5", "0,7-8", "all"])
    memory._core.run(send(FORGET.call(scope_key.keys, thread, "tag", "begin", "", ranges, 0, 0)))
    after = kept(memory, "t").values
    wanted = before.without(thread, None if ranges == "all" else parse_ranges(ranges))
    assert {one.id: one for one in after.claims.values()} == {one.id: one for one in wanted.claims.values()}


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
        memory.working_memory.update({"city": "Bonn"}, said_at=early, resource_id="who never had a keeper")


def test_an_expected_revision_counts_in_a_kept_document(memory: Memory) -> None:
    talk(memory, "I live in Lisbon")
    keep(memory, {"/city": "Lisbon"}, "q0")
    with pytest.raises(WorkingMemoryConflictError):
        memory.working_memory.update({"city": "Oslo"}, expected_revision=0, **IDS)
    assert memory.working_memory.update({"city": "Oslo"}, expected_revision=1, **IDS).revision == 2
    assert memory.working_memory.update({"city": "Oslo"}, expected_revision=1, **IDS).revision == 2  # a lost reply
    memory.history.delete(["q0"], **IDS)  # of which nothing holds
    assert memory.working_memory.get(**IDS).value == {"city": "Oslo"}


def test_writes_without_a_change_of_the_options_go_the_same_way(memory: Memory) -> None:
    """All that writes a document: threads.create and update, clear, revert, restore of an archive."""
    talk(memory, "I live in Lisbon")
    keep(memory, {"/city": "Lisbon"}, "q0")
    memory.threads.create(thread_id="new", resource_id="u", working_memory={"city": "Oslo"})  # existing content stays
    assert memory.working_memory.get(**IDS).value == {"city": "Lisbon"}
    memory.working_memory.update({"city": "Bern"}, mode="replace", **IDS)
    assert memory.working_memory.clear(**IDS).is_empty
    assert memory.working_memory.revert(1, **IDS).value == {"city": "Lisbon"}
    history = kept(memory).values.history("/city")
    assert [one.value for one in history] == ["Lisbon", None, "Bern", "Lisbon"]
    assert [source.message_id for source in history[0].sources] == ["q0"]


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


@pytest.mark.parametrize("scope", ["resource", "thread"])
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


def test_round_trips_of_kept_documents(memory: Memory, trips: Trips) -> None:
    talk(memory, "I live in Lisbon", "I moved to Oslo")
    keep(memory, {"/city": "Lisbon"}, "q0")
    keep(memory, {"/city": "Oslo"}, "q1")
    memory.settled()
    memory.history.delete(["unknown"], **IDS)  # the process knows the thread from here on
    memory.context("hello", **IDS)  # the server knows the scripts from here on
    counts = []
    for call in (
        lambda: memory.working_memory.get(**IDS),
        lambda: memory.working_memory.update({"name": "Ann"}, **IDS),
        lambda: memory.history.delete(["q1"], **IDS),  # refused, forgotten, deleted, forgotten again
        lambda: memory.context("hello", **IDS),  # with the document, which is made again: read, write
        lambda: memory.context("hello", **IDS),
        lambda: memory.history.delete(["q1"], **IDS),
    ):
        before = trips.count
        call()
        counts.append(trips.count - before)
    assert counts == [2, 3, 4, 3, 1, 1]
    assert memory.working_memory.get(**IDS).value == {"name": "Ann", "city": "Lisbon"}


def test_make_is_called_again_when_another_writer_was_faster(memory: Memory) -> None:
    talk(memory, "I live in Lisbon")
    keep(memory, {"/city": "Lisbon"}, "q0")
    state, seen = memory._core.state, list[str]()
    scope_key = memory._core.run(find_scope_key(state, "t", "u"))

    def make(found: Kept) -> tuple[list[Claim], None]:
        seen.append(found.state.text)
        if len(seen) == 1:
            memory.working_memory.update({"name": "Ann"}, **IDS)
        claim = Claim(path="/age", value=3, said_at=SAID, recorded_at=found.now, origin="program")
        return [claim], None

    memory._core.run(change_kept(state, scope_key, make, "keeper"))
    assert [*map(len, seen)] == [18, 33]
    assert memory.working_memory.get(**IDS).value == {"city": "Lisbon", "name": "Ann", "age": 3}
