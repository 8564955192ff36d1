"""Working memory on a server: what is read back, whose it is, its revisions, and what a failure leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from pydantic import BaseModel, Field

from langchain_workingmem import (
    IdError,
    Memory,
    OptionError,
    ReadOnlyError,
    RecallOptions,
    RevisionNotFoundError,
    ThreadExistsError,
    ThreadOwnershipError,
    WorkingMemoryConflictError,
    WorkingMemoryOptions,
    WorkingMemoryValidationError,
)
from tests.conftest import WordEmbeddings
from tests.unit.test_keys import NASTY_IDS

if TYPE_CHECKING:
    import redis

    from langchain_workingmem import WorkingMemoryState
    from tests.conftest import Trips

Make = Callable[..., Memory]


class Home(BaseModel):
    city: str | None = None
    street: str | None = None


class Person(BaseModel):
    name: str | None = None
    age: int | None = Field(default=None, ge=0)
    home: Home | None = None
    facts: dict[str, Any] = {}


def with_memory(make: Make, **options: Any) -> Memory:
    return make(working_memory=WorkingMemoryOptions(**options))


@pytest.fixture
def person(make_memory: Make) -> Memory:
    return with_memory(make_memory, schema=Person)


@pytest.fixture
def notes(make_memory: Make) -> Memory:
    """Free text, one for each thread."""
    return with_memory(make_memory, template="", scope="thread")


@pytest.fixture
def shared(make_memory: Make) -> Memory:
    """Free text, one for each resource."""
    return with_memory(make_memory, template="")


# ---------------------------------------------------------------------- reading and writing


def test_working_memory_that_was_never_written_is_empty(person: Memory) -> None:
    state = person.working_memory.get(resource_id="ann")
    assert (state.value, state.text, state.revision, state.updated_at, state.is_empty) == (None, "", 0, None, True)


def test_an_update_is_read_back_as_the_users_type(person: Memory) -> None:
    person.working_memory.update({"name": "Ann", "home": {"city": "Ulm"}}, resource_id="ann")
    state = person.working_memory.get(resource_id="ann")
    assert state.value == Person(name="Ann", home=Home(city="Ulm"))
    assert json.loads(state.text) == {"name": "Ann", "home": {"city": "Ulm"}}
    assert not state.is_empty


def test_an_update_returns_what_get_returns(person: Memory) -> None:
    updated = person.working_memory.update({"name": "Ann"}, resource_id="ann")
    assert updated == person.working_memory.get(resource_id="ann")
    assert updated.revision == 1
    assert updated.updated_at is not None
    assert abs(datetime.now(UTC) - updated.updated_at) < timedelta(minutes=1)


def test_the_default_mode_is_that_of_the_options(make_memory: Make) -> None:
    memory = with_memory(make_memory, schema={"type": "object"}, mode="append")
    memory.working_memory.update({"tags": ["a"]}, resource_id="ann")
    assert memory.working_memory.update({"tags": ["b"]}, resource_id="ann").value == {"tags": ["a", "b"]}


def test_the_mode_of_one_update_wins(person: Memory) -> None:
    person.working_memory.update({"name": "Ann", "age": 3}, resource_id="ann")
    state = person.working_memory.update({"age": 4}, resource_id="ann", mode="replace")
    assert state.value == Person(age=4)


def test_an_unknown_mode_is_refused_with_those_that_work(person: Memory) -> None:
    with pytest.raises(OptionError, match="mode='patch': use one of 'replace', 'merge', 'append'"):
        person.working_memory.update({"age": 4}, resource_id="ann", mode="patch")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "name"), [({}, "markdown"), ({"template": ""}, "text"), ({"schema": Person}, "json")]
)
def test_the_format_the_template_and_the_schema_can_be_asked_for(
    make_memory: Make, options: dict[str, Any], name: str
) -> None:
    part = with_memory(make_memory, **options).working_memory
    assert part.format == name
    assert part.schema is options.get("schema")
    assert (part.template is not None) == (name == "markdown")


def test_a_part_that_is_off_says_how_to_turn_it_on(plain: Memory) -> None:
    with pytest.raises(OptionError, match=r"working_memory=WorkingMemoryOptions"):
        plain.working_memory.get(resource_id="ann")


def test_clearing_empties_it(person: Memory) -> None:
    person.working_memory.update({"name": "Ann"}, resource_id="ann")
    cleared = person.working_memory.clear(resource_id="ann")
    assert (cleared.value, cleared.text, cleared.revision, cleared.is_empty) == (None, "", 2, True)
    assert cleared == person.working_memory.get(resource_id="ann")


def test_clearing_what_is_empty_makes_no_revision(person: Memory) -> None:
    assert person.working_memory.clear(resource_id="ann").revision == 0
    assert person.working_memory.revisions(resource_id="ann") == []


def test_an_update_after_a_clear_starts_anew(person: Memory) -> None:
    person.working_memory.update({"name": "Ann"}, resource_id="ann")
    person.working_memory.clear(resource_id="ann")
    state = person.working_memory.update({"age": 3}, resource_id="ann")
    assert (state.value, state.revision) == (Person(age=3), 3)


# ---------------------------------------------------------------------- round trips


def test_each_operation_costs_the_round_trips_that_are_promised(person: Memory, trips: Trips) -> None:
    part = person.working_memory
    ages = iter(range(100))
    assert trips.of(lambda: part.get(resource_id="ann")) == 1
    assert trips.of(lambda: part.update({"age": next(ages)}, resource_id="ann")) == 2
    assert trips.of(lambda: part.update({"age": next(ages)}, resource_id="ann", mode="replace")) == 2
    assert trips.of(lambda: part.revisions(resource_id="ann")) == 1
    numbers = iter([1, 2])
    assert trips.of(lambda: part.revert(next(numbers), resource_id="ann")) == 1
    assert trips.of(lambda: part.clear(resource_id="ann")) == 1


def test_the_memory_of_a_thread_costs_the_same(notes: Memory, trips: Trips) -> None:
    part = notes.working_memory
    facts = iter(map(str, range(100)))
    ids: dict[str, Any] = {"thread_id": "t", "resource_id": "ann"}
    part.update("first", **ids)
    assert trips.of(lambda: part.get(**ids)) == 1
    assert trips.of(lambda: part.update(next(facts), **ids)) == 2
    assert trips.of(lambda: part.revisions(**ids)) == 1
    assert trips.of(lambda: part.clear(**ids)) == 1


# ---------------------------------------------------------------------- failures leave it as it was


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"age": -1}, "age"),
        ({"home": {"city": 3}}, "home.city"),
        ({"name": "x" * 300}, "would have 3"),
        ({"name": None, "age": None}, "everything that is known"),
        ("nonsense", "not JSON"),
        ({"name": "\ud800"}, "surrogate|hex escape"),
        ({"facts": {"\udfff": 1}}, "surrogate|hex escape"),
    ],
    ids=["validation", "nested validation", "size", "nulls", "no JSON", "surrogate", "surrogate in a key"],
)
def test_a_refused_update_says_why_and_changes_nothing(make_memory: Make, content: Any, words: str) -> None:
    memory = with_memory(make_memory, schema=Person, max_bytes=300)
    before = memory.working_memory.update({"name": "Ann"}, resource_id="ann")
    with pytest.raises(WorkingMemoryValidationError, match=words):
        memory.working_memory.update(content, resource_id="ann")
    assert memory.working_memory.get(resource_id="ann") == before
    assert len(memory.working_memory.revisions(resource_id="ann")) == 1


def test_a_text_that_is_too_large_is_refused_with_its_size_and_the_limit(make_memory: Make) -> None:
    memory = with_memory(make_memory, template="", max_bytes=10)
    assert memory.working_memory.update("ä" * 5, resource_id="ann").text == "ä" * 5
    with pytest.raises(WorkingMemoryValidationError, match=r"12 bytes.*limit is 10.*max_bytes"):
        memory.working_memory.update("ö" * 6, resource_id="ann", mode="replace")
    assert memory.working_memory.get(resource_id="ann").text == "ä" * 5


def test_a_lone_surrogate_in_text_is_refused(shared: Memory) -> None:
    with pytest.raises(WorkingMemoryValidationError, match="lone surrogate"):
        shared.working_memory.update("a\ud800b", resource_id="ann")
    assert shared.working_memory.get(resource_id="ann").revision == 0


def nested(depth: int) -> dict[str, Any]:
    document: dict[str, Any] = {"end": 1}
    for _ in range(depth):
        document = {"a": document}
    return document


TOO_DEEP = '{"facts": ' + '{"a":' * 100_000 + "1" + "}" * 100_001


@pytest.mark.parametrize("content", [{"facts": nested(100_000)}, TOO_DEEP], ids=["dict", "text"])
@pytest.mark.parametrize("schema", [Person, {"type": "object"}], ids=["pydantic", "json schema"])
def test_huge_nesting_is_refused_and_changes_nothing(make_memory: Make, schema: Any, content: Any) -> None:
    memory = with_memory(make_memory, schema=schema, max_bytes=10_000_000)
    before = memory.working_memory.update({"name": "Ann"}, resource_id="ann")
    with pytest.raises(WorkingMemoryValidationError):
        memory.working_memory.update(content, resource_id="ann")
    assert memory.working_memory.get(resource_id="ann") == before


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_number_that_json_does_not_know_is_refused(make_memory: Make, number: str) -> None:
    memory = with_memory(make_memory, schema={"type": "object"})
    with pytest.raises(WorkingMemoryValidationError):
        memory.working_memory.update(f'{{"facts": {{"x": {number}}}}}', resource_id="ann")
    assert memory.working_memory.get(resource_id="ann").is_empty


def test_a_nul_character_survives(shared: Memory) -> None:
    assert shared.working_memory.update("a\0b", resource_id="ann").text == "a\0b"


# ---------------------------------------------------------------------- read only


@pytest.mark.parametrize("scope", ["resource", "thread"])
def test_read_only_memory_is_shown_and_not_written(make_memory: Make, scope: str) -> None:
    ids: dict[str, Any] = {"thread_id": "t", "resource_id": "ann"}
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


# ---------------------------------------------------------------------- expected_revision


def test_an_update_for_the_present_revision_is_written(person: Memory) -> None:
    assert person.working_memory.update({"age": 1}, resource_id="ann", expected_revision=0).revision == 1
    assert person.working_memory.update({"age": 2}, resource_id="ann", expected_revision=1).revision == 2


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_an_update_for_another_revision_is_refused_with_both(person: Memory, expected: int) -> None:
    person.working_memory.update({"age": 1}, resource_id="ann")
    before = person.working_memory.update({"age": 2}, resource_id="ann")
    with pytest.raises(WorkingMemoryConflictError) as caught:
        person.working_memory.update({"age": 3}, resource_id="ann", expected_revision=expected)
    assert (caught.value.expected, caught.value.actual) == (expected, 2)
    assert f"revision {expected}" in str(caught.value)
    assert "revision 2" in str(caught.value)
    assert person.working_memory.get(resource_id="ann") == before


@pytest.mark.parametrize("expected", [-1, True, "1"])
def test_an_expected_revision_that_is_no_number_is_refused(person: Memory, expected: Any) -> None:
    with pytest.raises(OptionError, match="expected_revision"):
        person.working_memory.update({"age": 3}, resource_id="ann", expected_revision=expected)


# ---------------------------------------------------------------------- revisions


def texts(states: list[WorkingMemoryState]) -> list[str]:
    return [state.text for state in states]


def test_revisions_come_newest_first_with_time_and_origin(shared: Memory) -> None:
    part = shared.working_memory
    shared.threads.create(thread_id="t", resource_id="ann", working_memory="one")
    part.update("two", resource_id="ann", mode="replace")
    part.clear(resource_id="ann")
    part.revert(1, resource_id="ann")
    found = part.revisions(resource_id="ann")
    assert texts(found) == ["one", "", "two", "one"]
    assert [state.revision for state in found] == [4, 3, 2, 1]
    assert [state.origin for state in found] == ["revert", "clear", "update", "seed"]
    times = [state.updated_at for state in found]
    assert all(times)
    assert times == sorted(times, key=str, reverse=True)
    assert found[0] == part.get(resource_id="ann")


def test_revisions_can_be_limited(shared: Memory) -> None:
    for number in range(5):
        shared.working_memory.update(str(number), resource_id="ann", mode="replace")
    assert texts(shared.working_memory.revisions(resource_id="ann", limit=2)) == ["4", "3"]


def test_twenty_revisions_are_kept(shared: Memory) -> None:
    for number in range(25):
        shared.working_memory.update(str(number), resource_id="ann", mode="replace")
    found = shared.working_memory.revisions(resource_id="ann", limit=100)
    assert [state.revision for state in found] == list(range(25, 5, -1))


@pytest.mark.parametrize("keep", [1, 3, 150])
def test_as_many_revisions_are_kept_as_the_options_say(make_memory: Make, keep: int) -> None:
    memory = with_memory(make_memory, template="", revisions=keep)
    for number in range(keep + 5):
        memory.working_memory.update(str(number), resource_id="ann", mode="replace")
    found = memory.working_memory.revisions(resource_id="ann", limit=1000)
    assert [state.revision for state in found] == list(range(keep + 5, 5, -1))


def test_an_update_that_changes_nothing_makes_no_revision(person: Memory) -> None:
    first = person.working_memory.update({"name": "Ann", "home": {"city": "Ulm"}}, resource_id="ann")
    for content in ({"name": "Ann"}, {"home": {"city": "Ulm"}}, {}):
        assert person.working_memory.update(content, resource_id="ann") == first
    assert len(person.working_memory.revisions(resource_id="ann")) == 1


def test_an_update_with_other_order_of_keys_changes_nothing(person: Memory) -> None:
    first = person.working_memory.update({"name": "Ann", "age": 3}, resource_id="ann")
    assert person.working_memory.update({"age": 3, "name": "Ann"}, resource_id="ann", mode="replace") == first


def test_a_revert_makes_a_new_revision(shared: Memory) -> None:
    shared.working_memory.update("one", resource_id="ann", mode="replace")
    shared.working_memory.update("two", resource_id="ann", mode="replace")
    state = shared.working_memory.revert(1, resource_id="ann")
    assert (state.text, state.revision, state.origin) == ("one", 3, "revert")
    assert shared.working_memory.get(resource_id="ann") == state


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=["Cs"])), other=st.text(st.characters(exclude_categories=["Cs"])))
def test_a_revert_restores_byte_for_byte(shared: Memory, raw: redis.Redis, prefix: str, text: str, other: str) -> None:
    first = shared.working_memory.update(text, resource_id="ann", mode="replace")
    shared.working_memory.update(f"{other}!", resource_id="ann", mode="replace")
    if first.revision == 0:  # an empty text where there was nothing
        return
    assert shared.working_memory.revert(first.revision, resource_id="ann").text == text
    assert raw.hget(f"{prefix}:memory:r:{{ann}}", "document") == text.encode()


def test_what_was_cleared_can_be_brought_back(person: Memory) -> None:
    before = person.working_memory.update({"name": "Ann"}, resource_id="ann")
    person.working_memory.clear(resource_id="ann")
    after = person.working_memory.revert(1, resource_id="ann")
    assert (after.text, after.value) == (before.text, before.value)


@pytest.mark.parametrize("revision", [1, 7])
def test_a_revision_that_is_not_kept_cannot_be_brought_back(make_memory: Make, revision: int) -> None:
    memory = with_memory(make_memory, template="", revisions=2)
    for text in ("one", "two", "three"):
        before = memory.working_memory.update(text, resource_id="ann")
    with pytest.raises(RevisionNotFoundError, match=f"revision {revision} is not kept"):
        memory.working_memory.revert(revision, resource_id="ann")
    assert memory.working_memory.get(resource_id="ann") == before


@pytest.mark.parametrize("revision", [0, -1, True, "1"])
def test_a_revision_that_is_no_number_is_refused(shared: Memory, revision: Any) -> None:
    with pytest.raises(OptionError, match="revision="):
        shared.working_memory.revert(revision, resource_id="ann")


# ---------------------------------------------------------------------- a schema that changed


class Changed(BaseModel):
    name: int
    more: str


def test_what_an_old_schema_allowed_can_still_be_read(make_memory: Make) -> None:
    with_memory(make_memory, schema=Person).working_memory.update({"name": "Ann"}, resource_id="ann")
    memory = with_memory(make_memory, schema=Changed)
    state = memory.working_memory.get(resource_id="ann")
    assert state.value == state.text == '{"name": "Ann"}'
    assert memory.working_memory.revisions(resource_id="ann") == [state]
    assert "Ann" in memory.context("hi", thread_id="t", resource_id="ann").system[-1]


def test_what_an_old_schema_allowed_can_be_repaired(make_memory: Make) -> None:
    with_memory(make_memory, schema=Person).working_memory.update({"name": "Ann"}, resource_id="ann")
    part = with_memory(make_memory, schema=Changed).working_memory
    with pytest.raises(WorkingMemoryValidationError, match="name"):
        part.update({"more": "x"}, resource_id="ann")
    assert part.update({"name": 3, "more": "x"}, resource_id="ann").value == Changed(name=3, more="x")


@pytest.mark.parametrize("text", ["# not JSON", "[1]", "null"])
def test_a_schema_after_markdown_can_be_read_and_replaced(make_memory: Make, text: str) -> None:
    with_memory(make_memory, template="").working_memory.update(text, resource_id="ann")
    part = with_memory(make_memory, schema=Person).working_memory
    assert part.get(resource_id="ann").value == text
    assert part.update({"name": "Ann"}, resource_id="ann", mode="replace").value == Person(name="Ann")


# ---------------------------------------------------------------------- who owns it


def test_a_missing_id_says_how_to_pass_it(shared: Memory, notes: Memory) -> None:
    for part, name in ((shared.working_memory, "resource_id"), (notes.working_memory, "thread_id")):
        calls: list[Callable[[], object]] = [part.get, part.clear, part.revisions]
        calls += [lambda part=part: part.update("x"), lambda part=part: part.revert(1)]  # type: ignore[misc]
        for call in calls:
            with pytest.raises(IdError, match=rf"pass {name}=\.\.\..*context.*configurable"):
                call()


@pytest.mark.parametrize("id", ["", "a\0b", "x" * 513, 3])
def test_an_id_that_cannot_work_is_refused(shared: Memory, notes: Memory, id: Any) -> None:
    for memory in (shared, notes):
        with pytest.raises(IdError, match="resource_id"):
            memory.working_memory.get(thread_id="t", resource_id=id)
        with pytest.raises(IdError, match="thread_id"):
            memory.working_memory.update("x", thread_id=id, resource_id="ann")


def test_ids_that_look_like_patterns_do_not_meet(shared: Memory, notes: Memory) -> None:
    ids = [*NASTY_IDS, "a|b", "{a}", "a*", "a", "b"]
    for id in ids:
        shared.working_memory.update(f"of {id!r}", resource_id=id, mode="replace")
        notes.working_memory.update(f"in {id!r}", thread_id=id, mode="replace")
    for id in ids:
        assert shared.working_memory.get(resource_id=id).text == f"of {id!r}"
        assert notes.working_memory.get(thread_id=id).text == f"in {id!r}"


def test_scopes_never_see_each_other(shared: Memory, notes: Memory) -> None:
    shared.working_memory.update("of the user", resource_id="same")
    notes.working_memory.update("of the thread", thread_id="same", resource_id="same")
    assert shared.working_memory.get(thread_id="same", resource_id="same").text == "of the user"
    assert notes.working_memory.get(thread_id="same", resource_id="same").text == "of the thread"
    notes.working_memory.clear(thread_id="same")
    assert texts(shared.working_memory.revisions(resource_id="same")) == ["of the user"]
    assert "of the thread" not in str(shared.context("hi", thread_id="same", resource_id="same").system)


def test_all_threads_of_a_resource_share_its_memory(shared: Memory) -> None:
    shared.working_memory.update("fact", thread_id="one", resource_id="ann")
    assert shared.working_memory.get(thread_id="other", resource_id="ann").text == "fact"
    assert shared.working_memory.get(thread_id="one", resource_id="bob").is_empty


def test_each_thread_of_a_resource_has_a_memory_of_its_own(notes: Memory) -> None:
    notes.working_memory.update("fact", thread_id="one", resource_id="ann")
    assert notes.working_memory.get(thread_id="other", resource_id="ann").is_empty


def test_only_a_thread_given_means_its_owner(shared: Memory) -> None:
    shared.threads.create(thread_id="t", resource_id="ann")
    shared.working_memory.update("fact", thread_id="t")
    assert shared.working_memory.get(resource_id="ann").text == "fact"
    assert shared.working_memory.get(thread_id="t").text == "fact"


def test_only_a_new_thread_given_means_the_resource_of_that_name(shared: Memory) -> None:
    shared.working_memory.update("fact", thread_id="t")
    assert shared.working_memory.get(resource_id="t").text == "fact"


def test_the_first_write_to_a_new_thread_makes_it_with_its_owner(notes: Memory) -> None:
    notes.working_memory.update("fact", thread_id="t", resource_id="ann")
    notes.working_memory.update("fact", thread_id="own")
    assert notes.threads.get("t").resource_id == "ann"  # type: ignore[union-attr]
    assert notes.threads.get("own").resource_id == "own"  # type: ignore[union-attr]


def test_reading_a_new_thread_does_not_make_it(notes: Memory) -> None:
    assert notes.working_memory.get(thread_id="t", resource_id="ann").is_empty
    assert notes.working_memory.revisions(thread_id="t", resource_id="ann") == []
    assert notes.threads.get("t") is None


def test_clearing_a_new_thread_does_not_make_it(notes: Memory) -> None:
    notes.working_memory.clear(thread_id="t", resource_id="ann")
    assert notes.threads.get("t") is None


def test_a_revision_of_a_thread_that_is_not_there_cannot_be_brought_back(notes: Memory) -> None:
    with pytest.raises(RevisionNotFoundError):
        notes.working_memory.revert(1, thread_id="t", resource_id="ann")
    assert notes.threads.get("t") is None


def test_the_memory_of_somebody_elses_thread_is_refused(notes: Memory) -> None:
    part = notes.working_memory
    before = part.update("fact", thread_id="t", resource_id="ann")
    ids: dict[str, Any] = {"thread_id": "t", "resource_id": "bob"}
    calls: list[Callable[[], object]] = [
        lambda: part.get(**ids),
        lambda: part.update("mine", **ids),
        lambda: part.update("mine", mode="replace", expected_revision=1, **ids),
        lambda: part.clear(**ids),
        lambda: part.revisions(**ids),
        lambda: part.revert(1, **ids),
        lambda: notes.context("hi", **ids),
    ]
    for call in calls:
        with pytest.raises(ThreadOwnershipError) as caught:
            call()
        assert "fact" not in str(caught.value)
    assert part.get(thread_id="t", resource_id="ann") == before
    assert part.get(thread_id="t") == before


def test_somebody_elses_thread_opens_no_memory_of_its_owner(shared: Memory) -> None:
    shared.threads.create(thread_id="t", resource_id="ann", working_memory="of ann")
    shared.working_memory.update("of bob", thread_id="t", resource_id="bob")
    assert shared.working_memory.get(thread_id="t", resource_id="bob").text == "of bob"
    assert shared.working_memory.get(resource_id="ann").text == "of ann"


# ---------------------------------------------------------------------- in a turn


def test_working_memory_is_the_last_block_of_a_turn(make_memory: Make) -> None:
    memory = make_memory(
        embeddings=WordEmbeddings(), recall=RecallOptions(), working_memory=WorkingMemoryOptions(schema=Person)
    )
    memory.history.append([HumanMessage("my cat is Molly")], thread_id="other", resource_id="ann")
    state = memory.working_memory.update({"name": "Ann"}, resource_id="ann")
    context = memory.context("how is my cat", thread_id="t", resource_id="ann")
    assert [block.partition("\n")[0] for block in context.system] == ["<recalled_messages>", "<working_memory>"]
    assert '{"name": "Ann"}' in context.system[-1]
    assert context.working_memory == state


@pytest.mark.parametrize("how", ["of the turn", "of the options"])
def test_a_read_only_turn_shows_it_without_rules_for_updates(make_memory: Make, how: str) -> None:
    with_memory(make_memory, schema=Person).working_memory.update({"name": "Ann"}, resource_id="ann")
    memory = with_memory(make_memory, schema=Person, read_only=how == "of the options")
    (block,) = memory.context("hi", thread_id="t", resource_id="ann", read_only=how == "of the turn").system
    assert "Ann" in block
    assert "update_working_memory" not in block


def test_a_turn_without_working_memory_has_no_block(plain: Memory) -> None:
    context = plain.context("hi", thread_id="t", resource_id="ann")
    assert (context.system, context.working_memory) == ([], None)


def test_working_memory_costs_a_turn_no_round_trip(make_memory: Make, trips: Trips) -> None:
    for scope in ("resource", "thread"):
        memory = with_memory(make_memory, template="", scope=scope)
        memory.working_memory.update("fact", thread_id="t", resource_id="ann")
        assert trips.of(lambda memory=memory: memory.context("hi", thread_id="t", resource_id="ann")) == 1  # type: ignore[misc]


# ---------------------------------------------------------------------- threads that go, are copied or handed over


def kept(raw: redis.Redis, prefix: str, *kinds: str) -> list[bytes]:
    return sorted(key for kind in kinds for key in raw.scan_iter(f"{prefix}:{kind}:*"))


def test_deleting_a_thread_deletes_its_memory_and_revisions(notes: Memory, raw: redis.Redis, prefix: str) -> None:
    for thread in ("t", "other"):
        notes.working_memory.update("fact", thread_id=thread, resource_id="ann")
    assert len(kept(raw, prefix, "memory", "revisions")) == 4
    assert notes.threads.delete("t")
    assert kept(raw, prefix, "memory", "revisions") == [
        f"{prefix}:memory:t:{{other}}".encode(),
        f"{prefix}:revisions:t:{{other}}".encode(),
    ]
    assert notes.working_memory.get(thread_id="t", resource_id="ann").revision == 0
    assert notes.working_memory.get(thread_id="other").text == "fact"


def test_deleting_a_thread_keeps_the_memory_of_its_resource(shared: Memory) -> None:
    shared.threads.create(thread_id="t", resource_id="ann", working_memory="fact")
    shared.threads.delete("t")
    assert shared.working_memory.get(resource_id="ann").text == "fact"


def test_a_thread_handed_over_takes_its_memory_along(notes: Memory) -> None:
    before = notes.working_memory.update("fact", thread_id="t", resource_id="ann")
    notes.threads.transfer("t", resource_id="ann", to="bob")
    assert notes.working_memory.get(thread_id="t", resource_id="bob") == before
    with pytest.raises(ThreadOwnershipError):
        notes.working_memory.get(thread_id="t", resource_id="ann")


def test_changing_a_thread_leaves_working_memory_alone(notes: Memory) -> None:
    notes.threads.create(thread_id="t", resource_id="ann", working_memory="old")
    before = notes.working_memory.update("new", thread_id="t", mode="replace")
    notes.threads.update("t", title="a title", metadata={"a": 1})
    notes.history.clear("t")
    assert notes.working_memory.get(thread_id="t") == before


# ---------------------------------------------------------------------- seeding


@pytest.mark.parametrize("scope", ["resource", "thread"])
def test_a_thread_can_be_created_with_working_memory(make_memory: Make, scope: str) -> None:
    memory = with_memory(make_memory, schema=Person, scope=scope)
    seed = {"name": "Ann"}
    thread = memory.threads.create(thread_id="t", resource_id="ann", title="hello", working_memory=seed)
    assert (thread.id, thread.title) == ("t", "hello")
    state = memory.working_memory.get(thread_id="t", resource_id="ann")
    assert (state.value, state.revision, state.origin) == (Person(name="Ann"), 1, "seed")


def test_a_seed_never_overwrites(shared: Memory) -> None:
    before = shared.working_memory.update("fact", resource_id="ann")
    shared.threads.create(thread_id="t", resource_id="ann", working_memory="seed")
    assert shared.working_memory.get(resource_id="ann") == before


def test_a_seed_does_not_bring_back_what_was_cleared(shared: Memory) -> None:
    shared.working_memory.update("fact", resource_id="ann")
    shared.working_memory.clear(resource_id="ann")
    shared.threads.create(thread_id="t", resource_id="ann", working_memory="seed")
    assert shared.working_memory.get(resource_id="ann").is_empty


def test_a_seed_for_a_thread_that_exists_changes_nothing(notes: Memory) -> None:
    before = notes.working_memory.update("fact", thread_id="t", resource_id="ann")
    with pytest.raises(ThreadExistsError):
        notes.threads.create(thread_id="t", resource_id="ann", working_memory="seed")
    assert notes.working_memory.get(thread_id="t") == before


@pytest.mark.parametrize("scope", ["resource", "thread"])
def test_a_seed_that_does_not_fit_makes_no_thread(make_memory: Make, scope: str) -> None:
    memory = with_memory(make_memory, schema=Person, scope=scope)
    with pytest.raises(WorkingMemoryValidationError, match="age"):
        memory.threads.create(thread_id="t", resource_id="ann", working_memory={"age": -1})
    assert memory.threads.get("t") is None


def test_a_seed_without_working_memory_says_what_to_turn_on(plain: Memory) -> None:
    with pytest.raises(OptionError, match="WorkingMemoryOptions"):
        plain.threads.create(thread_id="t", resource_id="ann", working_memory="fact")
    assert plain.threads.get("t") is None


@pytest.mark.parametrize("seed", [{}, ""])
def test_an_empty_seed_leaves_it_empty(make_memory: Make, seed: Any) -> None:
    memory = with_memory(make_memory, **({"schema": Person} if seed == {} else {"template": ""}))
    memory.threads.create(thread_id="t", resource_id="ann", working_memory=seed)
    assert memory.working_memory.get(resource_id="ann").revision == 0


def test_a_clone_begins_with_the_memory_of_its_source(make_memory: Callable[..., Memory]) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(scope="thread", template=""))
    memory.threads.create(resource_id="u", thread_id="t", working_memory="Plays the cello.")
    copy = memory.threads.clone("t").thread
    state = memory.working_memory.get(thread_id=copy.id)
    assert (state.text, state.origin, state.revision) == ("Plays the cello.", "clone", 1)
    memory.working_memory.update("Moved to Lisbon.", thread_id=copy.id)
    assert memory.working_memory.get(thread_id="t").text == "Plays the cello."
