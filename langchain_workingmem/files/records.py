"""What the methods of `memory.files` return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from langchain_workingmem._text.values import from_micros

if TYPE_CHECKING:
    from datetime import datetime


_EPOCH = from_micros(0)


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


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file or a directory of a listing; a directory has no revision, size and times."""

    path: str  # absolute
    is_dir: bool = False
    revision: int = 0  # the number of the present one, from 1
    size: int = 0  # bytes of the content
    is_text: bool = False  # else it is bytes
    created_at: datetime = _EPOCH  # when the first revision was written
    updated_at: datetime = _EPOCH  # when the present revision was written
    by: str = ""  # who wrote it, as the writer has said

    @classmethod
    def of(cls, path: str, raw: bytes) -> FileInfo:
        """Read a note."""
        note = Note.of(raw)
        times = from_micros(note.first_at), from_micros(note.changed)
        return cls(path, False, note.revision, note.size, note.kind == "t", *times, note.by)  # noqa: FBT003


@dataclass(frozen=True, slots=True)
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
        parsed = Note.of(note)
        return cls(path, parsed.revision, parsed.size, from_micros(parsed.changed), parsed.what, parsed.by)


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
