"""Single items of lists in a JSON document: they are taken out by name, and added. Pure.

A name is a path of the values of a document, as in `/languages/Danish`, or the same with dots. An item is named by the field that the
schema marks as key, else by its value; an object also by any value that no other one in the list has, but not by a number that models
may mean as a position.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from langchain_workingmem._documents.merging import is_same, merge_patch, paths, shorten
from langchain_workingmem._documents.values.paths import name_of, names_of
from langchain_workingmem._documents.values.shapes import named_items
from langchain_workingmem.errors import WorkingMemoryValidationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from langchain_workingmem._documents.values.shapes import Shape

_HOLE: Final[Any] = object()  # in the place of an item that was taken out, until one is added
_MOST = 20  # items that a refusal names
_LONGEST = 4_000  # characters of a name with dots


class UnseenError(WorkingMemoryValidationError):
    """What would be replaced is not what the model was shown; the message tells what it is now."""


class _AbsentItemError(WorkingMemoryValidationError):
    """A list has no such item."""


def at_name(document: Any, name: str, shape: Shape) -> list[Any]:
    """Return the keys, and positions in lists, that a name leads through; empty where nothing is. Bad names of items are refused."""
    found = _walked(document, name, shape)
    if not found and name.startswith("/"):
        found = _walked(document, names_of(name), shape)
    return found


def without(document: dict[str, Any], names: Iterable[str], shape: Shape, seen: Any = None) -> dict[str, Any]:
    """Return a document without what the names lead to; `closed` takes out the addresses of the items.

    `seen` is an older version that a model was shown: an item that is gone since is no mistake, and one that was changed since is
    not taken out.
    """
    addresses = []
    for name in dict.fromkeys(names):
        before = _seen_item(seen, name, shape)
        try:
            keys = _found(document, name, shape)
        except _AbsentItemError:
            if before is None:
                raise
            continue
        now = _value_at(document, keys)
        if keys and before is not None and isinstance(keys[-1], int) and not is_same(before, now):
            remedy = "repeat the update for the item as it is now"
            raise UnseenError(
                f"{name} has changed since you read it, so nothing was changed. It is {_show(now)} now: {remedy}",
                remedy=remedy,
            )
        addresses.append(keys)
    for keys in addresses:
        document = _taken(document, keys)
    return document


def _found(document: dict[str, Any], name: str, shape: Shape) -> list[Any]:
    keys = at_name(document, name, shape)
    if not keys and name.startswith("/"):
        seen, remedy = f"nothing is stored under {shorten(name)!r}", "name what is there"
        fields = shorten(", ".join(paths(document)), 1_000)
        raise _AbsentItemError(f"{seen}, so nothing was changed: {remedy}. The fields: {fields}", remedy=remedy)
    return keys


def _seen_item(seen: Any, name: str, shape: Shape) -> Any:
    try:
        keys = at_name(seen, name, shape)
    except WorkingMemoryValidationError:
        return None
    return _value_at(seen, keys) if keys else None


def added(target: Any, patch: Any, shape: Shape) -> Any:
    """Merge a patch whose lists hold items to add: one whose key is there already changes that item."""
    if isinstance(patch, dict):
        before = target if isinstance(target, dict) else {}
        return before | {key: added(before.get(key), value, shape.field(key)) for key, value in patch.items()}
    if not isinstance(patch, list) or not isinstance(target, list):
        return patch
    items = [*target]
    known = {_identity(item, shape): at for at, item in enumerate(items) if item is not _HOLE}
    holes = (at for at, item in enumerate(target) if item is _HOLE)
    for new in patch:
        at = known.get(_identity(new, shape))
        if at is None:
            at = next(holes, len(items))
            items[at : at + 1] = [new]
            known[_identity(new, shape)] = at
        elif isinstance(new, dict):
            items[at] = added(items[at], _said(new), shape.item)
    return items


def _identity(item: Any, shape: Shape) -> str:
    """Return what is the same for the same item."""
    if shape.kind == "keyed" and isinstance(item, dict) and shape.key in item:
        item = [item[shape.key]]
    return json.dumps(item, sort_keys=True)


def _said(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item without the fields that a model fills with nothing."""
    return {key: value for key, value in item.items() if value not in (None, "", [], {})}


def closed(value: Any) -> Any:
    """Return a value without the addresses of items that were taken out."""
    if isinstance(value, dict):
        return {key: closed(item) for key, item in value.items()}
    return [closed(item) for item in value if item is not _HOLE] if isinstance(value, list) else value


# ---------------------------------------------------------------------- names


def _walked(value: Any, name: str | list[str], shape: Shape) -> list[Any]:
    """Walk along the names of a path, or along a text with dots, where names may hold dots themselves."""
    for first, rest in _split(value, name):
        if isinstance(value, list):
            at = _position(value, first, shape)
            key: Any = at
        elif isinstance(value, dict) and first in value:
            key = first
        else:
            continue
        if not rest:
            return [key]
        if below := _walked(value[key], rest, shape.field(first)):
            return [key, *below]
    return []


def _split(value: Any, name: str | list[str]) -> Iterator[tuple[str, str | list[str]]]:
    """Yield a first name, and the rest."""
    if isinstance(name, list):
        yield name[0], name[1:]
    elif isinstance(value, dict):
        yield name, ""
        yield from (
            (key, name[len(key) + 1 :]) for key in value if name.startswith(f"{key}.") and len(name) > len(key) + 1
        )
    elif isinstance(value, list):
        yield _longest(value, name)


def _longest(items: list[Any], name: str) -> tuple[str, str]:
    """Split a name with dots behind the longest part that any item has as a value."""
    if len(name) > _LONGEST:
        return name, ""
    known = {name_of(one) for item in items for one in _values(item)}
    for at in range(len(name), 0, -1):
        if (at == len(name) or name[at] == ".") and name[:at] in known:
            return name[:at], name[at + 1 :]
    return name, ""


def _values(item: Any) -> list[Any]:
    return (
        [item, *(one for one in item.values() if not isinstance(one, dict | list))]
        if isinstance(item, dict)
        else [item]
    )


def _position(items: list[Any], name: str, shape: Shape) -> int:
    names = [*named_items(items, shape)]
    if name in names:
        return names.index(name)
    fitting = [at for at, item in enumerate(items) if any(name_of(one) == name for one in _values(item))]
    meant = int(name) if name.isdecimal() and len(name) < 10 else len(items)
    is_unclear = meant < len(items) and fitting != [meant] and any(isinstance(items[at], dict) for at in fitting)
    if fitting and not is_unclear and all(is_same(items[at], items[fitting[0]]) for at in fitting):
        return fitting[0]
    shown = shorten(", ".join(map(_show, names or items[:_MOST])), 1_000)
    if is_unclear:
        seen, remedy = f"{name!r} may be a value or a position", "name the item by another value, or by all of it"
        raise WorkingMemoryValidationError(
            f"{seen}, so nothing was changed: {remedy}. The items: {shown}", remedy=remedy
        )
    if fitting:
        seen, remedy = f"{len(fitting)} items have the value {name!r}", "name one of them by a value that only it has"
        raise WorkingMemoryValidationError(
            f"{seen}, so nothing was changed: {remedy}. The items: {shown}", remedy=remedy
        )
    seen, remedy = f"there is no item {shorten(name)!r}", "name an item by its value, not by its position"
    items_are = f"The items: {shown}" if items else "The list is empty"
    raise _AbsentItemError(f"{seen}, so nothing was changed: {remedy}. {items_are}", remedy=remedy)


def _show(value: Any) -> str:
    return shorten(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _value_at(value: Any, keys: Iterable[Any]) -> Any:
    for key in keys:
        value = value[key]
    return value


def _taken(value: Any, keys: list[Any]) -> Any:
    if not keys or value is _HOLE:
        return value
    key, *rest = keys
    if isinstance(value, list):
        return [
            _taken(item, rest) if rest and at == key else _HOLE if at == key else item for at, item in enumerate(value)
        ]
    if rest:
        return {**value, key: _taken(value[key], rest)}
    return merge_patch(value, {key: None})


def names_lists(schema: Mapping[str, Any] | Any) -> bool:
    """Tell whether a schema names a list anywhere."""
    if isinstance(schema, Mapping):
        kinds = schema.get("type")
        return (
            kinds == "array" or (isinstance(kinds, list) and "array" in kinds) or any(map(names_lists, schema.values()))
        )
    return isinstance(schema, list) and any(map(names_lists, schema))
