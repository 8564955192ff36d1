"""What filters of the store mean, and what the index may decide."""

from __future__ import annotations

import math
import re
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from langgraph.store.memory import _compare_values

from langchain_workingmem._redis.filters import Filter
from langchain_workingmem.errors import OptionError
from langchain_workingmem.items import labels, labels_of
from tests.helpers.examples import examples


@pytest.mark.parametrize(
    ("wanted", "remedy"),
    [
        ({"a": {"$contains": 1}}, r"unknown operator .*\$eq, \$ne, \$in, \$nin, \$gt"),
        ({"$not": {"a": {"$nor": []}}}, "unknown operator"),
        ({"$nor": [{"a": 1}]}, r"use one of \$and, \$or, \$not"),
        ({"$and": [{"$in": [1]}]}, r"use one of \{'key': \{'\$in': ...\}\}"),
        ({"$or": []}, "use a list of filters"),
        ({"$not": [{"a": 1}]}, "use a filter"),
        ({"a": {"$in": 1}}, "use a list of values"),
        ({"a": {"$exists": 1}}, "use True or False"),
        ({"a": {"$gt": None}}, "use a number or a text"),
        ({"a": {"$not": 5}}, r"use operators, such as \{'\$gt': 3\}"),
        ({"a": {"$gt": math.nan}}, "use strings, numbers, booleans"),
    ],
)
def test_a_wrong_operand_is_refused_with_the_right_one(wanted: dict[str, Any], remedy: str) -> None:
    with pytest.raises(OptionError, match=remedy) as caught:
        Filter.of(wanted, "metadata")
    assert "metadata" in str(caught.value)


ENDLESS: dict[str, Any] = {}
ENDLESS["a"] = ENDLESS


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        ({"a": {"$in": ["x" * 50_000]}}, "metadata has more than 50,000 characters as JSON: name fewer values"),
        ({str(key): 1 for key in range(10**6)}, "name fewer values"),
        (ENDLESS, "metadata is not JSON"),
        ({"a": {"$not": dict.fromkeys(range(10**6))}}, "name fewer values"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_filter_has_a_limit_and_costs_no_more_beyond_it(wanted: Any, seen: str) -> None:
    began = time.thread_time()
    with pytest.raises(OptionError, match=seen):
        Filter.of(wanted, "metadata")
    assert time.thread_time() - began < 0.1


KEYS = st.sampled_from(["a", "b", "a.b"])
scalars = st.sampled_from([None, True, 0, 1, 2.5, "", "1", "x"])
values = st.recursive(
    scalars, lambda one: st.lists(one, max_size=2) | st.dictionaries(KEYS, one, max_size=2), max_leaves=3
)
numbers = st.sampled_from([0, 1, 2.5, "1"])
operators = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(["$eq", "$ne"], values),
        **dict.fromkeys(["$gt", "$gte", "$lt", "$lte"], numbers),
        **dict.fromkeys(["$in", "$nin"], st.lists(values, max_size=2)),
        "$exists": st.booleans(),
    },
).filter(bool)
conditions = st.recursive(
    values | operators, lambda one: st.lists(one, max_size=2) | st.dictionaries(KEYS, one, max_size=2), max_leaves=3
)
filters = st.recursive(
    st.dictionaries(KEYS, conditions, max_size=2),
    lambda one: (
        st.fixed_dictionaries({"$not": one.filter(bool)})
        | st.fixed_dictionaries({}, optional={sign: st.lists(one, min_size=1, max_size=2) for sign in ("$and", "$or")})
    ),
    max_leaves=3,
)


def meant(document: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Compare as LangGraph's store does, which knows no logic and no paths."""
    for key, part in wanted.items():
        if key == "$not":
            passes = not meant(document, part)
        elif key in {"$and", "$or"}:
            passes = (all if key == "$and" else any)([meant(document, one) for one in part])
        else:
            found: Any = document
            for name in [key] if key in document else key.split("."):
                found = found.get(name) if isinstance(found, dict) else None
            passes = _compare_values(found, part)
        if not passes:
            return False
    return True


def finds(condition: str, document: dict[str, Any]) -> bool:
    """Tell whether Search finds a document by its labels."""
    found = {*labels(document)}
    text = re.sub(r"@labels:\{(.*?)\}", lambda match: str(not found.isdisjoint(match[1].split("|"))), condition)
    text = text.replace(" | ", "+").replace(" ", " and ").replace("+", " or ").replace("-", " not ")
    return condition == "*" or bool(eval(text))


@examples(2000)
@given(filters, st.lists(st.dictionaries(KEYS, values, max_size=2), min_size=1, max_size=3))
def test_index_and_test_agree_with_the_store_in_memory(wanted: dict[str, Any], documents: list[dict[str, Any]]) -> None:
    try:
        asked = Filter.of(wanted)
    except OptionError:  # it has more than 8 levels
        reject()
    condition, is_decided = asked.condition(labels_of)
    for document in documents:
        passes = asked.matches(document)
        assert finds(condition, document) == passes if is_decided else finds(condition, document) or not passes
        with suppress(TypeError, ValueError):  # of that store, for two values without an order, and operators of ours
            assert passes == meant(document, wanted)
