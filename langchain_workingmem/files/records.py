"""What the methods of `memory.files` return."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from langchain_workingmem._redis.codec import from_micros

if TYPE_CHECKING:
    from datetime import datetime


class Note(NamedTuple):
    """What is stored beside the content of a file, as `tree.lua` writes it."""

    revision: int
    first_at: int  # microseconds since the epoch
    changed: int
    size: int  # bytes
    kind: str  # t: text, b: bytes, d: deleted
    what: str  # the operation that made the revision
    by: str

    @classmethod
    def of(cls, note: bytes) -> Note:
        """Read a note."""
        revision, first_at, changed, size, kind, what, by = note.decode().split(" ", 6)
        return cls(int(revision), int(first_at), int(changed), int(size), kind, what, by)


class FileInfo:
    """A file or a directory of a listing.

    It keeps what Redis returned, and reads it when it is asked: a listing of 10,000 files takes a fourth of the time.
    """

    __slots__ = ("_note", "_raw")

    _note: Note

    def __init__(self, raw: bytes) -> None:
        self._raw = raw  # <path>\0<note>; of a directory only the path

    @property
    def path(self) -> str:
        """Return the absolute path."""
        return self._raw.partition(b"\0")[0].decode()

    @property
    def is_dir(self) -> bool:
        """Tell whether this is a directory; it has no revision, size and times."""
        return b"\0" not in self._raw

    @property
    def revision(self) -> int:
        """Return the number of the present revision, from 1; 0 of a directory."""
        return self._read().revision

    @property
    def size(self) -> int:
        """Return the bytes of the content."""
        return self._read().size

    @property
    def is_text(self) -> bool:
        """Tell whether the content is text; else it is bytes."""
        return self._read().kind == "t"

    @property
    def created_at(self) -> datetime:
        """Return when the first revision was written."""
        return from_micros(self._read().first_at)

    @property
    def updated_at(self) -> datetime:
        """Return when the present revision was written."""
        return from_micros(self._read().changed)

    @property
    def by(self) -> str:
        """Return who wrote it, as the writer has said; empty if it has not."""
        return self._read().by

    def _read(self) -> Note:
        if not hasattr(self, "_note"):
            note = self._raw.partition(b"\0")[2]
            self._note = Note.of(note) if note else _DIRECTORY
        return self._note

    def __repr__(self) -> str:
        if self.is_dir:
            return f"FileInfo({self.path!r}, directory)"
        return f"FileInfo({self.path!r}, revision={self.revision}, size={self.size})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileInfo) and self._raw == other._raw

    def __hash__(self) -> int:
        return hash(self._raw)


_DIRECTORY = Note(0, 0, 0, 0, "", "", "")


@dataclass(frozen=True)
class File:
    """A file, or one of its revisions, with its content."""

    info: FileInfo
    content: str | bytes  # text as str

    @property
    def text(self) -> str:
        """Return the content as text; bytes are read as UTF-8, with U+FFFD for what is not."""
        return self.content if isinstance(self.content, str) else self.content.decode(errors="replace")

    @property
    def revision(self) -> int:
        """Return the revision, which `base_revision` of a later write names."""
        return self.info.revision

    @cached_property
    def lines(self) -> list[str]:
        """Return the lines without their ends; the last one may be empty."""
        return self.text.split("\n")


@dataclass(frozen=True, slots=True)
class FileEdit:
    """What an edit has done."""

    info: FileInfo
    occurrences: int  # of the text that was replaced; 1 of an insertion
    line: int  # number of the first line that has changed, from 1
    changed: bool  # False: the file was like this already, and there is no new revision

    @property
    def revision(self) -> int:
        """Return the present revision, which `base_revision` of a later write names."""
        return self.info.revision


@dataclass(frozen=True, slots=True)
class FileRevision:
    """A revision of a file, without its content, which `read(path, revision=...)` returns."""

    path: str
    revision: int
    size: int  # bytes
    at: datetime
    what: str  # "write", "edit", "insert", "rename", "revert" or "delete"
    by: str

    @classmethod
    def of(cls, path: str, note: bytes) -> FileRevision:
        """Read a note."""
        found = Note.of(note)
        return cls(path, found.revision, found.size, from_micros(found.changed), found.what, found.by)


class LineMatch(NamedTuple):
    """A line that holds the text that was looked for."""

    path: str
    line: int  # number, from 1
    text: str


@dataclass(frozen=True, slots=True)
class FileUsage:
    """What the files of an owner take."""

    files: int
    bytes: int  # with all revisions that are kept
