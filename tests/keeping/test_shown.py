"""What a state tells of its values: sources, time, history; the document at a time; and the way back of one value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from langchain_workingmem import Memory, OptionError, WorkingMemoryOptions, WorkingMemoryValue
from tests.helpers.trips import Trips
from tests.helpers.types import Make
from tests.keeping.shown_samples import ANN, day, keep, options, say

pytestmark = pytest.mark.in_turn("face")


@pytest.fixture
def ann(make_memory: Make) -> Memory:
    """A memory in which Ann has moved, and withdrawn an allergy."""
    memory = make_memory(working_memory=options())
    moves = [(1, "I live in Bern"), (2, "I am allergic to nuts"), (3, "I moved to Lisbon"), (4, "no allergy after all")]
    say(memory, *moves)
    keep(memory, "/city", "Bern", 1)
    keep(memory, "/allergies/nuts", "nuts", 2)
    keep(memory, "/city", "Lisbon", 3)
    keep(memory, "/allergies/nuts", None, 4)
    return memory


def test_a_value_has_its_sources_and_its_day(ann: Memory) -> None:
    state = ann.working_memory.get(**ANN)
    assert state.value.city == "Lisbon"
    assert state.sources("/city") == [("t", "m3")]
    assert state.since("/city") == day(3)
    assert state.history("/city") == [
        WorkingMemoryValue(
            path="/city",
            value="Lisbon",
            since=day(3),
            until=None,
            sources=[("t", "m3")],
            origin="keeper",
            recorded_at=day(3) + timedelta(microseconds=1),
        ),
        WorkingMemoryValue(
            path="/city",
            value="Bern",
            since=day(1),
            until=day(3),
            sources=[("t", "m1")],
            origin="keeper",
            recorded_at=day(1) + timedelta(microseconds=1),
        ),
    ]


def test_a_value_that_no_longer_holds_tells_what_ended_it(ann: Memory) -> None:
    state = ann.working_memory.get(**ANN)
    assert state.value.allergies == []
    gone, nuts = state.history("/allergies/nuts")
    assert (gone.is_set, gone.value, gone.text, gone.until) == (False, None, "", None)
    assert (nuts.value, nuts.since, nuts.until) == ("nuts", day(2), day(4))
    assert state.sources("/allergies/nuts") == [("t", "m4")]
    assert state.since("/allergies/nuts") == day(4)


@pytest.mark.parametrize("path", ["/town", "city", "", "/home", None])
def test_an_unknown_path_names_those_that_exist(ann: Memory, path: Any) -> None:
    state = ann.working_memory.get(**ANN)
    with pytest.raises(OptionError, match=r"use one of '/city', '/allergies/nuts'"):
        state.sources(path)


def test_without_a_keeper_nothing_is_recorded_and_the_error_says_what_to_pass(make_memory: Make) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(template=""))
    memory.working_memory.update("city: Bern", **ANN)
    state = memory.working_memory.get(**ANN)
    calls: list[Any] = [
        lambda: state.sources("/city"),
        lambda: state.since("/city"),
        lambda: state.history("/city"),
        lambda: memory.working_memory.undo("/city", **ANN),
        lambda: memory.working_memory.update("job: nurse", said_at=day(3), **ANN),
    ]
    for call in calls:
        with pytest.raises(OptionError, match="keeper="):
            call()
    assert memory.working_memory.get(**ANN).text == "city: Bern"


def test_a_document_that_was_kept_tells_it_to_a_process_without_a_keeper(
    ann: Memory, make_memory: Make, trips: Trips
) -> None:
    other = make_memory(working_memory=options(keeper=None))
    assert other.working_memory.get(**ANN).sources("/city") == [("t", "m3")]
    assert trips.of(lambda: other.working_memory.get(**ANN)) == 2
    assert trips.of(lambda: ann.working_memory.get(**ANN)) == 1
    assert other.working_memory.undo("/city", **ANN).value.city == "Bern"
    assert other.working_memory.get(**ANN).history("/city")[0].origin == "person"


def test_since_is_about_what_was_said_not_about_when_it_was_recorded(ann: Memory) -> None:
    ann.working_memory.update({"job": "nurse"}, said_at=day(2), **ANN)
    assert ann.working_memory.get(**ANN).since("/job") == day(2)
    recorded = ann.working_memory.get(**ANN).history("/job")[0].recorded_at
    assert datetime.now(UTC) - recorded < timedelta(minutes=5)


def test_what_a_program_seeds_from_older_data_changes_nothing_that_was_said_later(ann: Memory) -> None:
    ann.working_memory.update({"city": "Oslo", "job": "cook"}, said_at=day(2), **ANN)
    state = ann.working_memory.get(**ANN)
    assert (state.value.city, state.value.job) == ("Lisbon", "cook")
    assert [one.value for one in state.history("/city")] == ["Lisbon", "Oslo", "Bern"]
    ann.working_memory.update({"city": "Rome"}, **ANN)
    assert ann.working_memory.get(**ANN).value.city == "Rome"


# ---------------------------------------------------------------------- undo


def test_undo_brings_back_what_held_before_as_a_persons_word(ann: Memory, trips: Trips) -> None:
    state = ann.working_memory.undo("/city", **ANN)
    assert (state.value.city, state.value.allergies) == ("Bern", [])
    assert state.origin == "undo"
    now, lisbon, bern = ann.working_memory.get(**ANN).history("/city")
    assert (now.value, now.origin, lisbon.value, bern.value) == ("Bern", "person", "Lisbon", "Bern")
    assert datetime.now(UTC) - now.since < timedelta(minutes=5)
    assert ann.working_memory.undo("/city", **ANN).value.city == "Lisbon"  # the undo itself is undone
    assert trips.of(lambda: ann.working_memory.undo("/city", **ANN)) == 2


def test_undo_of_the_first_value_removes_it_and_of_a_removal_brings_it_back(ann: Memory) -> None:
    assert ann.working_memory.undo("/allergies/nuts", **ANN).value.allergies == ["nuts"]
    assert ann.working_memory.undo("/allergies/nuts", **ANN).value.allergies == []
    ann.working_memory.update({"job": "nurse"}, **ANN)
    assert ann.working_memory.undo("/job", **ANN).value.job is None
    assert ann.working_memory.undo("/job", **ANN).value.job == "nurse"


def test_what_a_keeper_reads_later_does_not_win_over_an_undo(ann: Memory) -> None:
    ann.working_memory.undo("/city", **ANN)
    keep(ann, "/city", "Porto", 4)
    assert ann.working_memory.get(**ANN).value.city == "Bern"


def test_a_value_that_was_brought_back_stands_on_its_message(ann: Memory) -> None:
    ann.working_memory.undo("/city", **ANN)
    assert ann.working_memory.get(**ANN).sources("/city") == [("t", "m1")]
    ann.history.delete(["m1"], thread_id="t", user_id="ann")
    state = ann.working_memory.get(**ANN)
    assert [one.value for one in state.history("/city")] == ["Lisbon"]


def test_scope_thread_has_its_own(make_memory: Make) -> None:
    memory = make_memory(working_memory=options(scope="thread"))
    say(memory, (1, "I live in Bern"))
    ids: Any = {**ANN, "thread_id": "t"}
    keep(memory, "/city", "Bern", 1, ids=ids)
    assert memory.working_memory.get(**ids).sources("/city") == [("t", "m1")]
    assert memory.working_memory.undo("/city", **ids).value is None
    assert memory.working_memory.get(thread_id="u", **ANN).timeline == {}


# ---------------------------------------------------------------------- the days in a prompt


def test_a_turn_shows_since_which_day_each_value_holds(make_memory: Make) -> None:
    memory = make_memory(working_memory=options(show_since=True), timezone="Pacific/Auckland")
    say(memory, (1, "I live in Bern"), (2, "as a nurse"))
    keep(memory, "/city", "Bern", 1)
    keep(memory, "/home/street", "Hill", 1)
    keep(memory, "/job", "nurse", 2)
    keep(memory, "/pets/Rex/age", 4, 2)
    keep(memory, "/allergies/nuts", "nuts", 1)
    (block,) = [part for part in _blocks(memory) if "<data>" in part]
    data = block.partition("<data>\n")[2].partition("\n</data>")[0]
    assert data == (
        '{<2026-03-02>"city": "Bern", <2026-03-03>"job": "nurse", "home": {<2026-03-02>"street": "Hill"}, "allergies": ["nuts"], '
        '"pets": [{"name": "Rex", <2026-03-03>"age": 4}]}'
    )


def _blocks(memory: Memory) -> list[str]:
    context = memory.context("hello", thread_id="t", **ANN)
    return [*context.system, str(context.messages[-1].text)]
