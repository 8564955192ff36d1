"""What one operation of a keeper means for a document, and why it may be refused. Pure functions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from langchain_workingmem._documents.merging import is_same
from langchain_workingmem._text.nesting import MAX_DEPTH, check_nesting
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.keeping.fields import flatten
from langchain_workingmem.keeping.paths import above, join, name_of, names_of, with_above
from langchain_workingmem.keeping.shapes import shape_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langchain_workingmem._documents.formats import JsonFormat, TextFormat
    from langchain_workingmem.keeping.shapes import Shape

LONGEST = 4_000  # characters of a path
_FORBIDDEN = {"__proto__"}  # means something else to a page that shows the document

Reason: TypeAlias = Literal[
    "operation",  # it is none
    "messages",  # it cites none, or others than those that were given
    "author",  # all that it cites are of authors who are not trusted
    "path",  # the schema does not have it
    "value",  # the schema does not take it, or it is no JSON
    "find",  # the text does not have it exactly once
    "size",  # the document would be too large
    "more",  # the answer has too many operations
]
Change: TypeAlias = tuple[str, Any, bool]  # path, value, whether it is set


class Refused(Exception):  # noqa: N818 - no error: the operation is left out
    """An operation does not hold."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


# ---------------------------------------------------------------------- lines


def edited(form: TextFormat, text: str, operation: Mapping[str, Any]) -> str:
    """Return a text after an operation of `find` and `replace`."""
    find, replace = operation.get("find"), operation.get("replace")
    if not isinstance(find, str) or not isinstance(replace, str):
        raise Refused("operation")
    if not is_utf8(replace):
        raise Refused("value")
    if not find and not form.template.strip():  # free text begins with nothing that could be found
        lines = text.split("\n") if text.strip() else []
        return "\n".join([*lines, *(one for one in replace.split("\n") if one not in lines)])
    try:
        return form.edit(text, [(find, replace)], erases=True)  # the last value may be taken back
    except WorkingMemoryValidationError as error:
        raise Refused("find") from error


# ---------------------------------------------------------------------- fields


def changed(form: JsonFormat, held: Mapping[str, Any], operation: Mapping[str, Any]) -> list[Change]:
    """Return what an operation of `op`, `path` and `value` changes; `held` has the values of the document by path."""
    op, path = operation.get("op"), operation.get("path")
    if op not in {"set", "add", "remove"} or not isinstance(path, str):
        raise Refused("operation")
    value = operation.get("value")
    if op != "remove" and "value" not in operation:
        raise Refused("operation")
    _check_value(value)
    target = _Target(shape_of(form), path, held)
    if op == "remove" or value is None:
        return target.remove(value)
    return target.put(form, value, is_whole=op == "set")


def _check_value(value: Any) -> None:
    try:
        check_nesting(value)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Refused("value") from error
    if not is_utf8(text) or any(f'"{name}":' in text for name in _FORBIDDEN):
        raise Refused("value")


class _Target:
    """Where a path leads, by the schema."""

    def __init__(self, shape: Shape, path: str, held: Mapping[str, Any]) -> None:
        # counted before it is split: a path of 10,000 levels is not taken apart
        if not path.startswith("/") or len(path) > LONGEST or path.count("/") > MAX_DEPTH or not is_utf8(path):
            raise Refused("path")
        names = names_of(path)
        self.held = held
        self.shapes = [shape]
        self.names: list[str] = []
        for name in names:
            if name in _FORBIDDEN or not shape.has(name):
                raise Refused("path")
            if name == "-" and shape.is_list and len(self.names) + 1 == len(names):
                break  # the end of a list
            named = name if shape.kind == "other" else name_of(name)
            self.names.append(named)
            shape = shape.field(named)
            self.shapes.append(shape)
        self._check_items()

    def _check_items(self) -> None:
        """Refuse what leads below an item that its value names, and the index of an item that has a name."""
        for at, (shape, name) in enumerate(zip(self.shapes, self.names, strict=False)):
            if shape.kind == "valued" and at + 1 < len(self.names):
                raise Refused("path")
            if (
                shape.kind != "other"
                and name.isdigit()
                and not _item_name(shape).may_be("integer", "number")
                and not self._is_held(at + 1)
            ):
                raise Refused("path")

    def _is_held(self, length: int) -> bool:
        path = _path(self.names[:length])
        return any(one == path or one.startswith(f"{path}/") for one in self.held)

    @property
    def path(self) -> str:
        return _path(self.names)

    def remove(self, value: Any) -> list[Change]:
        """Remove the value here; of a list, the items that `value` names."""
        shape = self.shapes[-1]
        if not self.names:
            raise Refused("path")
        if value is not None and shape.kind != "other":
            return [(join(self.path, _name_in(shape, one)), None, False) for one in _listed(value)]
        whole = self.held.get(self.path)
        if value is not None and isinstance(whole, list):
            left = [one for one in whole if not any(is_same(one, other) for other in _listed(value))]
            return [(self.path, left, True)] if len(left) < len(whole) else []
        over = self.shapes[-3] if len(self.names) > 1 else None
        if over is not None and over.kind == "keyed" and self.names[-1] == over.key:
            return [(_path(self.names[:-1]), None, False)]  # an item without its name is none
        return [(self.path, None, False)]

    def put(self, form: JsonFormat, value: Any, *, is_whole: bool) -> list[Change]:
        """Set the value here; with `is_whole` nothing else stays below it, else an object is merged and a list grows."""
        if len(self.names) > 1 and self.shapes[-2].kind == "valued":  # an item becomes another one
            old = [] if name_of(value) == self.names[-1] else [(self.path, None, False)]
            del self.names[-1], self.shapes[-1]
            return old + self.put(form, value, is_whole=False)
        shape, path = self.shapes[-1], self.path
        if not is_whole and shape.is_list:
            whole = self.held.get(path)
            is_whole = shape.kind == "other" or bool(whole)
            value = self._grown(whole if is_whole and isinstance(whole, list) else [], _listed(value))
        try:
            found = flatten(form.schema.patch(self._nested(value)), shape_of(form), "")
        except WorkingMemoryValidationError as error:
            raise Refused("value") from error
        if not any(one == path or one.startswith(f"{path}/") for one in found):
            raise Refused("path")  # the schema ignores it
        if not is_whole and path in found and shape.kind != "other":
            raise Refused("value")  # a list of it has no names
        old = [(path, None, False)] if is_whole and path not in found else []
        return [*old, *((one, part, True) for one, part in found.items())]

    def _grown(self, before: list[Any], more: Sequence[Any]) -> list[Any]:
        """Return a list with further items; what is there already is not added."""
        return [*{json.dumps(one, sort_keys=True): one for one in (*before, *more)}.values()]

    def _nested(self, value: Any) -> dict[str, Any]:
        """Return an update that holds nothing but this value."""
        for at in range(len(self.names) - 1, -1, -1):
            shape = self.shapes[at]
            if shape.kind != "keyed":
                value = {self.names[at]: value}
            elif isinstance(value, dict):
                value = [{shape.key: self._key(at), **value}]
            else:
                raise Refused("value")
        found: dict[str, Any] = value
        return found

    def _key(self, at: int) -> Any:
        """Return the value of the field that names an item."""
        shape = self.shapes[at]
        name = self.names[at]
        known = self.held.get(join(_path(self.names[: at + 1]), str(shape.key)))
        if known is not None or _item_name(shape).may_be("string"):
            return name if known is None else known
        try:
            return json.loads(name)
        except ValueError as error:
            raise Refused("path") from error


def _path(names: Iterable[str]) -> str:
    path = ""
    for name in names:
        path = join(path, name)
    return path


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _item_name(shape: Shape) -> Shape:
    """Return the shape of what names an item of a list."""
    return shape.item if shape.key is None else shape.item.field(shape.key)


def _name_in(shape: Shape, value: Any) -> str:
    """Return the name of an item of a list that is given as itself, or by its name."""
    if shape.kind == "keyed":
        value = value.get(shape.key) if isinstance(value, dict) else value
        if isinstance(value, dict | list) or value is None:
            raise Refused("value")
    return name_of(value)


def applied(form: JsonFormat, held: Mapping[str, Any], changes: Sequence[Change]) -> dict[str, Any]:
    """Return the values of a document by path after what is removed, and what is set after that."""
    ending = {path for path, _, _ in changes}
    new = {path: value for path, value, is_set in changes if is_set}
    over = with_above(new)
    found = {
        path: value
        for path, value in held.items()
        if path not in ending and path not in over and ending.isdisjoint(above(path))
    } | new
    left = with_above(found)
    for path, _, is_set in changes:
        around = next(above(path), "")
        if not is_set and around and around not in left:  # what has lost all is there without it
            found[around] = [] if _shape_at(form, around).kind != "other" else {}
    return found


def _shape_at(form: JsonFormat, path: str) -> Shape:
    shape = shape_of(form)
    for name in names_of(path):
        shape = shape.field(name)
    return shape
