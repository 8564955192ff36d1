"""Merging: RFC 7396 by its own table, the laws of merging and appending, and three-way merges of texts."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.working_memory.document import (
    append_patch,
    append_text,
    merge_patch,
    merge_text,
    named,
    without_path,
)

keys = st.sampled_from(["a", "b", "c", "", "ä"])
scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-1, 1) | st.text("ab ", max_size=3)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)
documents = st.dictionaries(keys, values, max_size=4)
blocks = st.text("ab -#\n\t", max_size=12)


def as_json(value: Any) -> str:
    """Compare as JSON does: in Python True is 1, and 1 is 1.0."""
    return json.dumps(value, sort_keys=True)


# ---------------------------------------------------------------------- RFC 7396


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_does_what_appendix_a_of_rfc_7396_says(target: Any, patch: Any, result: Any) -> None:
    assert as_json(merge_patch(target, patch)) == as_json(result)


@given(values, values)
def test_a_merge_leaves_its_arguments_as_they_were(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))
    merge_patch(target, patch)
    append_patch(target, patch)
    assert as_json((target, patch)) == as_json(before)


# ---------------------------------------------------------------------- append


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": {"b": [1]}}, {"a": {"b": [2], "c": 3}}, {"a": {"b": [1, 2], "c": 3}}),
        ({"a": "text"}, {"a": ["x", "x"]}, {"a": ["x"]}),
        ({}, {"a": [[1], [1], [2]]}, {"a": [[1], [2]]}),
    ],
)
def test_append_joins_objects_and_arrays_and_overwrites_the_rest(target: Any, patch: Any, result: Any) -> None:
    assert append_patch(target, patch) == result


@given(st.dictionaries(keys, st.lists(values, max_size=5)), st.dictionaries(keys, st.lists(values, max_size=5)))
def test_append_never_loses_an_item(target: dict[str, list[Any]], patch: dict[str, list[Any]]) -> None:
    merged = append_patch(target, patch)
    for key in target.keys() | patch.keys():
        found = [as_json(item) for item in merged[key]]
        given = [as_json(item) for item in (*target.get(key, ()), *patch.get(key, ()))]
        if key in patch:
            assert found == list(dict.fromkeys(given))
        else:
            assert found == given


@given(blocks, blocks)
def test_appending_text_never_loses_a_line(target: str, addition: str) -> None:
    kept = {line.strip() for line in append_text(target, addition).splitlines()}
    assert {line.strip() for text in (target, addition) for line in text.splitlines()} - {""} <= kept


@given(st.recursive(scalars, lambda inner: st.dictionaries(st.text("a.", max_size=3), inner, max_size=4), max_leaves=9))
def test_every_name_that_is_listed_leads_somewhere_and_can_be_taken_out(document: Any) -> None:
    if isinstance(document, dict):
        before = list(named(document))
        for name, value in before:
            after = list(named(without_path(document, name)))
            assert len(after) < len(before) or (after != before and value not in after)


lines = st.sampled_from(["a", "b", "a: 1", "a: 2", "b: 1", "", " ", "  a", "# c"])
texts = st.lists(lines, max_size=8).map("\n".join) | st.text("ab:\n ", max_size=20)


@given(texts, texts)
def test_where_one_side_has_not_changed_or_both_have_alike_the_other_holds(seen: str, sent: str) -> None:
    assert merge_text(seen, seen, sent) == merge_text(seen, sent, seen) == merge_text(seen, sent, sent) == sent


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
