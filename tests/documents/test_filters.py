"""What filters of the store mean, and what the index may decide."""

from __future__ import annotations

import math
from typing import Any

import pytest

from langchain_workingmem._documents.filters import Filter
from langchain_workingmem.errors import OptionError
from langchain_workingmem.items.filters import labels

VALUE: dict[str, Any] = {
    "name": "Maya",
    "age": 30,
    "score": 4.5,
    "active": True,
    "nothing": None,
    "tags": ["a", 1],
    "home": {"city": "Rome", "rooms": {"beds": 2}},
    "a.b": "literal",
    "day": "2026-11-20",
    "number": "10",
}


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"age": 30.0},
        {"active": 1},
        {"missing": None},
        {"tags": ("a", 1.0)},
        {"home": {"city": "Rome"}},
        {"home": {"rooms": {"beds": {"$gt": 1}}}},
        {"home": {}},
        {"home": {"garden": None}},
        {"home.rooms.beds": {"$lte": 2}},
        {"a.b": "literal"},
        {"missing": {"$ne": 31}},
        {"age": {"$gt": 29, "$lt": 30.5}},
        {"score": {"$gt": "4.4"}},
        {"day": {"$gt": "2026-11-19", "$lt": "2027"}},
        {"age": {"$lt": 10**400}},
        {"tags": {"$eq": ("a", 1)}},
        {"$or": [{"name": "x"}, {"$not": {"age": {"$in": [1, 2]}}}]},
    ],
)
def test_a_value_passes(wanted: dict[str, Any]) -> None:
    assert Filter.of(wanted).matches(VALUE)


@pytest.mark.parametrize(
    "wanted",
    [
        {"name": None},
        {"age": "30"},
        {"tags": ["a"]},
        {"tags": "a"},
        {"home": {"city": "Paris"}},
        {"name": {}},
        {"a.b": "path"},
        {"home.city.street": "x"},
        {"age": {"$ne": 30}},
        {"missing": {"$gt": 0}},
        {"name": {"$gt": 5}},
        {"age": {"$gt": math.nan}},
        {"age": {"$gt": 29, "$lt": 30}},
    ],
)
def test_a_value_does_not_pass(wanted: dict[str, Any]) -> None:
    assert not Filter.of(wanted).matches(VALUE)


@pytest.mark.parametrize(
    "wanted",
    [
        {"a": {"$contains": 1}},
        {"a": {"b": {"$regex": "x"}}},
        {"a": {"$gt": 1, "b": 2}},
        {"$or": [{"b": 1}], "a": {"$": 1}},
        {"a": {"$or": [{"$gt": 1}]}},
        {"a": {"$not": {"$size": 1}}},
        {"a": [{"b": {"$all": 1}}]},
        {"$not": {"a": {"$nor": []}}},
    ],
)
def test_an_unknown_operator_is_refused_with_those_that_exist(wanted: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"unknown operator .*\$eq, \$ne, \$in, \$nin, \$gt"):
        Filter.of(wanted)


@pytest.mark.parametrize(
    ("wanted", "remedy"),
    [
        ({"$nor": [{"a": 1}]}, r"use one of \$and, \$or, \$not"),
        ({"$gt": 3}, r"use one of \{'key': \{'\$gt': ...\}\}"),
        ({"$and": [{"$in": [1]}]}, r"use one of \{'key': \{'\$in': ...\}\}"),
        ({"$or": []}, "use a list of filters"),
        ({"$or": {"a": 1}}, "use a list of filters"),
        ({"$and": [1]}, "use a list of filters"),
        ({"$not": {}}, "use a filter"),
        ({"$not": [{"a": 1}]}, "use a filter"),
        ({"a": {"$in": 1}}, "use a list of values"),
        ({"a": {"b": {"$nin": "x"}}}, "use a list of values"),
        ({"a": {"$exists": 1}}, "use True or False"),
        ({"a": {"$gt": None}}, "use a number or a text"),
        ({"a": {"$lte": [1]}}, "use a number or a text"),
        ({"a": {"$not": 5}}, r"use operators, such as \{'\$gt': 3\}"),
        ({"a": {"$not": {"b": 1}}}, r"use operators, such as \{'\$gt': 3\}"),
    ],
)
def test_a_wrong_operand_is_refused_with_the_right_one(wanted: dict[str, Any], remedy: str) -> None:
    with pytest.raises(OptionError, match=remedy) as caught:
        Filter.of(wanted, "metadata")
    assert "metadata" in str(caught.value)


@pytest.mark.parametrize("wanted", ["a", [("a", 1)], {1: "a"}])
def test_what_is_no_filter_is_refused(wanted: Any) -> None:
    with pytest.raises(OptionError, match=r"filter"):
        Filter.of(wanted)


def test_equal_values_have_equal_labels_and_others_do_not() -> None:
    alike = [1, 1.0, True]
    assert len({next(labels({"a": value})) for value in alike}) == 1
    others: list[Any] = [
        1,
        "1",
        2,
        1.5,
        "True",
        ["1"],
        [1],
        [[1]],
        [],
        [None],
        ["", ""],
        ["1", "1"],
        ['1", "1'],
        math.inf,
    ]
    assert len({next(labels({"a": value})) for value in others}) == len(others)
    assert next(labels({"a": {"b": 1}})) != next(labels({"a.b": 1}))
