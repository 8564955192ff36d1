"""A merge by lines: the changes that a whole text makes to what its writer was shown, applied to the present text. Pure."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

from langchain_workingmem._documents.merging import shorten
from langchain_workingmem.errors import WorkingMemoryValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST = 5  # conflicts that a refusal shows


class MergeConflictError(WorkingMemoryValidationError):
    """Both sides changed the same lines, and differently; the message shows both versions."""

    def __init__(self, conflicts: Sequence[tuple[str, str]]) -> None:
        remedy = "Repeat the update with these lines as they are now, or change them by `edits`"
        shown = [f"    now: {shorten(a) or '(gone)'}\n    you: {shorten(b) or '(gone)'}" for a, b in conflicts[:MOST]]
        super().__init__(
            "working memory has changed since you read it, in the same places, so nothing was changed. "
            f"{remedy}:\n" + "\n".join(shown),
            remedy=remedy,
        )


class _Edit(NamedTuple):
    """Lines `start` to `end` of the older text, and the lines that replace them."""

    start: int
    end: int
    lines: tuple[str, ...]

    @property
    def places(self) -> range:
        """Return what it changes: line n is at 2 * n + 1, and lines are inserted before it at 2 * n."""
        if self.end > self.start:
            return range(2 * self.start + 1, 2 * self.end)
        return range(2 * self.start, 2 * self.start + 1)


def merge_text(seen: str, current: str, sent: str) -> str:
    """Apply what changed from `seen` to `sent` to `current`; what both insert at one place is kept, equal lines once.

    Raises `MergeConflictError` where both changed the same lines differently.
    """
    if sent in (current, seen) or current == seen:
        return current if sent == seen else sent
    base = _lines(seen)
    edits, conflicts = [*_edits(base, _lines(current))], []
    theirs = {place: edit for edit in edits for place in edit.places}
    for own in _edits(base, _lines(sent)):
        rival = next((theirs[place] for place in own.places if place in theirs), None)
        if rival is None:
            edits.append(own)
        elif rival.start == rival.end == own.start == own.end:
            fresh = tuple(line for line in own.lines if line not in rival.lines or not line.strip())
            edits.append(own._replace(lines=fresh))
        elif rival != own:
            conflicts.append(("\n".join(rival.lines), "\n".join(own.lines)))
    if conflicts:
        raise MergeConflictError(conflicts)
    merged: list[str] = []
    at = 0
    for start, end, lines in sorted(edits, key=lambda edit: edit[:2]):  # at one place, present lines come first
        merged += [*base[at:start], *lines]
        at = end
    return "\n".join([*merged, *base[at:]]) + sent[len(sent.rstrip("\n")) :]


def _edits(base: Sequence[str], text: Sequence[str]) -> Iterator[_Edit]:
    for kind, start, end, first, last in SequenceMatcher(None, base, text).get_opcodes():
        if kind == "equal":
            continue
        if end - start == last - first:  # line by line, so that others may change the lines beside one
            yield from (_Edit(start + at, start + at + 1, (text[first + at],)) for at in range(end - start))
        else:
            yield _Edit(start, end, tuple(text[first:last]))


def _lines(text: str) -> list[str]:
    stripped = text.rstrip("\n")
    return stripped.split("\n") if stripped else []
