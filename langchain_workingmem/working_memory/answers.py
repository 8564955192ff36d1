"""What a tool answers about a change of working memory: what is different, and nothing else."""

from __future__ import annotations

import json
from typing import Any

from langchain_workingmem._documents.formats import Format, TextFormat, shorten
from langchain_workingmem._documents.lines import unified
from langchain_workingmem._documents.merging import count_leaves, paths
from langchain_workingmem._text.nesting import check_depth
from langchain_workingmem.errors import WorkingMemoryValidationError

MOST_LINES = 20  # of what changed


def describe_change(form: Format, before: str, after: str) -> str:
    """Say what became of a document, a line per place."""
    if before == after:
        return "The update holds nothing new, so nothing was changed."
    lines = (
        _lines(form, before, after)
        if isinstance(form, TextFormat)
        else _fields(parse_document(before), parse_document(after))
    )
    if not lines:
        return "Working memory is updated; only blanks or the order of its parts are different."
    rest = len(lines) - MOST_LINES
    more = [f"and {rest} more"] if rest > 0 else []
    return "\n".join(["Working memory is updated:", *map(shorten, lines[:MOST_LINES]), *more])


def _lines(form: TextFormat, before: str, after: str) -> list[str]:
    old, new = (before or form.template).splitlines(), after.splitlines()
    signs = "+-" if before else "+"  # of an empty memory nothing can leave
    lines = unified(old, new, context=0)
    return [f"{line[0]} {line[1:]}" for line in lines if line[0] in signs and line[1:].strip()]


def _fields(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    old, new = _flat(before), _flat(after)
    return [
        f"{path}: {_show(new.get(path))} (was {_show(old.get(path))})"
        for path in dict.fromkeys((*new, *old))
        if _show(new.get(path)) != _show(old.get(path))
    ]


def _show(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)


def describe_no_change(update: dict[str, Any]) -> WorkingMemoryValidationError:
    """Say why an update without content changes nothing."""
    nulls = count_leaves(update) - count_leaves(update, null=False)
    if not nulls:
        return WorkingMemoryValidationError(
            "the update is empty, so nothing was changed", remedy="put what is new into `memory`"
        )
    example = f", as in {json.dumps({'clear': paths(update)[-1:]})}" if nulls == len(update) == 1 else ""
    return WorkingMemoryValidationError(
        "null deletes nothing, so nothing was changed", remedy=f"to delete a field, name it in `clear`{example}"
    )


def parse_document(text: str) -> dict[str, Any]:
    """Read a document; one that was written in another format has no fields."""
    try:
        found = json.loads(check_depth(text))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _flat(fields: dict[str, Any], parents: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in fields.items():
        found |= _flat(value, f"{parents}{key}.") if isinstance(value, dict) else {f"{parents}{key}": value}
    return found
