"""A working memory as values by path, and back: pure functions.

Of a schema a path is a JSON Pointer; an item of a list has its text as the last part. Of a template it is the name of a field, as in
/Location; of any other line, the line.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._text.values import parse_json
from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.working_memory.document import JsonFormat
from langchain_workingmem.working_memory.schema import dump

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from langchain_workingmem.working_memory.document import Format, TextFormat

_FIELD = re.compile(r"^(\s*(?:[-*+]\s+)?(?:\*\*|__)?([^:*\n]{1,80}?)(?:\*\*|__)?\s*:(?:\*\*|__)?[ \t]*)(.*)$")


class Leaf(NamedTuple):
    """A value of a document."""

    value: Any
    is_item: bool = False  # of a list


def path_part(text: str) -> str:
    """Write a part of a path."""
    return text.replace("~", "~0").replace("/", "~1")


def path_parts(path: str) -> list[str]:
    """Return the parts of a path."""
    return [token.replace("~1", "/").replace("~0", "~") for token in path.split("/")[1:]]


def item_name(item: Any) -> str:
    """Return the last part of the path of an item of a list."""
    return item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, sort_keys=True)


# ---------------------------------------------------------------------- reading


def leaves(form: Format, text: str) -> dict[str, Leaf]:
    """Return all values of a document."""
    if not isinstance(form, JsonFormat):
        return {path: Leaf(value, path == f"/{path_part(value)}") for path, value in _lines(form, text)}
    document = parse_json(text) if text else {}
    return dict(_json_leaves(document, "")) if isinstance(document, dict) else {}


def _json_leaves(value: Any, path: str) -> Iterable[tuple[str, Leaf]]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _json_leaves(child, f"{path}/{path_part(key)}")
    elif isinstance(value, list):
        yield from ((f"{path}/{path_part(item_name(item))}", Leaf(item, is_item=True)) for item in value)
    elif value is not None:
        yield path, Leaf(value)


def _lines(form: TextFormat, text: str) -> Iterable[tuple[str, str]]:
    names = _fields(form)
    template = {line.strip() for line in form.template.splitlines()}
    for line in text.splitlines():
        field = _FIELD.match(line)
        if field and field[2].strip() in names:
            if field[3].strip():
                yield f"/{path_part(field[2].strip())}", field[3].strip()
        elif line.strip() and line.strip() not in template:
            yield f"/{path_part(line.strip())}", line.strip()


def _fields(form: TextFormat) -> dict[str, str]:
    """Return the fields of a template: name and line."""
    matches = ((_FIELD.match(line), line) for line in form.template.splitlines())
    return {field[2].strip(): line for field, line in matches if field}


def emptied_field(form: TextFormat, find: str, replace: str) -> list[str]:
    """Return the path of a field of a template whose line an edit leaves empty."""
    field, names = _FIELD.match(replace.strip()), _fields(form)
    is_empty = field and field[2].strip() in names and not field[3].strip() and find.strip() == replace.strip()
    return [f"/{path_part(field[2].strip())}"] if field and is_empty else []


def differences(before: Mapping[str, Leaf], after: Mapping[str, Leaf]) -> dict[str, Leaf]:
    """Return what is different: a value None for what is gone."""
    changed = {path: leaf for path, leaf in after.items() if before.get(path) != leaf}
    return changed | {path: Leaf(None, leaf.is_item) for path, leaf in before.items() if path not in after}


# ---------------------------------------------------------------------- writing


def is_field(form: JsonFormat, name: str) -> bool:
    """Tell whether the schema has a field."""
    return bool(form.schema.patch({name: 0}))


def written(form: JsonFormat, document: dict[str, Any]) -> str:
    """Return a document as text. Fields that the schema has no more stay, as with every update."""
    unknown = {name: value for name, value in document.items() if not is_field(form, name)}
    known = {name: value for name, value in document.items() if name not in unknown}
    text = form.apply("", known, "replace") if known else ""
    return form.apply(dump(unknown), known, "merge") if unknown else text


def with_values(form: Format, text: str, changes: Mapping[str, Leaf]) -> str:
    """Return the document with these values, None for those that go; a value that does not fit is left out."""
    if not isinstance(form, JsonFormat):
        return _changed_lines(form, text, changes)
    document = parse_json(text) if text else {}
    if not isinstance(document, dict):
        return text
    removed = [path_parts(path) for path, leaf in changes.items() if leaf.value is None]
    for names in removed:
        remove_at(document, names)
    text = _stored(form, document, [names[0] for names in removed]) if removed else text
    new = {path: leaf for path, leaf in changes.items() if leaf.value is not None}
    new = {path: leaf for path, leaf in new.items() if is_field(form, path_parts(path)[0])}
    trial = parse_json(text) if text else {}
    try:  # all at once, as nearly always
        for path, leaf in new.items():
            set_at(trial, path_parts(path), leaf)
        return written(form, trial)
    except WorkingMemoryValidationError:
        pass
    for path, leaf in new.items():
        with suppress(WorkingMemoryValidationError):
            trial = parse_json(text) if text else {}
            set_at(trial, path_parts(path), leaf)
            text = written(form, trial)
    return text


def _stored(form: JsonFormat, document: dict[str, Any], touched: list[str]) -> str:
    """Write a document from which values were taken; of the `touched` fields, then of all, what does not fit without them goes, too."""
    keys = [key for key in dict.fromkeys([*touched, *reversed(document)]) if key in document]
    while True:
        try:
            return written(form, document)
        except WorkingMemoryValidationError:
            document.pop(keys.pop(0))


def set_at(document: dict[str, Any], names: list[str], leaf: Leaf) -> None:
    """Set a value at a path, or add an item to a list; `WorkingMemoryValidationError` where another value is in the way."""
    inner: Any = document
    for name in names[: -2 if leaf.is_item else -1]:
        inner = inner.setdefault(name, {}) if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or len(names) < 1 + leaf.is_item:
        raise WorkingMemoryValidationError("no object is there", remedy="name a field of the schema")
    if not leaf.is_item:
        inner[names[-1]] = leaf.value
        return
    items = inner.setdefault(names[-2], [])
    if not isinstance(items, list):
        raise WorkingMemoryValidationError("no list is there", remedy="name a list")
    if leaf.value not in items:
        items.append(leaf.value)


def remove_at(document: Any, names: list[str]) -> bool:
    """Take a value, or an item of a list, out of a document, with what is empty then; return whether it was there."""
    name = names[0]
    if isinstance(document, list):
        index = next((index for index, item in enumerate(document) if item_name(item) == name), None)
        if index is None or len(names) > 1:
            return False
        del document[index]
        return True
    if not isinstance(document, dict) or name not in document:
        return False
    if len(names) == 1:
        del document[name]
        return True
    inner = document[name]
    removed = remove_at(inner, names[1:])
    if removed and inner in ({}, []):
        del document[name]
    return removed


def _changed_lines(form: TextFormat, text: str, changes: Mapping[str, Leaf]) -> str:
    fields, remaining = _fields(form), dict(changes)
    lines: list[str] = []
    for line in (text if text.strip() else form.template).splitlines():
        field = _FIELD.match(line)
        name = field[2].strip() if field else ""
        path = f"/{path_part(name)}" if name in fields else f"/{path_part(line.strip())}"
        leaf = changes.get(path)
        is_first = remaining.pop(path, None) is not None
        if leaf is None:
            lines.append(line)
        elif field and name in fields:  # a field that stands twice is empty the second time
            value = leaf.value if is_first else None
            lines.append(fields[name] if value is None else f"{field[1].rstrip()} {value}")
        elif leaf.value is not None:
            lines.append(line)
    for path, leaf in remaining.items():
        if leaf.value is not None:
            name = path_parts(path)[0]
            lines.append(f"{fields[name].rstrip()} {leaf.value}" if name in fields else str(leaf.value))
    changed = "\n".join(lines) + ("\n" if (text if text.strip() else form.template).endswith("\n") else "")
    return "" if form.is_empty(changed) else changed
