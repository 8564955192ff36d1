"""What changed between two revisions of working memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem import WorkingMemoryDiff
from langchain_workingmem._documents.diffs import changes, pretty
from tests.display.samples import state


def test_a_diff_says_what_was_added_and_removed() -> None:
    before, after = (
        state("# Maya\n- city: Berlin\n- dog: Nougat\n", 1),
        state("# Maya\n- city: Lisbon\n- dog: Nougat\n", 2),
    )
    diff = after.diff(before)
    assert (diff.earlier, diff.later) == (1, 2)
    assert (diff.added, diff.removed) == (["- city: Lisbon"], ["- city: Berlin"])
    assert str(diff).splitlines() == [
        "--- revision 1",
        "+++ revision 2",
        "@@ -1,3 +1,3 @@",
        " # Maya",
        "-- city: Berlin",
        "+- city: Lisbon",
        " - dog: Nougat",
    ]


@pytest.mark.parametrize(
    ("before", "after"), [("same", "same"), ("", ""), ("line", "line\n"), ('{"a": 1, "b": 2}', '{"b": 2,\n"a": 1}')]
)
def test_without_a_change_a_diff_is_empty(before: str, after: str) -> None:
    diff = state(after, 2).diff(state(before, 1))
    assert diff == WorkingMemoryDiff(earlier=1, later=2, lines=[])
    assert (str(diff), diff.added, diff.removed) == ("", [], [])


@pytest.mark.parametrize(
    ("before", "after", "added", "removed"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, ['"b": 2'], []),  # and no comma behind the 1
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, ["3"], []),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2}}, [], ['"b": 1']),
        ({"a": "Zürich"}, {"a": "Köln"}, ['"a": "Köln"'], ['"a": "Zürich"']),
    ],
)
def test_json_is_compared_value_by_value(before: Any, after: Any, added: list[str], removed: list[str]) -> None:
    diff = state(json.dumps(after), 2).diff(state(json.dumps(before), 1))
    assert [line.strip() for line in diff.added] == added
    assert [line.strip() for line in diff.removed] == removed


@pytest.mark.parametrize(
    "text", ["{not json", "[1, 2", "17", '"text"', "[" * 100_000, "[" * 500 + "]" * 500, "", "- a\n"]
)
def test_what_is_no_json_object_or_array_stays_as_it_is(text: str) -> None:
    assert pretty(text) == text
    assert [line[1:] for line in changes("", text)[1:]] == (text.removesuffix("\n").split("\n") if text else [])


def test_what_utf8_cannot_carry_is_replaced() -> None:
    assert pretty('["\\ud800"]') == '[\n  "?"\n]'
    assert changes("", '["\\ud800"]')[2] == '+  "?"'


@given(st.lists(st.sampled_from("abc-+@")), st.lists(st.sampled_from("abc-+@")))
def test_a_diff_leads_from_one_text_to_the_other(before: list[str], after: list[str]) -> None:
    diff = state("\n".join(after), 2).diff(state("\n".join(before), 1))
    left = [line for line in diff.lines if not line.startswith("@@")]
    kept_before = [line[1:] for line in left if line[0] in " -"]
    kept_after = [line[1:] for line in left if line[0] in " +"]
    # a hunk leaves out equal lines far from any change
    assert len(before) - len(kept_before) == len(after) - len(kept_after)
    assert sorted(diff.removed + kept_after) == sorted(diff.added + kept_before)
    assert bool(diff.lines) == (before != after)
