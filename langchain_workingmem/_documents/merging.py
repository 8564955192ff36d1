"""Merges of JSON and of text, and what other modules need to read and show such documents. Pure."""

from __future__ import annotations

import json
from functools import reduce
from typing import TYPE_CHECKING, Any

from langchain_workingmem._text.nesting import check_depth
from langchain_workingmem._text.unicode import to_utf8

if TYPE_CHECKING:
    from collections.abc import Iterable


def parse_json(text: str) -> Any:
    """Return what a JSON text holds; None when it is not JSON, or nested too deep."""
    try:
        return json.loads(check_depth(text))
    except ValueError:
        return None


def pretty(text: str) -> str:
    """Write a JSON object or array over several lines; any other text stays as it is."""
    found = parse_json(text) if text.lstrip().startswith(("{", "[")) else None
    return text if found is None else to_utf8(json.dumps(found, ensure_ascii=False, indent=2))


def shorten(text: str, width: int = 200) -> str:
    """Cut a long text for a message."""
    return text if len(text) <= width else f"{text[: width - 4]} ..."


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396): objects merge deeply, null deletes, all else is replaced."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def patch_between(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the merge patch that makes one document of another."""
    found: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            if below := patch_between(old, value):
                found[key] = below
        elif key not in before or not is_same(old, value):
            found[key] = value
    return found


def without_padding(patch: dict[str, Any]) -> dict[str, Any]:
    """Remove what a model fills a form with: null, empty texts, lists and objects; inside of lists only null of a field."""
    lean = {key: without_padding(value) if isinstance(value, dict) else value for key, value in patch.items()}
    return {key: _without_null(value) for key, value in lean.items() if value not in (None, "", [], {})}


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    return [_without_null(item) for item in value] if isinstance(value, list) else value


def append_patch(target: Any, patch: Any) -> Any:
    """Append: objects merge deeply, arrays grow without repetitions, all else is replaced.

    Items are compared as JSON, and the first of equal ones stays. Appending the same patch again changes nothing.
    """
    if isinstance(patch, dict):
        before = target if isinstance(target, dict) else {}
        return before | {key: append_patch(before.get(key), value) for key, value in patch.items()}
    if isinstance(patch, list):
        items = [*target, *patch] if isinstance(target, list) else patch
        return list({json.dumps(item, sort_keys=True): item for item in items}.values())
    return patch


def append_text(target: str, addition: str) -> str:
    """Append a block of text after a blank line, unless the target has it already as whole lines."""
    block = addition.strip("\n")
    if not target.strip():
        return block
    if f"\n{block}\n" in f"\n{target}\n":
        return target
    return f"{target.rstrip()}\n\n{block}"


def is_same(one: Any, other: Any) -> bool:
    """Compare two JSON values in any order of keys; true and 1 differ, unlike in Python."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def count_leaves(document: object, *, null: bool = True) -> int:
    """Count the values in a document, arrays as one; with null=False those that are not null."""
    if isinstance(document, dict):
        return sum(count_leaves(value, null=null) for value in document.values())
    return int(null or document is not None)


def paths(document: Any, parents: str = "") -> list[str]:
    """List the dotted names of all values in an object, nested objects included."""
    found = []
    for key, value in document.items() if isinstance(document, dict) else ():
        found += [f"{parents}{key}", *paths(value, f"{parents}{key}.")]
    return found


def at_path(document: Any, name: str) -> list[str]:
    """Return the keys that a dotted name stands for; keys may hold dots. Empty when there is no such value."""
    if not isinstance(document, dict):
        return []
    if name in document:
        return [name]
    for key, value in document.items():
        if name.startswith(f"{key}.") and (below := at_path(value, name[len(key) + 1 :])):
            return [key, *below]
    return []


def without_paths(document: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the document without the values under dotted names; unknown names are ignored."""
    for name in names:
        if keys := at_path(document, name):
            nothing: Any = None
            document = merge_patch(document, reduce(lambda below, key: {key: below}, reversed(keys), nothing))
    return document
