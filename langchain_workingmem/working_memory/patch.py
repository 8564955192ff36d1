"""Changes of JSON and of text: merge patches, names of fields, a merge by lines, and what has changed. Pure."""

from __future__ import annotations

import json
from difflib import SequenceMatcher, unified_diff
from typing import TYPE_CHECKING, Any

from langchain_workingmem.errors import WorkingMemoryValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_CONFLICTS = 5  # that a refusal shows


def shorten(text: str, width: int = 200) -> str:
    """Cut a long text for a message."""
    return text if len(text) <= width else f"{text[: width - 4]} ..."


# ---------------------------------------------------------------------- JSON


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


def without_padding(value: Any) -> Any:
    """Remove fields that a model fills a form with: null, empty texts, lists and objects."""
    if isinstance(value, dict):
        lean = {key: without_padding(one) for key, one in value.items()}
        return {key: one for key, one in lean.items() if one not in (None, "", [], {})}
    return [without_padding(one) for one in value] if isinstance(value, list) else value


def is_same(one: Any, other: Any) -> bool:
    """Compare two JSON values in any order of keys; true and 1 differ, unlike in Python."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def named(document: Any, parents: str = "") -> Iterator[tuple[str, Any]]:
    """List the values of an object by their dotted names, in nested objects those that have none inside."""
    for key, value in document.items() if isinstance(document, dict) else ():
        if isinstance(value, dict) and value:
            yield from named(value, f"{parents}{key}.")
        else:
            yield f"{parents}{key}", value


def without_path(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object without the value of a dotted name, and itself where there is none; keys may hold dots."""
    if name in document:
        return {key: value for key, value in document.items() if key != name}
    for key, value in document.items():
        if isinstance(value, dict) and name.startswith(f"{key}."):
            below = without_path(value, name[len(key) + 1 :])
            if below is not value:
                return {**document, key: below}
    return document


# ---------------------------------------------------------------------- text


def append_text(target: str, addition: str) -> str:
    """Append a block of text after a blank line, unless the target has it already as whole lines."""
    block = addition.strip("\n")
    if not target.strip():
        return block
    if f"\n{block}\n" in f"\n{target}\n":
        return target
    return f"{target.rstrip()}\n\n{block}"


class MergeConflictError(WorkingMemoryValidationError):
    """Both sides changed the same lines, and differently; the message shows both versions."""

    def __init__(self, conflicts: Sequence[tuple[str, str]]) -> None:
        remedy = "Repeat the update with these lines as they are now, or change them by `edits`"
        shown = [
            f"    now: {shorten(now) or '(gone)'}\n    you: {shorten(own) or '(gone)'}"
            for now, own in conflicts[:MOST_CONFLICTS]
        ]
        super().__init__(
            "working memory has changed since you read it, in the same places, so nothing was changed. "
            f"{remedy}:\n" + "\n".join(shown),
            remedy=remedy,
        )


def merge_text(seen: str, current: str, sent: str) -> str:
    """Apply what changed from `seen` to `sent` to `current`; what both insert at one place is kept, equal lines once.

    Raises `MergeConflictError` where both changed the same lines differently.
    """
    if sent == seen:
        return current
    if current == seen:
        return sent
    base, conflicts, merged = _lines(seen), [], list[str]()
    now, own = _changes(base, _lines(current)), _changes(base, _lines(sent))
    for place in range(2 * len(base) + 1):
        before = [base[place // 2]] if place % 2 else []
        one, other = now.get(place, before), own.get(place, before)
        if one in (before, other):
            merged += other
        elif place % 2 == 0:
            merged += [*one, *(line for line in other if line not in one or not line.strip())]
        elif other == before:
            merged += one
        else:
            conflicts.append(("\n".join(one), "\n".join(other)))
    if conflicts:
        raise MergeConflictError(conflicts)
    return "\n".join(merged) + sent[len(sent.rstrip("\n")) :]


def _changes(base: Sequence[str], text: list[str]) -> dict[int, list[str]]:
    """Return the lines that a text has instead: of line n at 2 * n + 1, and those that are inserted before it at 2 * n."""
    found: dict[int, list[str]] = {}
    for kind, start, end, first, last in SequenceMatcher(None, base, text).get_opcodes():
        if kind == "equal":
            continue
        if kind == "insert":
            found[2 * start] = text[first:last]
        elif end - start == last - first:  # line by line, so that others may change the lines beside one
            found |= {2 * (start + at) + 1: [line] for at, line in enumerate(text[first:last])}
        else:
            found |= {place: [] for place in range(2 * start + 1, 2 * end, 2)}
            found[2 * start + 1] = text[first:last]
    return found


def _lines(text: str) -> list[str]:
    stripped = text.rstrip("\n")
    return stripped.split("\n") if stripped else []


# ---------------------------------------------------------------------- what has changed


def changed_lines(before: str, after: str) -> list[str]:
    """Describe what was added and taken away, one line for each line."""
    found = list(unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))[2:]  # without its header
    return [f"{line[0]} {line[1:]}" for line in found if line[0] in "+-" and line[1:].strip()]


def changed_fields(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Describe what has changed in an object, one line for each value."""
    old, new = dict(named(before)), dict(named(after))
    return [
        f"{name}: {_as_text(new.get(name))} (was {_as_text(old.get(name))})"
        for name in {**new, **old}
        if not is_same(old.get(name), new.get(name))
    ]


def _as_text(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)
