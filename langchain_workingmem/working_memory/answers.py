"""What a tool answers about a change of working memory: the differences, and nothing else."""

from __future__ import annotations

import json
from difflib import unified_diff
from itertools import islice
from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.formats import JsonFormat
from langchain_workingmem._documents.merging import parse_json, shorten
from langchain_workingmem.errors import WorkingMemoryValidationError

if TYPE_CHECKING:
    from langchain_workingmem._documents.formats import Format, TextFormat

MOST_LINES = 20  # of a description


def describe_change(form: Format, before: str, after: str) -> str:
    """Describe what changed in a document, one line for each field or line."""
    if before == after:
        return "The update holds nothing new, so nothing was changed."
    if isinstance(form, JsonFormat):
        lines = _changed_fields(parse_document(before), parse_document(after))
    else:
        lines = _changed_lines(form, before, after)
    if not lines:
        return "Working memory is updated; only blanks or the order of its parts are different."
    more = [f"and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
    return "\n".join(["Working memory is updated:", *map(shorten, lines[:MOST_LINES]), *more])


def _changed_lines(form: TextFormat, before: str, after: str) -> list[str]:
    signs = "+-" if before else "+"  # an empty memory is compared as its template, whose lines are not stored
    found = unified_diff((before or form.template).splitlines(), after.splitlines(), n=0, lineterm="")
    lines = islice(found, 2, None)  # behind its header
    return [f"{line[0]} {line[1:]}" for line in lines if line[0] in signs and line[1:].strip()]


def _changed_fields(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    old, new = _by_path(before), _by_path(after)
    pairs = {path: (new.get(path, "nothing"), old.get(path, "nothing")) for path in {**new, **old}}
    return [f"{path}: {now} (was {was})" for path, (now, was) in pairs.items() if now != was]


def _by_path(fields: dict[str, Any], parents: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in fields.items():
        if isinstance(value, dict):
            found |= _by_path(value, f"{parents}{key}.")
        else:
            found[f"{parents}{key}"] = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return found


def describe_no_change(update: dict[str, Any]) -> WorkingMemoryValidationError:
    """Return the error for an update without content."""
    if not update:
        return WorkingMemoryValidationError(
            "the update is empty, so nothing was changed", remedy="put what is new into `memory`"
        )
    return WorkingMemoryValidationError(
        "null deletes nothing, so nothing was changed", remedy="to delete a field, name it in `clear`"
    )


def parse_document(text: str) -> dict[str, Any]:
    """Return the fields of a document; none when it was written in another format."""
    found = parse_json(text)
    return found if isinstance(found, dict) else {}
