"""Filters over JSON documents: metadata of threads and messages, and the values of store items.

They mean what they mean in LangGraph's InMemoryStore: Python's equality (1 == 1.0 == True), a dict without operators
matches every dict with at least its pairs, a list is compared as a whole, a missing key is None, except for `$exists`.
Two values without an order, such as None and 3, do not match, where that store raises. A client may send a filter, so
it is first copied through JSON of a bounded size. Labels in an index decide equality, `Filter.matches` the rest.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from numbers import Number
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from langchain_workingmem._text.values import check_nesting, shown
from langchain_workingmem.checks import is_named
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

Names: TypeAlias = tuple[str, ...]  # of a key, and of keys within its value
Part: TypeAlias = tuple[str, Any]  # a key and what is asked of its value; or $and, $or, $not and filters
# A condition of a query that all documents meet that pass, and whether only they do.
Condition: TypeAlias = tuple[str, bool]
# Returns labels, of which a document has one if its value at these names equals this one, None if labels do not tell.
Labels: TypeAlias = "Callable[[Names, Any], Sequence[str] | None]"

MOST_CHARACTERS, MOST_PARTS = 50_000, 5_000  # characters of a filter as JSON; its values, keys and brackets
EVERYTHING = "*"
_ORDER: dict[str, Any] = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}
_JSON = "use strings, numbers, booleans, None, lists and dicts with str keys"
# What has to follow an operator, and how an error says so: between filters, and behind a key.
_LOGIC: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("$and", "$or"), (list, "use a list of filters, with one at least")),
    "$not": (dict, "use a filter"),
}
_OPERATORS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("$eq", "$ne"), (object, "")),
    **dict.fromkeys(("$in", "$nin"), (list, "use a list of values")),
    **dict.fromkeys(_ORDER, (str | Number, "use a number or a text")),
    "$exists": (bool, "use True or False"),
    "$not": (dict, "use operators, such as {'$gt': 3}"),
}
_MISSING: Any = object()


def _as_dict(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return {**value}
    msg = f"{type(value).__name__} is not JSON"
    raise TypeError(msg)


@dataclass(frozen=True, slots=True)
class Filter:
    """A checked filter."""

    parts: Sequence[Part] = ()  # all have to be met
    work: int = 0  # that the test of one document is, in characters, as `compute` counts it

    @classmethod
    def of(cls, wanted: Mapping[str, Any] | None, name: str = "filter", *, finite: bool = True) -> Self:
        """Check a filter; `OptionError` for unknown operators, wrong operands, no JSON, and beyond `MOST_CHARACTERS`."""
        text, writer = "", json.JSONEncoder(allow_nan=not finite, default=_as_dict)
        try:
            for number, part in enumerate(writer.iterencode({} if wanted is None else wanted)):
                text += part
                if len(text) > MOST_CHARACTERS or number > MOST_PARTS:
                    problem = f"{name} has more than {MOST_CHARACTERS:,} characters as JSON, or {MOST_PARTS:,} parts"
                    raise OptionError(problem, remedy="name fewer values, or use several calls")
            check_nesting(wanted)
            copy = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            if isinstance(error, OptionError):
                raise
            raise OptionError(f"{name} is not JSON ({error})", remedy=_JSON) from None
        _check(copy, name, _LOGIC)
        return cls(_flat(copy), 100 * (1 + text.count(",")))

    @property
    def keys(self) -> set[str]:
        """Return the keys that it names."""
        return _keys(self.parts)

    @property
    def keys_beyond_equality(self) -> set[str]:
        """Return the keys of which it asks more than equality with a value."""
        return _keys(part for part in self.parts if not _is_equality(dict([part])))

    def matches(self, value: Mapping[str, Any]) -> bool:
        """Tell whether a document passes."""
        return _passes(value, self.parts)

    def apart(self, keys: Collection[str]) -> tuple[Filter, Filter]:
        """Return the conditions that name only these keys, and the others; both have to be met."""
        matching: list[Part] = []
        others: list[Part] = []
        for part in self.parts:
            names = _keys([part])
            (matching if names and all(is_named(name, keys) for name in names) else others).append(part)
        return Filter(matching, self.work), Filter(others, self.work)

    def condition(self, labels: Labels) -> Condition:
        """Write the equality that labels decide as a condition of a query."""
        groups = [group for key, part in self.parts for group in _groups((key,), part, labels)]
        # no label is "none"
        texts = [f"@labels:{{{'|'.join(group) or 'none'}}}" for group in groups if group is not None]
        return f"({' '.join(texts)})" if texts else EVERYTHING, None not in groups


def joined(*filters: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a filter that passes what all of these pass; None passes everything."""
    conditions = [condition for condition in filters if condition is not None]
    return {"$and": conditions} if len(conditions) > 1 else next(iter(conditions), None)


def check_declared(keys: Collection[str], declared: Collection[str], where: str) -> None:
    """Check that the keys of a filter of metadata are declared."""
    if unknown := sorted(key for key in keys if not is_named(key, declared)):
        problem = f"metadata {shown(unknown)} is not filterable, only {shown([*declared])} is"
        raise OptionError(problem, remedy=f"name the keys in {where}")


def _check(wanted: Any, where: str, known: Mapping[str, tuple[Any, str]]) -> None:
    """Check a filter (`known` is _LOGIC), or what stands behind a key of one (_OPERATORS)."""
    is_filter = known is _LOGIC
    if is_filter and not isinstance(wanted, dict):
        raise OptionError(f"{where}={shown(wanted)}", remedy="use a dict, such as {'score': {'$gt': 3}}")
    if isinstance(wanted, list):
        for item in wanted:
            _check(item, where, known)
    elif isinstance(wanted, dict):
        has_operators = _has_operators(wanted)
        for key, part in wanted.items():
            if is_filter and not _is_sign(key):
                _check(part, f"{where} for {shown(key)}", _OPERATORS)
            elif is_filter or has_operators:
                _check_sign(key, part, known, where)
            else:
                _check(part, where, known)


def _check_sign(sign: str, operand: Any, known: Mapping[str, tuple[Any, str]], where: str) -> None:
    if sign not in known:
        right = ", ".join(known) if known is _OPERATORS or sign not in _OPERATORS else f"{{'key': {{{sign!r}: ...}}}}"
        raise OptionError(f"{where}: unknown operator {shown(sign)} here", remedy=f"use one of {right}")
    kind, remedy = known[sign]
    if not isinstance(operand, kind) or (sign in _LOGIC and not operand):
        raise OptionError(f"{where}: {sign} of {shown(operand)}", remedy=remedy)
    for inner in _filters(sign, operand) if sign in _LOGIC else ():
        _check(inner, where, known)


def _is_sign(key: str) -> bool:
    return key.startswith("$")


def _has_operators(wanted: Any) -> bool:
    return isinstance(wanted, dict) and any(map(_is_sign, wanted))


def _filters(sign: str, part: Any) -> list[Any]:
    """Return the filters behind $and, $or or $not."""
    return [part] if sign == "$not" else part


def _flat(wanted: dict[str, Any]) -> list[Part]:
    """Return the parts of a filter, those of the filters behind $and among them."""
    parts: list[Part] = []
    for key, part in wanted.items():
        parts += [inner_part for inner in part for inner_part in _flat(inner)] if key == "$and" else [(key, part)]
    return parts


def _keys(parts: Iterable[Part]) -> set[str]:
    keys: set[str] = set()
    for key, part in parts:
        keys |= {name for inner in _filters(key, part) for name in _keys(inner.items())} if _is_sign(key) else {key}
    return keys


def _is_equality(wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return all(key == "$eq" or (not _is_sign(key) and _is_equality(part)) for key, part in wanted.items())
    return not isinstance(wanted, list) or all(map(_is_equality, wanted))


# ---------------------------------------------------------------------- the test of a document


def _passes(document: Mapping[str, Any], parts: Iterable[Part]) -> bool:
    return all(_meets(document, key, part) for key, part in parts)


def _meets(document: Mapping[str, Any], key: str, part: Any) -> bool:
    if _is_sign(key):
        results = (_passes(document, inner.items()) for inner in _filters(key, part))
        return not any(results) if key == "$not" else any(results) if key == "$or" else all(results)
    value: Any = document
    for name in [key] if key in document else key.split("."):
        value = value.get(name, _MISSING) if isinstance(value, Mapping) else _MISSING
    return _fits(value, part)


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        if _has_operators(wanted):
            return all(_compare(value, sign, operand) for sign, operand in wanted.items())
        is_dict = isinstance(value, Mapping)
        return is_dict and all(_fits(value.get(key, _MISSING), part) for key, part in wanted.items())
    if isinstance(wanted, list):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_fits, value, wanted))
    return bool((None if value is _MISSING else value) == wanted)


def _compare(value: Any, sign: str, operand: Any) -> bool:
    if sign == "$exists":
        return (value is not _MISSING) is operand
    if sign == "$not":
        return not _fits(value, operand)
    value = None if value is _MISSING else value
    if sign in {"$eq", "$ne"}:
        return bool(value == operand) is (sign == "$eq")
    if sign in {"$in", "$nin"}:
        return (value in operand) is (sign == "$in")
    numbers = _number(value), _number(operand)
    if None not in numbers:
        return bool(_ORDER[sign](*numbers))
    return isinstance(value, str) and isinstance(operand, str) and bool(_ORDER[sign](value, operand))


def _number(value: Any) -> float | None:
    """Return a number, also one in a string, as LangGraph does."""
    if isinstance(value, int | float):
        return value
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _groups(names: Names, wanted: Any, labels: Labels) -> list[Sequence[str] | None]:
    """Return labels, of each group of which a document that passes has one; None for what they do not decide."""
    if len(names) == 1 and (_is_sign(names[0]) or "." in names[0]):
        return [None]
    if isinstance(wanted, dict) and not _has_operators(wanted):
        inside = [group for key, part in wanted.items() for group in _groups((*names, key), part, labels)]
        return [*inside, None]
    operators = wanted if isinstance(wanted, dict) else {"$eq": wanted}
    sign, operand = next(iter(operators.items()))
    if len(operators) > 1 or sign not in {"$eq", "$in"}:
        return [None]
    values = operand if sign == "$in" else [operand]
    groups = [None if value is None else labels(names, value) for value in values]  # what is missing is None, too
    return [None if None in groups else [digest for group in groups for digest in group or ()]]


# ---------------------------------------------------------------------- metadata of threads and messages

# where keys are declared that filters may name
DECLARED = (
    "RecallOptions(filterable=...), then run memory.recall.reindex(), or those of threads in Memory(thread_filters=...)"
)
_FIELD = b"metadata:"  # in the hash of a thread, before a key
_sorted_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def metadata_in(row: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Return the metadata among the fields of a thread."""
    start = len(_FIELD)
    return {name[start:].decode(): json.loads(value) for name, value in row.items() if name.startswith(_FIELD)}


def canonical_json(value: object, key: str) -> str:
    """Write a value of metadata as JSON with sorted keys, so that equal values are equal texts."""
    try:
        if isinstance(value, dict | list | tuple):
            check_nesting(value)
        return _sorted_json(value)
    except (TypeError, ValueError) as error:
        raise OptionError(f"metadata {shown(key)} is not JSON ({error})", remedy=_JSON) from error


def label(key: str, value: object) -> str:
    """Return the label of a pair of metadata; thread.lua makes the same one."""
    return hashlib.sha1(f"{key}={canonical_json(value, key)}".encode(), usedforsecurity=False).hexdigest()


def labels_of(names: Names, value: Any) -> list[str] | None:
    """Return the labels of metadata that equals a value, None where labels do not tell, as inside of a dict."""
    if len(names) > 1 or isinstance(value, list | tuple | dict):
        return None
    try:
        return [label(names[0], equal) for equal in _equals(value)]
    except OptionError:  # it is no JSON
        return None


def _equals(value: Any) -> list[Any]:
    """Return a value and its equals of other types: 1, 1.0 and true are different JSON."""
    if not isinstance(value, int | float):
        return [value]
    with suppress(OverflowError, ValueError):  # an int may be too large for a float; infinity and NaN are no int
        return [kind(value) for kind in (int, float, bool) if kind(value) == value] + [-0.0] * (not value)
    return [value]
