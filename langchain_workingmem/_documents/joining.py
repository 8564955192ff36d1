"""The document of a guest joins that of the user whom the guest turns out to be. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.formats import JsonFormat
from langchain_workingmem._documents.merging import append_text, is_same, parse_json
from langchain_workingmem._documents.schemas import dump

if TYPE_CHECKING:
    from langchain_workingmem._documents.formats import Format


def joined(form: Format, user: str, guest: str) -> str:
    """Return the user's document with what only the guest's has; that of another kind than the user's adds nothing.

    Fields are merged, and those of the user win unless they are null; a text grows by the lines of the guest that it does not have, and a label without a
    value takes that of the guest. Raises `WorkingMemoryValidationError` if a schema refuses the result.
    """
    if form.is_empty(guest) or form.is_empty(user):
        return guest if form.is_empty(user) and not form.is_empty(guest) else user
    ours, theirs = parse_json(user), parse_json(guest)
    if not isinstance(ours, dict) and not isinstance(theirs, dict):
        return _joined_text(user, guest)
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return user
    found = _filled(ours, theirs)
    if is_same(found, ours):
        return user
    return form.apply("", found, "replace") if isinstance(form, JsonFormat) else dump(found)


def _filled(ours: Any, theirs: Any) -> Any:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {**ours, **{name: _filled(ours.get(name), value) for name, value in theirs.items()}}
    return theirs if ours is None else ours


def _joined_text(user: str, guest: str) -> str:
    lines, fresh = user.splitlines(), []
    labels = {line.partition(":")[0].strip(): at for at, line in enumerate(lines) if ":" in line}
    for line in guest.splitlines():
        at = labels.get(line.partition(":")[0].strip()) if ":" in line else None
        if at is not None:
            lines[at] = line if lines[at].rstrip().endswith(":") else lines[at]
        elif line.strip() and line not in lines:
            fresh.append(line)
    if labels or not fresh:
        return "\n".join([*lines, *fresh])
    return append_text(user, "\n".join(fresh))
