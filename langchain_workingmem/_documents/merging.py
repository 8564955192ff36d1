"""Pure merges of working memory: JSON by patch, JSON by appending, and text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


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


def append_patch(target: Any, patch: Any) -> Any:
    """Append: objects merge deeply, arrays become one without repetitions, all else is replaced.

    Repetitions are compared as JSON, so objects count as well; the first one keeps its place. Appending the same patch
    again changes nothing.
    """
    if isinstance(patch, dict):
        before = target if isinstance(target, dict) else {}
        return before | {key: append_patch(before.get(key), value) for key, value in patch.items()}
    if isinstance(patch, list):
        items = [*target, *patch] if isinstance(target, list) else patch
        return list({json.dumps(item, sort_keys=True): item for item in items}.values())
    return patch


def append_text(target: str, addition: str) -> str:
    """Append a block of text after a blank line, unless it stands there already as whole lines."""
    block = addition.strip("\n")
    if not target.strip():
        return block
    if f"\n{block}\n" in f"\n{target}\n":
        return target
    return f"{target.rstrip()}\n\n{block}"


def is_same(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are the same in any order of keys; true is not 1, as it is in Python."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def count_leaves(document: object, *, null: bool = True) -> int:
    """Count the values in a document, arrays as one; with null=False those that are not null."""
    if isinstance(document, dict):
        return sum(count_leaves(value, null=null) for value in document.values())
    return int(null or document is not None)


def paths(document: Any, parents: str = "") -> list[str]:
    """List the dotted names of all that stands in an object, the objects in it included."""
    found = []
    for key, value in document.items() if isinstance(document, dict) else ():
        found += [f"{parents}{key}", *paths(value, f"{parents}{key}.")]
    return found


def at_path(document: Any, name: str) -> list[str]:
    """Return the keys that a dotted name stands for, which may hold dots themselves; none when nothing stands there."""
    if not isinstance(document, dict):
        return []
    if name in document:
        return [name]
    for key, value in document.items():
        if name.startswith(f"{key}.") and (below := at_path(value, name[len(key) + 1 :])):
            return [key, *below]
    return []


def without_paths(document: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Take out what stands under dotted names, as far as it is there."""
    for name in names:
        if keys := at_path(document, name):
            patch: Any = None
            for key in reversed(keys):
                patch = {key: patch}
            document = merge_patch(document, patch)
    return document
