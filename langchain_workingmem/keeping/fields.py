"""The values of a JSON document: from a document to values by path, and back. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from langchain_workingmem._documents.merging import parse_json
from langchain_workingmem._documents.schemas import dump
from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.keeping.paths import digest, join, names_of
from langchain_workingmem.keeping.shapes import Shape, named_items, shape_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from langchain_workingmem._documents.formats import JsonFormat

_NOTHING: Final[Any] = object()


def read(form: JsonFormat, text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the values of a document by path, in its order, and the layout that stands for this order.

    What `dump` would write otherwise, such as a document of another format, is one value: the text, under the empty path.
    """
    found: dict[str, Any] = {}
    if text:
        document = parse_json(text)
        if not isinstance(document, dict) or not document or _dumped(document) != text:
            return {"": text}, ()
        _flatten(document, shape_of(form), "", found)
    return found, tuple(map(digest, found))


def _dumped(document: dict[str, Any]) -> str | None:
    try:
        return dump(document)
    except WorkingMemoryValidationError:
        return None


def _flatten(value: Any, shape: Shape, path: str, found: dict[str, Any]) -> None:
    items = named_items(value, shape)
    if items:
        for name, item in items.items():
            _flatten(item, shape.field(name), join(path, name), found)
    else:
        found[path] = value


def flatten(value: Any, shape: Shape, path: str) -> dict[str, Any]:
    """Return what a value holds by path, itself where it has nothing inside that has a path."""
    found: dict[str, Any] = {}
    _flatten(value, shape, path, found)
    return found


def write(
    form: JsonFormat, values: Mapping[str, Any], layout: tuple[str, ...], emptied: Iterable[str] = ()
) -> tuple[str, list[str]]:
    """Return the document with these values, and their paths in its order.

    Without a layout, fields have the order of the schema, and all else that of `values`; with one, what it does not know comes
    last. `emptied` names what a list or an object has lost: it is there without it.
    """
    if "" in values:
        return values[""], [""]
    shape = shape_of(form)
    ordered: Iterable[str] = values
    if layout:
        positions = {one: at for at, one in enumerate(layout)}
        ordered = sorted(values, key=lambda path: positions.get(digest(path), len(positions)))
    tree: dict[str, Any] = {}
    for path in ordered:
        _put(tree, path, _Leaf(path, values[path]))
    for path in emptied:
        _put(tree, path, None)
    paths: list[str] = []
    document = _built(tree, shape, paths, is_sorted=not layout)
    return dump(document) if document else "", paths


class _Leaf:
    __slots__ = ("path", "value")

    def __init__(self, path: str, value: Any) -> None:
        self.path, self.value = path, value


def _put(tree: dict[str, Any], path: str, leaf: _Leaf | None) -> None:
    *names, last = names_of(path)
    for name in names:
        tree = tree.setdefault(name, {})
        if isinstance(tree, _Leaf):
            return  # a value holds here, and what it has lost is no part of it
    if leaf:
        tree[last] = leaf


def _built(tree: Any, shape: Shape, paths: list[str], *, is_sorted: bool) -> Any:
    """Make the document of a tree; `_NOTHING` for an item of which nothing is left."""
    if isinstance(tree, _Leaf):
        paths.append(tree.path)
        return tree.value
    kind = shape.kind
    names: Iterable[str] = tree
    if is_sorted and kind == "other" and shape.order:
        last = len(shape.order)
        names = sorted(tree, key=lambda name: shape.order.get(name, last))
    found: dict[str, Any] = {}
    for name in names:
        below = tree[name]
        if below == {} and kind != "other":
            continue
        item = _built(below, shape.field(name), paths, is_sorted=is_sorted)
        if kind == "keyed" and isinstance(item, dict) and shape.key is not None and shape.key not in item:
            item = {shape.key: name, **item}
        found[name] = item
    return found if kind == "other" else [*found.values()]
