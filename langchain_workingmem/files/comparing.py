"""What changed between two revisions of a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_workingmem._documents.lines import unified
from langchain_workingmem._engine.effects import compute
from langchain_workingmem._redis.core import plan_of
from langchain_workingmem.errors import FileMissingError, OptionError
from langchain_workingmem.files.api import Files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem.files.records import FileRevision

MOST_REVISIONS = 1000  # that are looked through
_READ, _HISTORY = plan_of(Files.read), plan_of(Files.history)


@dataclass(frozen=True, slots=True)
class FileDiff:
    """The changes between two revisions of a file."""

    path: str
    earlier: int  # revision; 0: there was no file yet
    later: int
    lines: list[str]  # of the unified diff, without its header; a newline at the end of a text does not count


def compare(
    files: Files, path: str, resource_id: str, earlier: int | None = None, later: int | None = None
) -> Plan[FileDiff]:
    """Compare two revisions; by default the newest one, and the one before `later`. A deleted file has no lines.

    Three round trips. `FileMissingError` for a revision that is not kept, `OptionError` for one that holds bytes.
    """
    found = yield from _HISTORY(files, path, resource_id=resource_id, limit=MOST_REVISIONS)
    kept = {one.revision: one for one in found}
    last = found[0].revision if later is None else later
    first = max((one for one in kept if one < last), default=0) if earlier is None else earlier
    before = yield from _lines(files, path, resource_id, kept, first)
    after = yield from _lines(files, path, resource_id, kept, last)
    size = sum(kept[one].size for one in (first, last) if one)
    lines = yield from compute(lambda: list(unified(before, after)), size)
    return FileDiff(path, first, last, lines)


def _lines(
    files: Files, path: str, resource_id: str, kept: Mapping[int, FileRevision], revision: int
) -> Plan[list[str]]:
    if revision == 0:
        return []
    if revision not in kept:
        raise FileMissingError(path, revision)
    if kept[revision].what == "delete":
        return []
    file = yield from _READ(files, path, resource_id=resource_id, revision=revision)
    if isinstance(file.content, bytes):
        raise OptionError(f"revision {revision} of {path!r} holds bytes", remedy="compare revisions that hold text")
    return file.content.removesuffix("\n").split("\n") if file.content else []
