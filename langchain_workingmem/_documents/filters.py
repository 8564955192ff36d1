"""Filters over JSON documents: metadata, and the values of store items. What they mean, and what an index can decide of them.

They mean what they mean in LangGraph's InMemoryStore: Python's equality (1 == 1.0 == True), a dict without operators matches every
dict that has at least its pairs, a list is compared as a whole, a missing key is None. Two values without an order, such as None
and 3, do not match, where that store raises. Only `$exists` tells a missing key from None.

A filter may come from a client. So `_Copy` copies it no further than its limits, before anything else looks at it. Then it is read
into parts: `_meets` tests a document for one, and `_known` writes what an index knows of one.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from numbers import Number
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from langchain_workingmem._text.nesting import shown
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

Names: TypeAlias = tuple[str, ...]  # of a key, and of keys within its value
# A condition of a query that all documents meet that pass, and whether only they do.
Condition: TypeAlias = tuple[str, bool]
# Returns the labels of which a document has one if its value at these names equals this one, None where labels do not tell.
Labels: TypeAlias = "Callable[[Names, Any], Sequence[str] | None]"

# How much a filter may hold. A condition is a key in any of its dicts, unless it is an operator. A value is what is no dict or
# list, or an empty one. Each dict around a value is a level, and so is each dot in a key, and each list directly in a list.
_LIMITS = (
    (32, "conditions", "name fewer keys, or use several calls"),
    (1_000, "values", "name fewer, or use several calls"),
    (8, "levels", "put fewer dicts and lists inside each other, and fewer dots in a key"),
)
EVERYTHING, NOTHING = "*", "@labels:{none}"  # no label is "none"
_UNKNOWN: Condition = (EVERYTHING, False)
_ORDER: dict[str, Any] = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}
_JSON = "use strings, numbers, booleans, None, lists and dicts with str keys"
# What has to follow an operator, and how an error says so.
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
_HERE: tuple[Names, ...] = ((),)  # the path from a value to itself
_MISSING: Any = object()


class Part(NamedTuple):
    """A test of the value at a path; or "$or", "$not": that one, or none, of several lists of parts is met."""

    sign: str  # an operator; "dict": the value is one; "list": it is one, and each member meets a list of parts
    operand: Any
    paths: tuple[Names, ...] = ()  # two for a key with dots: the first where a document has that key, else the second


@dataclass(frozen=True, slots=True)
class Filter:
    """A checked filter."""

    wanted: Collection[Part] = ()  # all have to be met
    work: int = 0  # that the test of one document is, in characters, as `compute` counts it

    @classmethod
    def of(cls, wanted: Mapping[str, Any] | None, name: str = "filter") -> Self:
        """Check a filter; `OptionError` for an unknown operator, a wrong operand, what is not JSON, and beyond the limits."""
        copy = _Copy(name)
        parts = _filter(copy.of({} if wanted is None else wanted), name)
        return cls(parts, 25 * (copy.keys + copy.values))

    @property
    def keys(self) -> set[str]:
        """Return the keys that it names."""
        return _keys(self.wanted)

    @property
    def keys_beyond_equality(self) -> set[str]:
        """Return the keys of which it asks more than equality with a value."""
        return _keys(part for part in self.wanted if not _is_equality(part))

    def matches(self, value: Mapping[str, Any]) -> bool:
        """Tell whether a document passes."""
        return _passes(value, self.wanted)

    def apart(self, keys: Collection[str]) -> tuple[Filter, Filter]:
        """Return the conditions that name only these keys, and the others; both have to be met."""
        own: list[Part] = []
        others: list[Part] = []
        for part in self.wanted:
            names = _keys([part])
            (own if names and all(is_named(one, keys) for one in names) else others).append(part)
        return Filter(own, self.work), Filter(others, self.work)

    def condition(self, labels: Labels) -> Condition:
        """Write what an index of labels can decide as a condition of a query."""
        return _condition(self.wanted, labels)


def both(*filters: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return a filter that passes what all of these pass; None passes everything."""
    given = [one for one in filters if one is not None]
    return {"$and": given} if len(given) > 1 else next(iter(given), None)


def top_of(key: str) -> str:
    """Return the key of a document that a key with dots is a path from."""
    return key.partition(".")[0]


def is_named(key: str, keys: Collection[str]) -> bool:
    """Tell whether a key of a filter is one of these keys of documents, or a path from one."""
    return key in keys or top_of(key) in keys


# ---------------------------------------------------------------------- reading


@dataclass(slots=True)
class _Copy:
    """Copies JSON, and counts what it holds."""

    name: str
    keys: int = 0
    values: int = 0

    def of(self, value: Any, level: int = 0) -> Any:
        is_dict, is_list = isinstance(value, Mapping), isinstance(value, list | tuple)
        self.values += not (is_dict or is_list) or not value
        for seen, (most, what, remedy) in zip((self.keys, self.values, level), _LIMITS, strict=True):
            if seen > most:
                raise OptionError(f"{self.name} has more than {most:,} {what}", remedy=remedy)
        if is_dict:
            return {key: self.of(one, level + 1 + self._dots(key)) for key, one in value.items()}
        if is_list:
            return [self.of(one, level + isinstance(one, list | tuple)) for one in value]
        if not isinstance(value, str | Number | None):
            raise OptionError(f"{self.name} holds a {type(value).__name__}, which is not JSON", remedy=_JSON)
        return value

    def _dots(self, key: Any) -> int:
        """Count a key, and the dots in it."""
        if not isinstance(key, str):
            raise OptionError(f"{self.name} has a key of type {type(key).__name__}", remedy=_JSON)
        self.keys += not _is_sign(key)
        return key.count(".")


def _filter(wanted: Any, name: str) -> list[Part]:
    if not isinstance(wanted, dict):
        seen = f"{name}={shown(wanted)}"
        raise OptionError(seen, remedy="use a dict, such as {'color': 'red', 'score': {'$gt': 3}}")
    parts: list[Part] = []
    for key, part in wanted.items():
        if not _is_sign(key):
            paths = dict.fromkeys([(key,), (*key.split("."),)])
            parts += _value(part, (*paths,), f"{name} for {shown(key)}")
            continue
        _check(key, part, _LOGIC, name)
        filters = [_filter(one, name) for one in ([part] if key == "$not" else part)]
        parts += chain(*filters) if key == "$and" else [Part(key, filters)]
    return parts


def _value(wanted: Any, paths: tuple[Names, ...], where: str) -> list[Part]:
    """Read what is asked of the value at a path."""
    if isinstance(wanted, dict):
        if any(map(_is_sign, wanted)):
            return [_operator(sign, operand, paths, where) for sign, operand in wanted.items()]
        inside = (_value(one, tuple((*path, key) for path in paths), where) for key, one in wanted.items())
        parts = [*chain(*inside)]
        # a value inside says that this one is a dict
        is_said = any(part.sign == "$eq" and part.operand is not None for part in parts)
        return parts if is_said else [Part("dict", None, paths), *parts]
    if isinstance(wanted, list):
        members = [_value(one, _HERE, where) for one in wanted]
        if any([(part.sign, part.paths) for part in parts] != [("$eq", _HERE)] for parts in members):
            return [Part("list", members, paths)]
        wanted = [part.operand for (part,) in members]
    return [Part("$eq", wanted, paths)]


def _operator(sign: str, operand: Any, paths: tuple[Names, ...], where: str) -> Part:
    _check(sign, operand, _OPERATORS, where)
    if sign == "$not":
        return Part(sign, [[_operator(below, one, paths, where) for below, one in operand.items()]])
    if sign in {"$ne", "$nin"}:
        return Part("$not", [[Part("$eq" if sign == "$ne" else "$in", operand, paths)]])
    return Part(sign, operand, paths)


def _check(sign: str, operand: Any, known: Mapping[str, tuple[Any, str]], where: str) -> None:
    if sign not in known:
        right = ", ".join(known) if known is _OPERATORS or sign not in _OPERATORS else f"{{'key': {{{sign!r}: ...}}}}"
        raise OptionError(f"{where}: unknown operator {shown(sign)} here", remedy=f"use one of {right}")
    kind, remedy = known[sign]
    if not isinstance(operand, kind) or (sign in _LOGIC and not operand):
        raise OptionError(f"{where}: {sign} of {shown(operand)}", remedy=remedy)


def _is_sign(key: str) -> bool:
    return key.startswith("$")


# ---------------------------------------------------------------------- parts


def _keys(parts: Iterable[Part]) -> set[str]:
    found = ({part.paths[0][0]} if part.paths else _keys(chain(*part.operand)) for part in parts)
    return {*chain(*found)}


def _is_equality(part: Part) -> bool:
    return part.sign in {"$eq", "dict"} or (part.sign == "list" and all(map(_is_equality, chain(*part.operand))))


def _passes(document: Any, parts: Iterable[Part]) -> bool:
    return all(_meets(document, part) for part in parts)


def _meets(document: Any, part: Part) -> bool:
    sign, operand, paths = part
    if sign in _LOGIC:
        return any(_passes(document, parts) for parts in operand) is (sign == "$or")
    value = document
    for name in paths[0] if len(paths) == 1 or paths[0][0] in document else paths[1]:
        value = value.get(name, _MISSING) if isinstance(value, Mapping) else _MISSING
    if sign == "$exists":
        return (value is not _MISSING) is operand
    value = None if value is _MISSING else value
    match sign:
        case "$eq":
            return bool(value == operand)
        case "$in":
            return value in operand
        case "dict":
            return isinstance(value, Mapping)
        case "list":
            return isinstance(value, list) and len(value) == len(operand) and all(map(_passes, value, operand))
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


# ---------------------------------------------------------------------- conditions of a query


def _condition(parts: Iterable[Part], labels: Labels) -> Condition:
    """Write the condition of parts that all have to be met."""
    found = [_known(part, labels) for part in parts]
    texts = [text for text, _ in found if text != EVERYTHING]
    return f"({' '.join(texts)})" if texts else EVERYTHING, all(whole for _, whole in found)


def _known(part: Part, labels: Labels) -> Condition:
    """Write the condition of a part; the index decides only equality."""
    sign, operand, paths = part
    if sign in {"$eq", "$in"}:
        values = operand if sign == "$in" else [operand]
        # what is missing is None, too
        named: list[Any] = [None if one is None else labels(names, one) for names in paths for one in values]
        return _UNKNOWN if None in named else (f"@labels:{{{'|'.join(chain(*named)) or 'none'}}}", len(paths) == 1)
    if sign not in _LOGIC:
        return _UNKNOWN
    found = [_condition(parts, labels) for parts in operand]
    if (EVERYTHING, True) in found:
        return EVERYTHING if sign == "$or" else NOTHING, True
    text, is_whole = f"({' | '.join(text for text, _ in found)})", all(whole for _, whole in found)
    if any(text == EVERYTHING for text, _ in found) or (sign == "$not" and not is_whole):
        return _UNKNOWN
    return text if sign == "$or" else f"(-{text})", is_whole
