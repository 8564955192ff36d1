"""Filters over the values of store items: their meaning, and the part that the index can decide.

They mean the same as in LangGraph's InMemoryStore: Python's equality (1 == 1.0 == True), a dict without operators
matches every dict that has at least its pairs, a missing field is None. Two values without an order, such as None and
3, do not match, where that store raises.

Every string, number and boolean of a value, and every list of them, has a label in the index: a digest of its path and
its value. So the server decides equality without declared fields. The rest is checked on the values that it returns.
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
    from collections.abc import Iterator

    from redisvl.query.filter import FilterExpression  # at run time imported where it is used, because it is slow

_ORDER: dict[str, Any] = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}
_OPERATORS = ("$eq", "$ne", *_ORDER)
MAX_LABELLED = 128  # characters: longer values have no label, because filters hardly ever ask for them
_json = json.JSONEncoder().encode
_HUGE = 10**MAX_LABELLED
Path: TypeAlias = tuple[Any, str]  # a hash object fed with the path so far, and the separator before the next name
_ROOT: Path = (hashlib.sha1(b"[[", usedforsecurity=False), "")


@dataclass(frozen=True, slots=True)
class Filter:
    """A checked filter."""

    wanted: Mapping[str, Any]
    where: FilterExpression  # the part that the index decides
    decided: bool  # whether that is all of it

    @classmethod
    def of(cls, wanted: Mapping[str, Any] | None) -> Self:
        """Check a filter; `OptionError` for an unknown operator and for a value that no item can have."""
        wanted = {} if wanted is None else wanted
        if not isinstance(wanted, Mapping):
            example = "{'color': 'red', 'score': {'$gt': 3}}"
            raise OptionError(f"filter={shown(wanted)}", remedy=f"use a dict, such as {example}")
        _check(wanted)
        from redisvl.query.filter import FilterExpression

        terms: list[str] = []
        decided = not any("." in key for key in wanted)  # such a key is either a name or a path
        for key, value in wanted.items():
            found, whole = _terms((key,), _below(_ROOT, key), value)
            if "." in key and found:
                names = key.split(".")
                others, _ = _terms(tuple(names), reduce(_below, names, _ROOT), value)
                found = [f"(({' '.join(found)}) | ({' '.join(others)}))"]
            terms += found
            decided = decided and whole
        # one flat intersection: redisvl's `&` nests, and Python cannot print a thousand levels
        return cls(wanted, FilterExpression(f"({' '.join(terms)})" if terms else "*"), decided)

    def matches(self, value: Mapping[str, Any]) -> bool:
        """Tell whether a value passes; a key with dots is a path unless the value has that key."""
        return all(_matches(_at(value, key), wanted) for key, wanted in self.wanted.items())


def _check(wanted: Mapping[str, Any]) -> None:
    try:
        for leaf in json_leaves(wanted):
            if not isinstance(leaf, str | Number | None):
                msg = f"it holds a {type(leaf).__name__}, which is not JSON"
                raise ValueError(msg)  # noqa: TRY004 - becomes an OptionError, as the others do
    except ValueError as error:
        raise OptionError(
            f"filter cannot match, {error}",
            remedy="use strings, numbers, booleans, None, lists and dicts with str keys",
        ) from error


def labels(value: Mapping[str, Any], path: Path = _ROOT) -> Iterator[str]:
    """Return the labels of a value, those of nested objects included."""
    for key, part in value.items():
        if isinstance(part, Mapping):
            yield from labels(part, _below(path, key))
        elif (written := _written(part)) is not None:
            yield _label(_below(path, key), written)


def _terms(names: tuple[str, ...], path: Path, wanted: Any) -> tuple[list[str], bool]:
    """Return the conditions on a field that the index can decide, and whether they are all."""
    from redisvl.query.filter import Tag

    terms: list[str] = []
    if isinstance(wanted, Mapping) and not _has_operators(wanted):
        decided = bool(wanted)  # {} matches any object
        for key, part in wanted.items():
            found, whole = _terms((*names, key), _below(path, key), part)
            terms += found
            decided = decided and whole
        return terms, decided
    decided = True
    for name, operand in (wanted if isinstance(wanted, Mapping) else {"$eq": wanted}).items():
        if name not in _OPERATORS:
            seen = f"filter for {shown('.'.join(names))}: unknown operator {shown(name)}"
            raise OptionError(seen, remedy=f"use one of {', '.join(_OPERATORS)}")
        if name in _ORDER or (written := _written(operand)) is None:
            decided = False
        else:
            tag = _label(path, written)
            terms.append(str(Tag("labels") == tag if name == "$eq" else Tag("labels") != tag))
    return terms, decided


def _has_operators(wanted: Mapping[str, Any]) -> bool:
    return any(key.startswith("$") for key in wanted)


def _at(value: Mapping[str, Any], key: str) -> Any:
    found: Any = value
    for part in [key] if key in value else key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _matches(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if _has_operators(wanted):
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
        return bool(_ORDER[name](*numbers))
    return isinstance(value, str) and isinstance(operand, str) and bool(_ORDER[name](value, operand))


def _number(value: Any) -> float | None:
    """Return a number, also one in a string, as LangGraph does."""
    if isinstance(value, int | float):
        return value
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _written(value: Any) -> str | None:
    """Write a value, equal ones alike; None for a value without a label."""
    written = ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str):
        written = f'"{value}'
    elif isinstance(value, int):  # a bool too
        written = str(int(value)) if abs(value) < _HUGE else ""
    elif isinstance(value, float) and not math.isnan(value):  # NaN equals nothing
        written = str(value)
    elif isinstance(value, list | tuple):
        parts = ["" if part is None else _written(part) for part in value]
        written = "" if None in parts else _json(parts)
    return written if 0 < len(written) <= MAX_LABELLED else None


def _below(path: Path, key: str) -> Path:
    """Extend a path by a key; copying the hash object avoids hashing a long path again for each field."""
    digest, comma = path[0].copy(), path[1]
    digest.update(f"{comma}{_json(key)}".encode())
    return digest, ", "


def _label(path: Path, written: str) -> str:
    """Return the label, 64 bits of a digest of `[path, written]` as JSON."""
    digest = path[0].copy()
    digest.update(f"], {_json(written)}]".encode())
    found: str = digest.hexdigest()
    return found[:16]
