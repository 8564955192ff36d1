"""Three-way merges of texts of which every character counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem.files.diff3 import merge_lines
from tests.helpers.examples import examples

BASE = "a\nb\nc\nd\ne\n"


@pytest.mark.parametrize(
    ("theirs", "ours", "merged"),
    [
        ("A\nb\nc\nd\ne\n", "a\nb\nc\nd\nE\n", "A\nb\nc\nd\nE\n"),
        ("a\nb\nc\nd\ne\nf\n", "0\na\nb\nc\nd\ne\n", "0\na\nb\nc\nd\ne\nf\n"),
        ("b\nc\nd\ne\n", "a\nb\nc\nd\n", "b\nc\nd\n"),  # both delete
        ("a\nB\nc\nd\ne\n", "a\nB\nc\nD\ne\n", "a\nB\nc\nD\ne\n"),  # one change is the same
        ("", BASE, ""),
        (BASE, "new", "new"),
        ("a\r\nb\nc\nd\ne\n", "a\nb\nc\nd\ne", "a\r\nb\nc\nd\ne"),  # only ends of lines
    ],
)
def test_changes_that_do_not_touch_are_both_applied(theirs: str, ours: str, merged: str) -> None:
    assert merge_lines(BASE, theirs, ours) == (merged, [])
    assert merge_lines(BASE, ours, theirs) == (merged, [])


@pytest.mark.parametrize(
    ("base", "theirs", "ours", "clash"),
    [
        (BASE, "a\nB\nc\nd\ne\n", "a\nb\nC\nd\ne\n", ("b\nc\n", "B\nc\n", "b\nC\n")),  # neighbours
        (BASE, f"{BASE}f\n", f"{BASE}g\n", ("", "f\n", "g\n")),  # both at one place
        (BASE, "a\nb\nd\ne\n", "a\nb\nC\nd\ne\n", ("c\n", "", "C\n")),  # one deletes what the other changes
        ("a", "a\nb", "a\nc", ("a", "a\nb", "a\nc")),
        ("", "x", "y", ("", "x", "y")),
        ("a\n", "a\r\n", "a", ("a\n", "a\r\n", "a")),
    ],
)
def test_changes_that_touch_are_a_clash_with_both_sides(
    base: str, theirs: str, ours: str, clash: tuple[str, str, str]
) -> None:
    text, clashes = merge_lines(base, theirs, ours)
    assert clashes == [clash]
    assert text == theirs


lines = st.lists(st.sampled_from(["a\n", "b\n", "c\r\n", "\n", "d\n", "e\n"]), max_size=12)
texts = st.builds(lambda parts, tail: "".join(parts) + tail, lines, st.sampled_from(["", "a", "end"]))


@examples(150)
@given(texts, texts, texts)
def test_swapped_sides_give_the_same_and_a_side_that_changed_nothing_gives_the_other(
    base: str, theirs: str, ours: str
) -> None:
    text, clashes = merge_lines(base, theirs, ours)
    swapped, others = merge_lines(base, ours, theirs)
    assert [(one.base, one.ours, one.theirs) for one in others] == clashes
    assert clashes or text == swapped
    assert merge_lines(base, base, ours) == (ours, [])
    assert merge_lines(base, theirs, base) == (theirs, [])
    assert merge_lines(base, ours, ours) == (ours, [])


@examples(150)
@given(st.data(), st.integers(6, 40))
def test_edits_of_places_apart_are_all_in_the_result_and_no_line_is_lost(data: st.DataObject, count: int) -> None:
    """Each edit is of a line of its own, with a line that nobody changes between two of them."""
    base = [f"line {number}\n" for number in range(count)]
    sides, both = [list(base), list(base)], list(base)
    for at in range(0, count, 2):
        if (side := data.draw(st.sampled_from([0, 1, None]))) is None:
            continue
        new = data.draw(st.sampled_from(["", "changed\n", f"line {at}\nadded {at}\n", f"in front\nline {at}\n"]))
        sides[side][at] = both[at] = new
    text, clashes = merge_lines("".join(base), "".join(sides[0]), "".join(sides[1]))
    assert not clashes
    assert text == "".join(both)


@examples(100)
@given(texts, texts, texts)
def test_every_line_of_the_result_is_of_a_side_and_every_line_that_both_keep_is_in_it(
    base: str, theirs: str, ours: str
) -> None:
    text, clashes = merge_lines(base, theirs, ours)
    if not clashes:
        sides = {*base.splitlines(keepends=True), *theirs.splitlines(keepends=True), *ours.splitlines(keepends=True)}
        assert set(text.splitlines(keepends=True)) <= sides
    kept, _ = merge_lines(f"only\nx\ny\n{base}", f"only\nx\ny\n{theirs}", f"only\nx\ny\n{ours}")
    assert kept.startswith("only\nx\ny\n")
