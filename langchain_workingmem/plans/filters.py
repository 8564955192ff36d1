"""Filters over the values of store items: what they mean, and the part that the index can decide.

The meaning is that of LangGraph's InMemoryStore: Python's equality (1 == 1.0 == True), a dict without operators matches
every dict that has at least its pairs, a field that is missing is None. Where that store raises because two values have
no order, such as None and 3, nothing matches here.

Every string, number and boolean of a value, and every list of them, has a label in the index: a digest of its path and
its value. A filter for equality is therefore decided by the server, without declaring a field. What remains is checked
on the values that the server returns.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redisvl.query.filter import FilterExpression  # imported where it is used, as in search.py

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_OPERATORS = ("$eq", "$ne", *_ORDER)
MAX_LABELLED = 128  # characters: longer values have no label, each would be a tag of its own that nobody asks for
_json = json.JSONEncoder().encode
_HUGE = 10**MAX_LABELLED


@dataclass(frozen=True, slots=True)
class Filter:
    """A checked filter."""

    wanted: Mapping[str, Any]
    where: FilterExpression  # what the index decides
    decided: bool  # it decides all

    @classmethod
    def of(cls, wanted: Mapping[str, Any] | None) -> Self:
        """Check a filter; `OptionError`, a ValueError, for an operator that does not exist."""
        if wanted is not None and not isinstance(wanted, Mapping):
            msg = f"filter={wanted!r}: use a dict, such as {{'color': 'red', 'score': {{'$gt': 3}}}}"
            raise OptionError(msg)
        from redisvl.query.filter import FilterExpression

        where, decided = FilterExpression("*"), True
        for key, value in (wanted or {}).items():
            if not isinstance(key, str):
                msg = f"filter key {key!r}: use a str, the name of a field"
                raise OptionError(msg)
            condition, whole = _condition([key], value)
            if "." in key:  # may mean a path
                path, _ = _condition(key.split("."), value)
                condition, whole = condition | path, False
            where, decided = where & condition, decided and whole
        return cls(wanted or {}, where, decided)

    def matches(self, value: Mapping[str, Any]) -> bool:
        """Tell whether a value passes; a key with dots is a path where the value has no such key."""
        return all(_matches(_at(value, key), wanted) for key, wanted in self.wanted.items())


def labels(value: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[str]:
    """Give the labels of a value, objects in objects included."""
    for key, part in value.items():
        if isinstance(part, Mapping):
            yield from labels(part, (*path, key))
        elif (written := _written(part)) is not None:
            yield _label([*path, key], written)


def _condition(path: list[str], wanted: Any) -> tuple[FilterExpression, bool]:
    """Say what the index can tell about a field, and whether that is all there is to tell."""
    from redisvl.query.filter import FilterExpression, Tag

    everything = FilterExpression("*")
    if not isinstance(wanted, Mapping):
        written = _written(wanted)
        return (everything, False) if written is None else (Tag("labels") == _label(path, written), True)
    if not any(str(key).startswith("$") for key in wanted):
        where, decided = everything, bool(wanted)  # {} asks for an object, whatever it holds
        for key, part in wanted.items():
            condition, whole = _condition([*path, key], part)
            where, decided = where & condition, decided and whole
        return where, decided
    where, decided = everything, True
    for name, operand in wanted.items():
        if name not in _OPERATORS:
            msg = f"filter for {'.'.join(path)!r}: unknown operator {name!r}, use one of {', '.join(_OPERATORS)}"
            raise OptionError(msg)
        written = None if name in _ORDER else _written(operand)
        if written is None:
            decided = False
        else:
            tag = _label(path, written)
            where = where & (Tag("labels") == tag if name == "$eq" else Tag("labels") != tag)
    return where, decided


def _at(value: Mapping[str, Any], key: str) -> Any:
    found: Any = value
    for part in [key] if key in value else key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _matches(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(key).startswith("$") for key in wanted):
            return all(_compares(value, name, operand) for name, operand in wanted.items())
        return isinstance(value, Mapping) and all(_matches(value.get(key), part) for key, part in wanted.items())
    if isinstance(wanted, list | tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_matches, value, wanted))
    return bool(value == wanted)


def _compares(value: Any, name: str, operand: Any) -> bool:
    if name not in _ORDER:
        operand = list(operand) if isinstance(operand, tuple) else operand
        return (value == operand) is (name == "$eq")
    numbers = _number(value), _number(operand)
    if None not in numbers:
        return _ORDER[name](*numbers)
    return isinstance(value, str) and isinstance(operand, str) and _ORDER[name](value, operand)


def _number(value: Any) -> float | None:
    """Read a number, also one that is written as a string."""
    if isinstance(value, int | float):
        return value
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _written(value: Any) -> str | None:
    """Write a value such that equal ones are written alike; None for what has no label."""
    written = None
    if isinstance(value, str):
        written = f'"{value}'
    elif isinstance(value, int):  # a bool too
        written = str(int(value)) if abs(value) < _HUGE else None
    elif isinstance(value, float) and not math.isnan(value):  # NaN equals nothing
        written = _written(int(value)) if value.is_integer() else str(value)
    elif isinstance(value, list | tuple):
        parts = ["" if part is None else _written(part) for part in value]
        written = None if None in parts else _json(parts)
    return None if written is None or len(written) > MAX_LABELLED else written


def _label(path: list[str], written: str) -> str:
    """Make the tag; 64 bits, because two fields of one digest would only meet in one person's filter."""
    return hashlib.sha1(_json([path, written]).encode(), usedforsecurity=False).hexdigest()[:16]
