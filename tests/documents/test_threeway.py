"""Three-way merges: both sides' changes survive, and what both changed differently is a conflict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.working_memory.document import merge_text

lines = st.sampled_from(["a", "b", "a: 1", "a: 2", "b: 1", "", " ", "  a", "# c"])
texts = st.lists(lines, max_size=8).map("\n".join) | st.text("ab:\n ", max_size=20)


@given(texts, texts)
def test_what_was_seen_is_replaced_by_what_is_sent(seen: str, sent: str) -> None:
    assert merge_text(seen, seen, sent) == sent


@given(texts, texts)
def test_what_sends_nothing_new_changes_nothing(seen: str, current: str) -> None:
    assert merge_text(seen, current, seen) == current


@given(texts, texts)
def test_the_same_change_twice_is_one(seen: str, sent: str) -> None:
    assert merge_text(seen, sent, sent) == sent


@given(st.lists(st.booleans(), min_size=6, max_size=6), st.data())
def test_changes_of_different_lines_survive_both_in_any_order(mine: list[bool], data: st.DataObject) -> None:
    seen = [f"- fact {at}: old" for at in range(6)]
    new = [data.draw(st.sampled_from([[], ["{}: new"], ["{}: new", "  and more"]])) for _ in range(6)]

    def changed(whose: bool) -> list[str]:
        return [
            line
            for at, old in enumerate(seen)
            for line in ([one.format(f"- fact {at}") for one in new[at]] if mine[at] is whose else [old])
        ]

    both = [line.format(f"- fact {at}") for at in range(6) for line in new[at]]
    before = "\n".join(seen)
    for one, other in ((True, False), (False, True)):
        merged = merge_text(before, "\n".join(changed(one)), "\n".join(changed(other)))
        assert merged.splitlines() == both


@given(texts, texts, texts)
def test_a_merge_makes_nothing_up_and_never_breaks(seen: str, current: str, sent: str) -> None:
    try:
        merged = merge_text(seen, current, sent)
    except WorkingMemoryValidationError:
        return
    assert {*merged.split("\n")} <= {*seen.split("\n"), *current.split("\n"), *sent.split("\n"), ""}


def test_lines_that_are_added_at_the_same_place_are_all_kept() -> None:
    seen = "# Facts\n- has a dog"
    current = seen
    for fact in ("plays the cello", "likes tea", "plays the cello"):
        current = merge_text(seen, current, f"{seen}\n- {fact}\n")
    assert current.splitlines() == ["# Facts", "- has a dog", "- plays the cello", "- likes tea"]


def test_a_line_that_both_changed_differently_is_a_conflict_that_shows_it_as_it_is_now() -> None:
    seen = "- City: Ulm\n- Name: Ann"
    with pytest.raises(WorkingMemoryValidationError) as caught:
        merge_text(seen, "- City: Rome\n- Name: Ann", "- City: Bonn\n- Name: Anna")
    assert "now: - City: Rome" in str(caught.value)
    assert "you: - City: Bonn" in str(caught.value)
    assert "`edits`" in str(caught.value)
    assert "Anna" not in str(caught.value)
    assert caught.value.remedy
