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
from functools import reduce
from numbers import Number
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from langchain_workingmem._text.nesting import json_leaves, shown
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
Path: TypeAlias = tuple[Any, str]  # the digest of a path so far, and what stands before the next name
_ROOT: Path = (hashlib.sha1(b"[[", usedforsecurity=False), "")


@dataclass(frozen=True, slots=True)
class Filter:
    """A checked filter."""

    wanted: Mapping[str, Any]
    where: FilterExpression  # what the index decides
    decided: bool  # it decides all

    @classmethod
    def of(cls, wanted: Mapping[str, Any] | None) -> Self:
        """Check a filter; `OptionError`, a ValueError, for an operator that does not exist and for what no value can be."""
        if wanted is not None and not isinstance(wanted, Mapping):
            raise OptionError(
                f"filter={shown(wanted)}", remedy="use a dict, such as {'color': 'red', 'score': {'$gt': 3}}"
            )
        wanted = wanted or {}
        _check(wanted)
        from redisvl.query.filter import FilterExpression

        terms: list[str] = []
        decided = True
        for key, value in wanted.items():
            found, whole = _terms((key,), _below(_ROOT, key), value)
            if "." in key and found:  # may mean a path
                names = key.split(".")
                others, _ = _terms(tuple(names), reduce(_below, names, _ROOT), value)
                found, whole = [f"(({' '.join(found)}) | ({' '.join(others)}))"], False
            elif "." in key:
                whole = False
            terms += found
            decided = decided and whole
        # one flat intersection, as in search.py: Python cannot print what is nested a thousand times
        return cls(wanted, FilterExpression(f"({' '.join(terms)})" if terms else "*"), decided)

    def matches(self, value: Mapping[str, Any]) -> bool:
        """Tell whether a value passes; a key with dots is a path where the value has no such key."""
        return all(_matches(_at(value, key), wanted) for key, wanted in self.wanted.items())


def _check(wanted: Mapping[str, Any]) -> None:
    try:
        for leaf in json_leaves(wanted):
            if not isinstance(leaf, str | Number | None):
                msg = f"it holds a {type(leaf).__name__}, and no value of an item is one"
                raise ValueError(msg)  # noqa: TRY004 - becomes an OptionError, as the others do
    except ValueError as error:
        raise OptionError(
            f"filter cannot match, {error}",
            remedy="use strings, numbers, booleans, None, lists and dicts with str keys",
        ) from error


def labels(value: Mapping[str, Any]) -> Iterator[str]:
    """Give the labels of a value, objects in objects included."""
    return _labels_of(value, _ROOT)


def _labels_of(value: Mapping[str, Any], above: Path) -> Iterator[str]:
    for key, part in value.items():
        if isinstance(part, Mapping):
            yield from _labels_of(part, _below(above, key))
        elif (written := _written(part)) is not None:
            yield _label(_below(above, key), written)


def _terms(names: tuple[str, ...], path: Path, wanted: Any) -> tuple[list[str], bool]:
    """Say what the index can tell about a field, and whether that is all there is to tell."""
    from redisvl.query.filter import Tag

    if not isinstance(wanted, Mapping):
        written = _written(wanted)
        return ([], False) if written is None else ([str(Tag("labels") == _label(path, written))], True)
    terms: list[str] = []
    if not any(key.startswith("$") for key in wanted):
        decided = bool(wanted)  # {} asks for an object, whatever it holds
        for key, part in wanted.items():
            found, whole = _terms((*names, key), _below(path, key), part)
            terms += found
            decided = decided and whole
        return terms, decided
    decided = True
    for name, operand in wanted.items():
        if name not in _OPERATORS:
            raise OptionError(
                f"filter for {shown('.'.join(names))}",
                remedy=f"unknown operator {shown(name)}, use one of {', '.join(_OPERATORS)}",
            )
        written = None if name in _ORDER else _written(operand)
        if written is None:
            decided = False
        else:
            tag = _label(path, written)
            terms.append(str(Tag("labels") == tag if name == "$eq" else Tag("labels") != tag))
    return terms, decided


def _at(value: Mapping[str, Any], key: str) -> Any:
    found: Any = value
    for part in [key] if key in value else key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _matches(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(key.startswith("$") for key in wanted):
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


def _below(path: Path, key: str) -> Path:
    """Go on from an object to a field: the digest of a long path is not made anew for each field at its end."""
    digest, comma = path[0].copy(), path[1]
    digest.update(f"{comma}{_json(key)}".encode())
    return digest, ", "


def _label(path: Path, written: str) -> str:
    """Make the tag, a digest of `[path, written]` as JSON.

    64 bits, because two fields of one digest would only meet in one person's filter.
    """
    digest = path[0].copy()
    digest.update(f"], {_json(written)}]".encode())
    found: str = digest.hexdigest()
    return found[:16]
