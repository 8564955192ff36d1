"""Files that leave Redis and come back: exports, imports, and merges of owners."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, PlainValidator

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.keys import merge_mark
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.values import from_micros
from langchain_workingmem.checks import check_ttl
from langchain_workingmem.errors import FilePathError, FileQuotaError, OptionError, UserDeletedError
from langchain_workingmem.files.operations import HISTORY, READ, check_by, check_text, damaged, run_scripts
from langchain_workingmem.files.paths import check_path
from langchain_workingmem.files.records import Note
from langchain_workingmem.options import FileOptions
from langchain_workingmem.users import archive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from langchain_workingmem._engine.plan import Argument
    from langchain_workingmem._redis.state import MemoryState

T = TypeVar("T")

RESTORE, LEAVE = Script("files/restore", "files/tree"), Script("files/leave", "files/tree")

PAGE = 1000  # files of a listing
GROUP, GROUP_BYTES = 100, 2**20  # files that are read together, and bytes of their present contents
SLICE_BYTES = 8 * 2**20  # of older contents in one round trip
CHECKED = 1000  # files that one round trip looks for before an import
MOST_REVISION = 2**48  # later revisions rise from here, and a double holds 2**53 exactly
NAMES = 100  # that a merge tries for a file
_ALL = 2**53


@dataclass(frozen=True, slots=True)
class Stored:
    """A file as Redis has it, or a deleted one that can come back."""

    path: str
    note: bytes
    content: bytes | None  # None: it is deleted
    older: Sequence[tuple[bytes, bytes | None]]  # note and content of its revisions, the newest first, without gaps


# ---------------------------------------------------------------------- reading


def read_files(state: MemoryState, owner: str, take: Callable[[list[Stored]], Plan[None]]) -> Plan[None]:
    """Read all files of an owner, and give them to `take`: by path those that there are, then those that were deleted.

    A round trip per 1,000 paths, two per 100 files or 1 MiB of them, and one per 8 MiB of older contents.
    """
    _, paths, _, notes, _ = keys = state.keys.of_user(owner).files
    (damage,) = yield from run_scripts(owner, READ.call(keys, "/", ""))
    if damage == [1]:
        raise damaged("/")
    low: Argument | None = "-"
    while low is not None:
        (members,) = yield from send(("ZRANGE", paths, low, "+", "BYLEX", "LIMIT", 0, PAGE))
        rows = [(path, Note.of(note).size) for path, _, note in (one.partition(b"\0") for one in members)]
        for group in _slices(rows, lambda row: row[1], GROUP_BYTES, GROUP):
            yield from take((yield from _read(state, owner, [path for path, _ in group], deleted=False)))
        low = b"[%b\1" % rows[-1][0] if len(rows) == PAGE else None
    cursor: int | None = 0
    while cursor is not None:
        ((after, found),) = yield from send(("HSCAN", notes, cursor, "MATCH", "/*", "COUNT", PAGE))
        names = [name for name in ([*found][::2] if isinstance(found, list) else found) if b"\0" not in name]
        for start in range(0, len(names), GROUP):
            yield from take((yield from _read(state, owner, names[start : start + GROUP], deleted=True)))
        cursor = int(after) or None


def _slices(rows: Iterable[T], size_of: Callable[[T], int], most_bytes: int, most: int) -> Iterator[list[T]]:
    """Divide rows into lists of at most so many bytes, and so many rows; a larger row stands alone."""
    step: list[T] = []
    size = 0
    for row in rows:
        if step and (size + size_of(row) > most_bytes or len(step) == most):
            yield step
            step, size = [], 0
        step.append(row)
        size += size_of(row)
    if step:
        yield step


def _read(state: MemoryState, owner: str, paths: Sequence[bytes], *, deleted: bool) -> Plan[list[Stored]]:
    """Return files, without those that were changed meanwhile between deleted and not."""
    files: list[Stored] = []
    keys = state.keys.of_user(owner).files
    calls = [call for path in paths for call in (READ.call(keys, path, ""), HISTORY.call(keys, path, _ALL))]
    replies = yield from run_scripts(owner, *calls)
    for path, reply, notes in zip(paths, replies[::2], replies[1::2], strict=True):
        present = notes[:1] if reply[:1] == [0] else reply  # [0]: it is deleted, and a directory is there now
        if not present or (len(present) == 1) != deleted:
            continue
        newest = Note.of(present[0]).revision
        wanted = [note for note in notes if Note.of(note).revision < newest]
        if wanted or not deleted:  # else there is nothing that could come back
            older = yield from _contents(keys[2], path, wanted)
            files.append(Stored(path.decode(), present[0], None if deleted else present[1], older))
    return files


def _contents(texts: str, path: bytes, notes: Sequence[bytes]) -> Plan[list[tuple[bytes, bytes | None]]]:
    """Return older revisions with their contents, up to one that was forgotten meanwhile."""
    found: list[tuple[bytes, bytes | None]] = []
    for step in _slices([(note, Note.of(note)) for note in notes], lambda one: one[1].size, SLICE_BYTES, len(notes)):
        fields = [b"%b\0%d" % (path, note.revision) for _, note in step]
        (contents,) = yield from send(("HMGET", texts, *fields))
        for (raw, note), content in zip(step, contents, strict=True):
            if content is None and note.kind != "d":
                return found
            found.append((raw, content))
    return found


# ---------------------------------------------------------------------- writing


def restore(state: MemoryState, owner: str, path: str, file: Stored, *limits: Argument) -> Plan[list[Any]]:
    """Put a file at a path of an owner; return the reply of `restore.lua`. A round trip, and one per 8 MiB of its revisions.

    `limits` are those from `ttl` on; without them everything is kept.
    """
    keys = state.keys.of_user(owner).files
    steps = [*_slices(file.older, lambda one: len(one[1] or b""), SLICE_BYTES, len(file.older))] or [[]]
    first: list[Any] = []
    for step in steps:
        older = [part for note, content in step for part in (note, content or b"")]
        head = (path, file.note, *(limits or ("", "", "", "")), file.content or b"")
        (reply,) = yield from run_scripts(owner, RESTORE.call(keys, *head, *older))
        if reply[0] == b"damaged":
            raise damaged(path)
        if reply[0] in {b"bytes", b"files"}:
            raise _too_much(owner, reply[0].decode(), int(reply[1]), limits)
        first = first or reply
        if reply[0] not in {b"ok", b"same"}:
            break
    return first


def _too_much(owner: str, what: str, number: int, limits: Sequence[Argument]) -> FileQuotaError:
    name, most = {"bytes": ("max_bytes", limits[2]), "files": ("max_files", limits[3])}[what]
    seen = f"all files of {owner!r} would have" if what == "bytes" else f"{owner!r} has"
    return FileQuotaError(
        f"{seen} {number:,} {what}, {int(most):,} at most",
        remedy=f"delete files with purge=True, or raise FileOptions({name}=...)",
    )


# ---------------------------------------------------------------------- exports


def export(state: MemoryState, owner: str, give: Callable[[list[dict[str, Any]]], Plan[None]]) -> Plan[None]:
    """Give a record for each file, also for those that were deleted and are still kept."""
    return read_files(state, owner, lambda files: give([_exported(file) for file in files]))


def _exported(file: Stored) -> dict[str, Any]:
    record = {"kind": "file", "path": file.path, "created_at": from_micros(Note.of(file.note).first_at).isoformat()}
    older = [_record(one, content, "at") for one, content in reversed(file.older)]
    return {**record, **_record(file.note, file.content, "updated_at"), "revisions": older}


def _record(raw: bytes, content: bytes | None, time: str) -> dict[str, Any]:
    note = Note.of(raw)
    record: dict[str, Any] = {"revision": note.revision, time: from_micros(note.changed).isoformat()}
    record |= {"what": note.what, "by": note.by}
    if content is None:
        return record
    is_text = note.kind == "t"
    return record | ({"content": content.decode()} if is_text else {"base64": b64encode(content).decode()})


# ---------------------------------------------------------------------- files of archives


class _Revision(archive.Record):
    """A revision of a file; without a content the file was deleted then."""

    revision: Annotated[int, Field(ge=1, le=MOST_REVISION)]
    what: Literal["write", "edit", "insert", "rename", "revert", "delete"]
    by: Annotated[str, AfterValidator(check_by)] = ""
    content: Annotated[str, AfterValidator(partial(check_text, name="content"))] | None = None
    base64: Annotated[bytes, PlainValidator(partial(b64decode, validate=True))] | None = None

    def raw(self) -> bytes | None:
        """Return the content as it is stored."""
        return self.base64 if self.content is None else self.content.encode()

    def note(self, created_at: int, changed: int) -> bytes:
        """Return the note as it is stored."""
        raw, kind = self.raw(), "b" if self.content is None else "t"
        kind, size = ("d", 0) if raw is None else (kind, len(raw))
        return f"{self.revision} {min(created_at, changed)} {changed} {size} {kind} {self.what} {self.by}".encode()


class _Older(_Revision):
    at: archive.Micros


class FileRecord(_Revision):
    """A file to write, unless there is one, or was."""

    path: Annotated[str, AfterValidator(check_path)]
    created_at: archive.Micros
    updated_at: archive.Micros
    revisions: list[_Older] = Field(default=[])

    def model_post_init(self, load: Any, /) -> None:
        """Check the order of the revisions and the size, and count what this owner may have."""
        for last, number in pairwise([*(one.revision for one in self.revisions), self.revision]):
            if number != last + 1:
                raise OptionError(f"revision {number} follows {last}", remedy=archive.KEEP_ORDER)
        if any(one.content is not None and one.base64 is not None for one in (self, *self.revisions)):
            raise OptionError("there is content, and base64, too", remedy="leave one out")
        options = load.state.files or FileOptions()
        raw = self.raw()
        if raw is not None and len(raw) > options.max_file_bytes:
            seen = f"{self.path!r} has {len(raw):,} bytes, {options.max_file_bytes:,} at most"
            raise FileQuotaError(seen, remedy="raise FileOptions(max_file_bytes=...)")
        self.revisions = self.revisions[-options.revisions :]
        size = sum(len(one.raw() or b"") for one in (self, *self.revisions))
        load.files.setdefault(self.path, (raw is not None, size))

    @staticmethod
    def check(load: Any) -> Plan[None]:
        """Raise `FileQuotaError` if the owner would have too much. A round trip per 1,000 files."""
        _, paths, _, notes, _ = load.state.keys.of_user(load.owner).files
        named, options = [*load.files.items()], load.state.files or FileOptions()
        files = size = 0
        for start in range(0, len(named), CHECKED):
            some = named[start : start + CHECKED]
            calls = [
                call
                for path, _ in some
                for call in (
                    ("ZRANGE", paths, f"[{path}\0", f"({path}\1", "BYLEX", "LIMIT", 0, 1),
                    ("HEXISTS", notes, path),
                )
            ]
            *known, (count, total) = yield from send(*calls, ("HMGET", notes, "count", "bytes"))
            new = [one for one, *there in zip(some, known[::2], known[1::2], strict=True) if not any(there)]
            files += sum(is_live for _, (is_live, _) in new)
            size += sum(more for _, (_, more) in new)
        for what, number, most in (
            ("files", int(count or 0) + files, options.max_files),
            ("bytes", int(total or 0) + size, options.max_bytes),
        ):
            if number > most and (files if what == "files" else size):
                remedy = f"delete files with purge=True, or raise FileOptions(max_{what}=...)"
                seen = f"{load.owner!r} would have {number:,} {what} with those of the records, {most:,} at most"
                raise FileQuotaError(f"{seen}; nothing was imported", remedy=remedy)

    def write(self, load: Any) -> Plan[None]:
        """Write it with its revisions, unless another one is there."""
        options = load.state.files or FileOptions()
        older = [(one.note(self.created_at, one.at), one.raw()) for one in reversed(self.revisions)]
        file = Stored(self.path, self.note(self.created_at, self.updated_at), self.raw(), older)
        limits = (check_ttl(options.ttl) or "", options.revisions, options.max_bytes, options.max_files)
        status, *_ = yield from restore(load.state, load.owner, self.path, file, *limits)
        load.counts["files"] += status == b"ok" and file.content is not None
        if status in {b"known", b"taken"}:
            load.files_left.append(self.path)


# ---------------------------------------------------------------------- merges


def merge(state: MemoryState, source: str, into: str) -> Plan[dict[str, Any]]:
    """Give the files of an owner to another one, and return what the report of a merge says of it.

    Quotas do not count here. A file whose path the other one has, with another content, gets a path beside it. Every step can be
    repeated: a file that was moved already is recognised by its note.
    """
    options, keys = state.files, state.keys.of_user(source).files
    moved: dict[str, Any] = {"files": 0, "files_renamed": {}}
    ttl = "" if options is None else check_ttl(options.ttl) or ""

    def take(files: list[Stored]) -> Plan[None]:
        for file in files:
            path = file.path
            for number in range(1, NAMES + 1):
                status, *blocked = yield from restore(state, into, path, file, ttl, "", "", "")
                if status != b"taken":
                    break
                path = beside(file.path, blocked[0].decode(), number)
            else:
                seen = f"and {NAMES} paths beside it are taken"
                raise FilePathError(file.path, seen, remedy="rename some of the files")
            if status == b"ok" and file.content is not None:
                moved["files"] += 1
                if path != file.path:
                    moved["files_renamed"][file.path] = path

    yield from read_files(state, source, take)
    (was_ours,) = yield from send(LEAVE.call(keys, merge_mark(into)))
    if not was_ours:
        raise UserDeletedError(source)
    return moved


def beside(path: str, blocked: str, number: int) -> str:
    """Return another path for a file, given what is in its way: another file of its own path, or one where it needs a directory."""
    label = f" (merged{f' {number}' if number > 1 else ''})"
    if path.startswith(f"{blocked}/"):
        return f"{blocked}{label}{path[len(blocked) :]}"
    directory, _, name = path.rpartition("/")
    stem, dot, ending = name.rpartition(".") if "." in name[1:] else (name, "", "")
    return f"{directory}/{stem}{label}{dot}{ending}"
