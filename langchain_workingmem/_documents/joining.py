"""The document of a guest joins that of the user whom the guest turns out to be. Pure functions.

Nothing says when a value was said, so what the user has stays, and the guest's fills what is empty or missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.formats import JsonFormat
from langchain_workingmem._documents.merging import append_patch, append_text, is_same, parse_json
from langchain_workingmem._documents.schemas import dump
from langchain_workingmem._documents.threeway import merge_text

if TYPE_CHECKING:
    from langchain_workingmem._documents.formats import Format


def joined(form: Format, user: str, guest: str) -> str:
    """Return the user's document with what only the guest's has; that of another kind than the user's adds nothing.

    Fields join deeply, and lists grow by the guest's items. Of a text, the lines of the user stay; a label without a value takes
    that of the guest, and further lines follow. Raises `WorkingMemoryValidationError` if a schema refuses the result.
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
    if isinstance(ours, list) and isinstance(theirs, list):
        return append_patch(ours, theirs)
    return theirs if ours is None else ours


def _joined_text(user: str, guest: str) -> str:
    """Join two texts line by line; what both begin with, up to a colon, is a label."""
    lines = {" ".join(line.split()) for line in user.splitlines()}
    labels = {line.partition(":")[0] for line in lines if ":" in line}
    base = []  # what both may have begun from
    for line in guest.splitlines():
        words = " ".join(line.split())
        label, colon, _ = line.partition(":")
        if words in lines:
            base.append(line)
        elif colon and words.partition(":")[0] in labels:
            base.append(f"{label}:")
    if not any(line.strip() for line in base):
        return append_text(user, guest)
    fillers = frozenset(base)
    return merge_text("\n".join(base), user, guest, fillers.__contains__, yields=True)
