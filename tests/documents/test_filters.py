"""What filters of the store mean, and what the index may decide."""

from __future__ import annotations

import math
import re
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
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
        (
            {"a": {"$in": ["x" * 50_000]}},
            "metadata has more than 50,000 characters as JSON, or 5,000 parts: name fewer values",
        ),
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
scalars = st.sampled_from([None, True, 0, 2.5, "1", "x"])
inner = st.dictionaries(st.just("b"), scalars, max_size=1)
values = scalars | scalars | inner | inner | st.lists(scalars, max_size=2)


def signed(signs: list[str], operands: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(signs), operands, min_size=1, max_size=1)


operators = signed(["$eq", "$ne"], values) | signed(["$in", "$nin"], st.lists(values, max_size=2))
operators |= signed(["$gt", "$gte", "$lt", "$lte"], st.sampled_from([0, 1, 2.5, "1"])) | signed(
    ["$exists"], st.booleans()
)
plain = st.dictionaries(KEYS, values | operators, min_size=1, max_size=2)
filters = plain | signed(["$and", "$or"], st.lists(plain, min_size=1, max_size=2)) | signed(["$not"], plain)
MISSING = object()


def meant(document: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Compare as LangGraph's store does, which knows no logic, no paths and none of our operators."""
    for key, part in wanted.items():
        if key == "$not":
            passes = not meant(document, part)
        elif key in {"$and", "$or"}:
            passes = (all if key == "$and" else any)([meant(document, one) for one in part])
        else:
            found: Any = document
            for name in [key] if key in document else key.split("."):
                found = found.get(name, MISSING) if isinstance(found, dict) else MISSING
            value = None if found is MISSING else found
            sign, operand = [*part.items(), ("", None)][0] if isinstance(part, dict) else ("", None)
            if sign == "$exists":
                passes = (found is not MISSING) is operand
            elif sign in {"$in", "$nin"}:
                passes = (value in (operand or ())) is (sign == "$in")
            else:
                passes = _compare_values(value, part)
        if not passes:
            return False
    return True


def finds(condition: str, document: dict[str, Any]) -> bool:
    """Tell whether Search finds a document by its labels."""
    found = {*labels(document)}
    text = re.sub(r"@labels:\{(.*?)\}", lambda match: str(not found.isdisjoint(match[1].split("|"))), condition)
    text = text.replace(" | ", "+").replace(" ", " and ").replace("+", " or ").replace("-", " not ")
    return condition == "*" or bool(eval(text))


@examples(1000)
@example({"a.b": 1}, {"a": {"b": 1}})
@example({"a": {"$in": ["x", 1]}}, {"a": 1})
@example({"a": None}, {})
@given(filters, st.dictionaries(KEYS, values, max_size=2))
def test_index_and_test_agree_with_the_store_in_memory(wanted: dict[str, Any], document: dict[str, Any]) -> None:
    asked = Filter.of(wanted)
    condition, is_decided = asked.condition(labels_of)
    passes = asked.matches(document)
    assert finds(condition, document) == passes if is_decided else finds(condition, document) or not passes
    with suppress(TypeError, ValueError):  # of that store, for two values without an order
        assert passes == meant(document, wanted)
