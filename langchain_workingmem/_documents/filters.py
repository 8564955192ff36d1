"""Filters over JSON documents: metadata, and the values of store items. What they mean, and what an index can decide of them.

They mean what they mean in LangGraph's InMemoryStore: Python's equality (1 == 1.0 == True), a dict without operators matches every
dict that has at least its pairs, a list is compared as a whole, a missing key is None. Two values without an order, such as None
and 3, do not match, where that store raises. Only `$exists` tells a missing key from None.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from numbers import Number
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from langchain_workingmem._text.nesting import json_leaves, shown
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

Names: TypeAlias = tuple[str, ...]  # of a key, and of keys within its value
# A condition of a query that all documents meet that pass, and whether only they do.
Condition: TypeAlias = tuple[str, bool]
# Returns the labels of which a document has one if its value at these names equals this one, None where labels do not tell.
Labels: TypeAlias = "Callable[[Names, Any], Sequence[str] | None]"

EVERYTHING, NOTHING = "*", "@labels:{none}"  # no label is "none"
_UNKNOWN: Condition = (EVERYTHING, False)
_LOGIC = ("$and", "$or", "$not")
_ORDER: dict[str, Any] = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}
_OPERATORS = ("$eq", "$ne", "$in", "$nin", *_ORDER, "$exists", "$not")
_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Filter:
    """A checked filter."""

    wanted: Mapping[str, Any]

    @classmethod
    def of(
        cls, wanted: Mapping[str, Any] | None, name: str = "filter", check: Callable[[Any, str], object] | None = None
    ) -> Self:
        """Check a filter; `OptionError` for an unknown operator, a wrong operand, and a value that no document can have.

        `check` is called with what is asked of each key, and the key.
        """
        wanted = {} if wanted is None else wanted
        if not isinstance(wanted, Mapping):
            raise OptionError(
                f"{name}={shown(wanted)}", remedy="use a dict, such as {'color': 'red', 'score': {'$gt': 3}}"
            )
        try:
            if no_text := [key for key in wanted if not isinstance(key, str)]:
                msg = f"key {shown(no_text[0])} is no str"
                raise ValueError(msg)
            for leaf in chain.from_iterable(map(json_leaves, wanted.values())):
                if not isinstance(leaf, str | Number | None):
                    msg = f"it holds a {type(leaf).__name__}, which is not JSON"
                    raise ValueError(msg)  # noqa: TRY004 - becomes an OptionError, as the others do
        except ValueError as error:
            remedy = "use strings, numbers, booleans, None, lists and dicts with str keys"
            raise OptionError(f"{name} cannot match, {error}", remedy=remedy) from error
        _check(wanted, name, check)
        return cls(wanted)

    @property
    def keys(self) -> set[str]:
        """Return the keys that it names."""
        return {*_keys(self.wanted)}

    def conjuncts(self) -> Iterator[tuple[str, Any]]:
        """Yield the conditions that all have to be met, as key and condition; their order stays."""
        return _conjuncts(self.wanted)

    def matches(self, value: Mapping[str, Any]) -> bool:
        """Tell whether a document passes; a key with dots is a path unless the document has that key."""
        return _passes(value, self.wanted)

    def apart(self, keys: Collection[str]) -> tuple[Filter, Filter]:
        """Return the conditions that name only these keys, and the others; both have to be met."""
        own: list[dict[str, Any]] = []
        others: list[dict[str, Any]] = []
        for key, part in self.conjuncts():
            names = [*_keys({key: part})]
            is_own = bool(names) and all(is_named(one, keys) for one in names)
            (own if is_own else others).append({key: part})
        return Filter({"$and": own} if own else {}), Filter({"$and": others} if others else {})

    def condition(self, labels: Labels) -> Condition:
        """Write what an index of labels can decide as a condition of a query."""
        return _compiled(self.wanted, labels)


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


def is_equality(key: str, wanted: Any) -> bool:
    """Tell whether a condition on a key compares values only, which any index of labels decides."""
    return not _is_sign(key) and _is_plain(
        wanted["$eq"] if isinstance(wanted, Mapping) and [*wanted] == ["$eq"] else wanted
    )


def _is_plain(wanted: Any) -> bool:
    """Tell whether a value holds no operator."""
    if isinstance(wanted, Mapping):
        return not _has_operators(wanted) and all(map(_is_plain, wanted.values()))
    return not _is_list(wanted) or all(map(_is_plain, wanted))


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _has_operators(wanted: Mapping[str, Any]) -> bool:
    return any(map(_is_sign, wanted))


def _is_sign(key: str) -> bool:
    return key.startswith("$")


# ---------------------------------------------------------------------- checks


def _check(wanted: Mapping[str, Any], name: str, check: Callable[[Any, str], object] | None) -> None:
    for key, part in wanted.items():
        if key in _LOGIC:
            some = [part] if key == "$not" else part
            is_right = _is_list(some) and some and all(isinstance(one, Mapping) for one in some)
            want = "a filter" if key == "$not" else "a list of filters, with one at least"
            _require(bool(is_right and (part or key != "$not")), f"{name}: {key}", part, f"use {want}")
            for one in some:
                _check(one, name, check)
        elif _is_sign(key):
            raise _unknown(name, key, _LOGIC if key not in _OPERATORS else (f"{{'key': {{{key!r}: ...}}}}",))
        else:
            if check:
                check(part, key)
            _check_value(part, f"{name} for {shown(key)}")


def _check_value(wanted: Any, where: str) -> None:
    if not isinstance(wanted, Mapping) or not _has_operators(wanted):
        for part in wanted.values() if isinstance(wanted, Mapping) else wanted if _is_list(wanted) else ():
            _check_value(part, where)
        return
    for sign, operand in wanted.items():
        if sign not in _OPERATORS:
            raise _unknown(where, sign, _OPERATORS)
        if sign in {"$in", "$nin"}:
            _require(_is_list(operand), f"{where}: {sign}", operand, "use a list of values")
        elif sign == "$exists":
            _require(isinstance(operand, bool), f"{where}: {sign}", operand, "use True or False")
        elif sign in _ORDER:
            _require(isinstance(operand, str | Number), f"{where}: {sign}", operand, "use a number or a text")
        elif sign == "$not":
            is_condition = isinstance(operand, Mapping) and _has_operators(operand)
            _require(is_condition, f"{where}: {sign}", operand, "use operators, such as {'$gt': 3}")
            _check_value(operand, where)


def _require(holds: bool, seen: str, operand: Any, remedy: str) -> None:  # noqa: FBT001 - a check
    if not holds:
        raise OptionError(f"{seen} of {shown(operand)}", remedy=remedy)


def _unknown(where: str, sign: str, known: Sequence[str]) -> OptionError:
    return OptionError(f"{where}: unknown operator {shown(sign)} here", remedy=f"use one of {', '.join(known)}")


# ---------------------------------------------------------------------- what they name


def _keys(wanted: Mapping[str, Any]) -> Iterator[str]:
    for key, part in wanted.items():
        if key in _LOGIC:
            yield from chain.from_iterable(map(_keys, [part] if key == "$not" else part))
        else:
            yield key


def _conjuncts(wanted: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, part in wanted.items():
        if key == "$and":
            yield from chain.from_iterable(map(_conjuncts, part))
        else:
            yield key, part


# ---------------------------------------------------------------------- documents


def _passes(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(_meets(value, key, part) for key, part in wanted.items())


def _meets(value: Mapping[str, Any], key: str, part: Any) -> bool:
    if key == "$and":
        return all(_passes(value, one) for one in part)
    if key == "$or":
        return any(_passes(value, one) for one in part)
    if key == "$not":
        return not _passes(value, part)
    found: Any = value
    for name in [key] if key in value else key.split("."):
        found = found.get(name, _MISSING) if isinstance(found, Mapping) else _MISSING
    return _matches(found, part)


def _matches(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if _has_operators(wanted):
            return all(_compares(value, name, operand) for name, operand in wanted.items())
        return isinstance(value, Mapping) and all(
            _matches(value.get(key, _MISSING), one) for key, one in wanted.items()
        )
    if _is_list(wanted):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_matches, value, wanted))
    return bool((None if value is _MISSING else value) == wanted)


def _compares(value: Any, sign: str, operand: Any) -> bool:
    if sign == "$exists":
        return (value is not _MISSING) is operand
    if sign == "$not":
        return not _matches(value, operand)
    value = None if value is _MISSING else value
    if sign in {"$in", "$nin"}:
        return any(_equals(value, one) for one in operand) is (sign == "$in")
    if sign in {"$eq", "$ne"}:
        return _equals(value, operand) is (sign == "$eq")
    numbers = _number(value), _number(operand)
    if None not in numbers:
        return bool(_ORDER[sign](*numbers))
    return isinstance(value, str) and isinstance(operand, str) and bool(_ORDER[sign](value, operand))


def _equals(value: Any, operand: Any) -> bool:
    return bool(value == (list(operand) if isinstance(operand, tuple) else operand))


def _number(value: Any) -> float | None:
    """Return a number, also one in a string, as LangGraph does."""
    if isinstance(value, int | float):
        return value
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None


# ---------------------------------------------------------------------- conditions of a query


def _compiled(wanted: Mapping[str, Any], labels: Labels, names: Names = ()) -> Condition:
    return _all(_part(key, one, labels, names) for key, one in wanted.items())


def _part(key: str, wanted: Any, labels: Labels, names: Names) -> Condition:
    """Write the condition of a key, or of an operator at these names; the index decides only equality."""
    if key == "$not":
        return _not(_compiled(wanted, labels, names))
    if key in {"$and", "$or"}:
        below = [_compiled(one, labels) for one in wanted]
        return _all(below) if key == "$and" else _any(below)
    if key in {"$eq", "$ne", "$in", "$nin"}:
        found = _any(_equality(names, one, labels) for one in (wanted if key in {"$in", "$nin"} else [wanted]))
        return _not(found) if key in {"$ne", "$nin"} else found
    if _is_sign(key):
        return _UNKNOWN
    found = _value((*names, key), wanted, labels)
    if names or "." not in key:
        return found
    return _any([found, _value((*key.split("."),), wanted, labels)])[0], False  # such a key is a name or a path


def _value(names: Names, wanted: Any, labels: Labels) -> Condition:
    if not isinstance(wanted, Mapping):
        return _equality(names, wanted, labels)
    text, whole = _compiled(wanted, labels, names)
    # a label of a value inside says that this one is a dict; an operator does not
    return text, whole and (_has_operators(wanted) or (bool(wanted) and _is_plain(wanted)))


def _equality(names: Names, value: Any, labels: Labels) -> Condition:
    found = None if value is None else labels(names, value)  # what is missing is None, too
    return _UNKNOWN if found is None else (f"@labels:{{{'|'.join(found)}}}", True)


def _all(parts: Iterable[Condition]) -> Condition:
    found = [*parts]
    texts = [text for text, _ in found if text != EVERYTHING]
    # one flat intersection: a thousand levels of brackets exceed what Search reads
    text = texts[0] if len(texts) == 1 else f"({' '.join(texts)})" if texts else EVERYTHING
    return text, all(whole for _, whole in found)


def _any(parts: Iterable[Condition]) -> Condition:
    found = [*parts]
    if any(text == EVERYTHING for text, _ in found):
        return EVERYTHING, any(whole for text, whole in found if text == EVERYTHING)
    texts = [text for text, _ in found]
    text = texts[0] if len(texts) == 1 else f"({' | '.join(texts)})" if texts else NOTHING
    return text, all(whole for _, whole in found)


def _not(part: Condition) -> Condition:
    text, whole = part
    if not whole:
        return _UNKNOWN
    return (NOTHING if text == EVERYTHING else EVERYTHING if text == NOTHING else f"(-{text})"), True
