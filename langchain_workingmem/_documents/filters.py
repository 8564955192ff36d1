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

from langchain_workingmem._text.nesting import MAX_DEPTH, json_leaves, shown
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

Names: TypeAlias = tuple[str, ...]  # of a key, and of keys within its value
# A condition of a query that all documents meet that pass, and whether only they do.
Condition: TypeAlias = tuple[str, bool]
# Returns the labels of which a document has one if its value at these names equals this one, None where labels do not tell.
Labels: TypeAlias = "Callable[[Names, Any], Sequence[str] | None]"
# Returns the label of a document that has these names, None where labels do not tell.
Presence: TypeAlias = "Callable[[Names], str | None]"

EVERYTHING, NOTHING = "*", "@labels:{none}"  # no label is "none"
_LOGIC = ("$and", "$or", "$not")
_ORDER: dict[str, Any] = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}
_OPERATORS = ("$eq", "$ne", "$in", "$nin", *_ORDER, "$exists", "$not")
# operators of other databases; any other name, also one that begins with $, is a key
_OTHERS = ("$nor", "$all", "$size", "$regex", "$contains", "$elemMatch", "$expr", "$where", "$text")
_EXAMPLE = "{'color': 'red', 'score': {'$gt': 3}}"
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

        `check` is called with each value that is compared, and its key.
        """
        wanted = {} if wanted is None else wanted
        if not isinstance(wanted, Mapping):
            raise OptionError(f"{name}={shown(wanted)}", remedy=f"use a dict, such as {_EXAMPLE}")
        _check(wanted, name, check or _check_json)
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
        own: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for key, part in self.conjuncts():
            names = [*_keys({key: part})]
            found = own if names and all(is_named(one, keys) for one in names) else others
            if key in found:
                found.setdefault("$and", []).append({key: part})
            else:
                found[key] = part
        return Filter(own), Filter(others)

    def condition(self, labels: Labels, presence: Presence = lambda _: None) -> Condition:
        """Write what an index of labels can decide as a condition of a query."""
        return _all(_top(key, part, labels, presence) for key, part in self.wanted.items())


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
    return key not in _LOGIC and _is_plain(
        wanted["$eq"] if isinstance(wanted, Mapping) and [*wanted] == ["$eq"] else wanted
    )


def _is_plain(wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return not _has_operators(wanted) and all(map(_is_plain, wanted.values()))
    return not _is_list(wanted) or all(map(_is_plain, wanted))


# ---------------------------------------------------------------------- checks


def _check_json(value: Any, key: str) -> None:
    try:
        for leaf in json_leaves(value):
            if not isinstance(leaf, str | Number | None):
                msg = f"it holds a {type(leaf).__name__}, which is not JSON"
                raise ValueError(msg)  # noqa: TRY004 - becomes an OptionError, as the others do
    except ValueError as error:
        raise _impossible("filter", f"for {shown(key)} {error}") from error


def _impossible(name: str, why: str) -> OptionError:
    remedy = "use strings, numbers, booleans, None, lists and dicts with str keys"
    return OptionError(f"{name} cannot match, {why}", remedy=remedy)


def _check(wanted: Mapping[str, Any], name: str, check: Callable[[Any, str], object], levels: int = 1) -> None:
    if levels > MAX_DEPTH:
        raise _impossible(name, f"it is nested deeper than {MAX_DEPTH} levels")
    for key, part in wanted.items():
        if not isinstance(key, str):
            raise _impossible(name, f"key {shown(key)} is no str")
        if key in {"$and", "$or"}:
            if not _is_list(part) or not part or not all(isinstance(one, Mapping) for one in part):
                raise OptionError(f"{name}: {key} of {shown(part)}", remedy="use a list of filters, with one at least")
            for one in part:
                _check(one, name, check, levels + 1)
        elif key == "$not":
            if not isinstance(part, Mapping) or not part:
                raise OptionError(f"{name}: {key} of {shown(part)}", remedy=f"use a filter, such as {_EXAMPLE}")
            _check(part, name, check, levels + 1)
        elif key in _OPERATORS or key in _OTHERS:
            raise _unknown(name, key, _LOGIC if key not in _OPERATORS else (f"{{'key': {{{key!r}: ...}}}}",))
        else:
            for operand in part.values() if isinstance(part, Mapping) and part and all(map(_is_sign, part)) else [part]:
                check(operand, key)
            _check_field((key,), part, name)


def _check_field(names: Names, wanted: Any, name: str) -> None:
    if not isinstance(wanted, Mapping) or not _has_operators(wanted):
        inner = wanted.items() if isinstance(wanted, Mapping) else enumerate(wanted) if _is_list(wanted) else ()
        for key, part in inner:
            _check_field((*names, str(key)), part, name)
        return
    where = f"{name} for {shown('.'.join(names))}"
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
            _check_field(names, operand, name)


def _require(holds: bool, seen: str, operand: Any, remedy: str) -> None:  # noqa: FBT001 - a check
    if not holds:
        raise OptionError(f"{seen} of {shown(operand)}", remedy=remedy)


def _unknown(where: str, sign: str, known: Sequence[str]) -> OptionError:
    return OptionError(f"{where}: unknown operator {shown(sign)} here", remedy=f"use one of {', '.join(known)}")


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _has_operators(wanted: Mapping[str, Any]) -> bool:
    return any(map(_is_sign, wanted))


def _is_sign(key: Any) -> bool:
    return isinstance(key, str) and key.startswith("$")


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
    for key, part in wanted.items():
        if key == "$and":
            passes = all(_passes(value, one) for one in part)
        elif key == "$or":
            passes = any(_passes(value, one) for one in part)
        elif key == "$not":
            passes = not _passes(value, part)
        else:
            passes = _matches(_at(value, key), part)
        if not passes:
            return False
    return True


def _at(value: Mapping[str, Any], key: str) -> Any:
    found: Any = value
    for part in [key] if key in value else key.split("."):
        found = found.get(part, _MISSING) if isinstance(found, Mapping) else _MISSING
    return found


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


def labelled(labels: Iterable[str]) -> str:
    """Write the condition that a document has one of these labels."""
    return f"@labels:{{{'|'.join(labels)}}}"


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
        return EVERYTHING, False
    return (NOTHING if text == EVERYTHING else EVERYTHING if text == NOTHING else f"(-{text})"), True


def _top(key: str, wanted: Any, labels: Labels, presence: Presence) -> Condition:
    if key in _LOGIC:
        below = [Filter(one).condition(labels, presence) for one in ([wanted] if key == "$not" else wanted)]
        return _all(below) if key == "$and" else _any(below) if key == "$or" else _not(below[0])
    found = _field((key,), wanted, labels, presence)
    if "." not in key:
        return found
    path = _field((*key.split("."),), wanted, labels, presence)  # such a key is either a name or a path
    return _any([found, path])[0], False


def _field(names: Names, wanted: Any, labels: Labels, presence: Presence) -> Condition:
    if not isinstance(wanted, Mapping):
        return _equality(names, wanted, labels, presence)
    present = _present(names, presence)[0], False
    if not _has_operators(wanted):
        inner = [_field((*names, key), one, labels, presence) for key, one in wanted.items()]
        text, whole = _all([(present[0], bool(inner)), *inner])
        # a label of a value inside says that this one is a dict; a negation does not
        return text, whole and not any(isinstance(one, Mapping) and _has_operators(one) for one in wanted.values())
    parts: list[Condition] = []
    for sign, operand in wanted.items():
        if sign in _ORDER:
            part = present
        elif sign == "$exists":
            part = _present(names, presence)
        elif sign == "$not":
            part = _field(names, operand, labels, presence)
        else:
            values = operand if sign in {"$in", "$nin"} else [operand]
            part = _any(_equality(names, one, labels, presence) for one in values)
        is_turned = sign in {"$ne", "$nin", "$not"} or (sign == "$exists" and not operand)
        parts.append(_not(part) if is_turned else part)
    return _all(parts)


def _present(names: Names, presence: Presence) -> Condition:
    label = presence(names)
    return (EVERYTHING, False) if label is None else (labelled([label]), True)


def _equality(names: Names, value: Any, labels: Labels, presence: Presence) -> Condition:
    found = labels(names, value)
    present = _present(names, presence)
    if value is None:  # what is missing is None, too
        return (EVERYTHING, False) if found is None else _any([_not(present), (labelled(found), True)])
    return (present[0], False) if found is None else (labelled(found), True)
