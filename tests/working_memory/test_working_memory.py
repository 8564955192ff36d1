"""Working memory on a server: what is read back, what a turn shows of it, and what a failure leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import HumanMessage
from pydantic import BaseModel

from langchain_workingmem import (
    Memory,
    OptionError,
    ReadOnlyError,
    RecallOptions,
    WorkingMemoryOptions,
    WorkingMemoryValidationError,
)
from langchain_workingmem._engine.plan import Call, Plan
from langchain_workingmem.working_memory.store import WorkingMemory
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import remembered
from tests.helpers.plans import plan_of
from tests.helpers.types import Make
from tests.working_memory.samples import Home, Person, with_memory

if TYPE_CHECKING:
    from tests.helpers.trips import Trips

# ---------------------------------------------------------------------- reading and writing


def test_working_memory_that_was_never_written_is_empty(person: Memory) -> None:
    state = person.working_memory.get(user_id="ann")
    assert (state.value, state.text, state.revision, state.updated_at, state.is_empty) == (None, "", 0, None, True)


def test_an_update_is_read_back_as_the_users_type(person: Memory) -> None:
    person.working_memory.update({"name": "Ann", "home": {"city": "Ulm"}}, user_id="ann")
    state = person.working_memory.get(user_id="ann")
    assert state.value == Person(name="Ann", home=Home(city="Ulm"))
    assert json.loads(state.text) == {"name": "Ann", "home": {"city": "Ulm"}}
    assert not state.is_empty


def test_an_unknown_mode_is_refused_with_those_that_work(person: Memory) -> None:
    with pytest.raises(OptionError, match="mode='patch': use one of 'replace', 'merge', 'append'"):
        person.working_memory.update({"age": 4}, user_id="ann", mode="patch")  # type: ignore[arg-type]


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


# ---------------------------------------------------------------------- round trips


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
    before = memory.working_memory.update({"name": "Ann"}, user_id="ann")
    with pytest.raises(WorkingMemoryValidationError, match=words):
        memory.working_memory.update(content, user_id="ann")
    assert memory.working_memory.get(user_id="ann") == before
    assert len(memory.working_memory.revisions(user_id="ann")) == 1


def test_a_text_that_is_too_large_is_refused_with_its_size_and_the_limit(make_memory: Make) -> None:
    memory = with_memory(make_memory, template="", max_bytes=10)
    assert memory.working_memory.update("ä" * 5, user_id="ann").text == "ä" * 5
    with pytest.raises(WorkingMemoryValidationError, match=r"12 bytes.*limit is 10: keep only what matters"):
        memory.working_memory.update("ö" * 6, user_id="ann", mode="replace")
    assert memory.working_memory.get(user_id="ann").text == "ä" * 5


def nested(depth: int) -> dict[str, Any]:
    document: dict[str, Any] = {"end": 1}
    for _ in range(depth):
        document = {"a": document}
    return document


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_number_that_json_does_not_know_is_refused(make_memory: Make, number: str) -> None:
    memory = with_memory(make_memory, schema={"type": "object"})
    with pytest.raises(WorkingMemoryValidationError):
        memory.working_memory.update(f'{{"facts": {{"x": {number}}}}}', user_id="ann")
    assert memory.working_memory.get(user_id="ann").is_empty


# ---------------------------------------------------------------------- read only


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


# ---------------------------------------------------------------------- a schema that changed


@pytest.mark.parametrize("text", ["# not JSON", "[1]", "null"])
def test_a_schema_after_markdown_can_be_read_and_replaced(make_memory: Make, text: str) -> None:
    with_memory(make_memory, template="").working_memory.update(text, user_id="ann")
    part = with_memory(make_memory, schema=Person).working_memory
    assert part.get(user_id="ann").value == text
    assert part.update({"name": "Ann"}, user_id="ann", mode="replace").value == Person(name="Ann")


def test_a_document_that_does_not_fit_is_one_warning(make_memory: Make, caplog: pytest.LogCaptureFixture) -> None:
    with_memory(make_memory, template="").working_memory.update("likes tea", user_id="ann")
    part = with_memory(make_memory, schema=Person).working_memory
    for _ in range(3):
        part.get(user_id="ann")
    assert len([one for one in caplog.records if "another format" in one.message]) == 1


# ---------------------------------------------------------------------- large documents


def test_a_large_document_is_merged_and_validated_in_a_thread(make_memory: Make) -> None:
    memory, effects = with_memory(make_memory, schema={"type": "object"}), list[object]()

    def watched(plan: Plan[Any]) -> Plan[Any]:
        try:
            effect = next(plan)
            while True:
                effects.append(effect)
                effect = plan.send((yield effect))
        except StopIteration as done:
            return done.value

    memory.working_memory.update({"words": ["x"] * 10_000}, user_id="ann")
    update = plan_of(WorkingMemory.update, memory, {"name": "Ann"}, user_id="ann")
    assert memory._core.run(watched(update)).revision == 2
    assert any(isinstance(one, Call) for one in effects)


# ---------------------------------------------------------------------- in a turn


@pytest.mark.parametrize("placement", ["question", "system"])
def test_working_memory_is_the_last_block_of_a_turn(make_memory: Make, placement: Any) -> None:
    memory = make_memory(
        embeddings=WordEmbeddings(),
        recall=RecallOptions(placement=placement),
        working_memory=WorkingMemoryOptions(schema=Person, placement=placement),
    )
    memory.history.append([HumanMessage("my cat is Molly")], thread_id="other", user_id="ann")
    state = memory.working_memory.update({"name": "Ann"}, user_id="ann")
    context = memory.context("how is my cat", thread_id="t", user_id="ann")
    recalled, _, known = "\n\n".join([*context.system, remembered(context.messages)]).partition("<working_memory>")
    assert recalled.startswith("<recalled_messages>")
    assert '{"name": "Ann"}' in known
    assert bool(context.system) == (placement == "system")
    assert context.working_memory == state


@pytest.mark.parametrize("how", ["of the turn", "of the options"])
def test_a_read_only_turn_shows_it_without_rules_for_updates(make_memory: Make, how: str) -> None:
    with_memory(make_memory, schema=Person).working_memory.update({"name": "Ann"}, user_id="ann")
    memory = with_memory(make_memory, schema=Person, read_only=how == "of the options")
    context = memory.context("hi", thread_id="t", user_id="ann", read_only=how == "of the turn")
    block = remembered(context.messages)
    assert "Ann" in block
    assert "update_working_memory" not in block


def test_a_tool_replaces_what_was_written_in_another_format(make_memory: Callable[..., Memory]) -> None:
    class Person(BaseModel):
        name: str | None = None

    before = make_memory(working_memory=WorkingMemoryOptions(template=""))
    before.working_memory.update("The name is Maya", user_id="u")
    after = make_memory(working_memory=WorkingMemoryOptions(schema=Person, mode="replace"))
    (tool,) = after.tools(user_id="u")
    assert "another format" in tool.invoke({"clear": ["name"]})
    assert 'name: "Maya"' in tool.invoke({"memory": {"name": "Maya"}})
    assert after.working_memory.revisions(user_id="u")[1].text == "The name is Maya"
