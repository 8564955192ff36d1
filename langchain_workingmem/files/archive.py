"""Files that leave Redis and come back: exports, imports, and merges of owners."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.keys import merge_tombstone
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.values import from_micros
from langchain_workingmem.checks import LARGEST
from langchain_workingmem.errors import FileQuotaError, OptionError, UserDeletedError
from langchain_workingmem.files import operations as plans
from langchain_workingmem.files.operations import HISTORY, READ, Tree, find, find_deleted, run_scripts, slices
from langchain_workingmem.files.paths import check_path
from langchain_workingmem.files.records import Note
from langchain_workingmem.options import FileOptions
from langchain_workingmem.users import archive

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_workingmem._engine.plan import Argument
    from langchain_workingmem._redis.state import MemoryState

RESTORE, LEAVE = Script("files/restore", "files/tree"), Script("files/leave", "files/tree")

GROUP, GROUP_BYTES = 100, 2**20  # files that are read together, and bytes of their present contents
SLICE_BYTES = 8 * 2**20  # of older contents in one round trip
MOST_REVISION = 2**48  # later revisions rise from here, and a double holds 2**53 exactly


@dataclass(frozen=True, slots=True)
class Stored:
    """A file as Redis has it, or a deleted one that can come back."""

    path: str
    note: bytes
    content: bytes | None  # None: it is deleted
    older: Sequence[tuple[bytes, bytes | None]]  # note and content of its revisions, the newest first, without gaps


def grouped(tree: Tree) -> Plan[list[list[str]]]:
    """Return the paths of an owner's files, then of those that were deleted, in groups that are read at once.

    A round trip per 2,000 paths. To read them takes two per 100 files or 1 MiB, and one per 8 MiB of older contents.
    """
    sizes = {info.path: info.size for info in (yield from find(tree, "/"))}
    sizes |= {path: len(path) for path in (yield from find_deleted(tree, "/")) if path not in sizes}
    return [*slices(sizes, sizes.__getitem__, GROUP_BYTES, GROUP)]


def _read(tree: Tree, paths: Sequence[str]) -> Plan[list[Stored]]:
    """Return files, also deleted ones that could come back."""
    files: list[Stored] = []
    calls = [
        call for path in paths for call in (READ.call(tree.keys, path, ""), HISTORY.call(tree.keys, path, LARGEST))
    ]
    replies = yield from run_scripts(tree.user_id, *calls)
    for path, reply, notes in zip(paths, replies[::2], replies[1::2], strict=True):
        present = notes[:1] if reply[:1] == [0] else reply  # [0]: it is deleted, and a directory is there now
        if not present:
            continue
        is_deleted = len(present) == 1
        newest = Note.of(present[0]).revision
        older_notes = [note for note in notes if Note.of(note).revision < newest]
        if older_notes or not is_deleted:
            older = yield from _contents(tree.keys[2], path, older_notes)
            files.append(Stored(path, present[0], None if is_deleted else present[1], older))
    return files


def _contents(texts: str, path: str, notes: Sequence[bytes]) -> Plan[list[tuple[bytes, bytes | None]]]:
    """Return older revisions with their contents, up to one that was forgotten meanwhile."""
    revisions: list[tuple[bytes, bytes | None]] = []
    for step in slices([(note, Note.of(note)) for note in notes], lambda row: row[1].size, SLICE_BYTES, len(notes)):
        fields = [f"{path}\0{note.revision}" for _, note in step]
        (contents,) = yield from send(("HMGET", texts, *fields))
        for (raw, note), content in zip(step, contents, strict=True):
            if content is None and note.kind != "d":
                return revisions
            revisions.append((raw, content))
    return revisions


def restore(tree: Tree, path: str, file: Stored, *limits: Argument) -> Plan[list[Any]]:
    """Put a file at a path, and return the reply of `restore.lua`; `limits` from `ttl` on. One round trip per 8 MiB."""
    first_reply: list[Any] = []
    for step in [*slices(file.older, lambda revision: len(revision[1] or b""), SLICE_BYTES, len(file.older))] or [[]]:
        older = [part for note, content in step for part in (note, content or b"")]
        reply = yield from tree.run(RESTORE, path, file.note, *limits, file.content or b"", *older)
        if reply[0] in {b"bytes", b"files", b"damaged"}:
            raise tree.refusal(path, reply[0], reply[1:])
        first_reply = first_reply or reply
        if reply[0] not in {b"ok", b"same"}:
            break
    return first_reply


def export(state: MemoryState, owner: str) -> Iterator[Plan[list[dict[str, Any]]]]:
    """Yield steps that return a record for each file, also for those that were deleted and are still kept."""
    tree, groups = Tree(state, owner), list[list[str]]()

    def listed() -> Plan[list[dict[str, Any]]]:
        groups.extend((yield from grouped(tree)))
        return []

    def read(paths: Sequence[str]) -> Plan[list[dict[str, Any]]]:
        return [_exported(file) for file in (yield from _read(tree, paths))]

    yield listed()
    yield from map(read, groups)


def _exported(file: Stored) -> dict[str, Any]:
    record = {"kind": "file", "path": file.path, "created_at": from_micros(Note.of(file.note).first_at).isoformat()}
    older = [_record(note, content, "at") for note, content in reversed(file.older)]
    return {**record, **_record(file.note, file.content, "updated_at"), "revisions": older}


def _record(raw: bytes, content: bytes | None, time: str) -> dict[str, Any]:
    note = Note.of(raw)
    record: dict[str, Any] = {"revision": note.revision, time: from_micros(note.changed).isoformat()}
    record |= {"what": note.what, "by": note.by}
    if content is None:
        return record
    return record | ({"content": content.decode()} if note.kind == "t" else {"base64": b64encode(content).decode()})


class _Revision(archive.Record):
    """A revision of a file; without a content the file was deleted then."""

    revision: Annotated[int, Field(ge=1, le=MOST_REVISION)]
    what: Literal["write", "edit", "insert", "rename", "revert", "delete"]
    by: Annotated[str, AfterValidator(plans.check_by)] = ""
    content: Annotated[str, AfterValidator(partial(plans.check_text, name="content"))] | None = None
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

    def model_post_init(self, context: Any, /) -> None:
        """Check the order of the revisions and the size, and count what this owner may have."""
        for last, number in pairwise([*(revision.revision for revision in self.revisions), self.revision]):
            if number != last + 1:
                raise OptionError(f"revision {number} follows {last}", remedy=archive.KEEP_ORDER)
        if any(revision.content is not None and revision.base64 is not None for revision in (self, *self.revisions)):
            raise OptionError("there is content, and base64, too", remedy="leave one out")
        options, raw = context.state.files or FileOptions(), self.raw()
        if raw is not None and len(raw) > options.max_file_bytes:
            problem = f"{self.path!r} has {len(raw):,} bytes, {options.max_file_bytes:,} at most"
            raise FileQuotaError(problem, remedy="raise FileOptions(max_file_bytes=...)")
        self.revisions = self.revisions[-options.revisions :]
        size = sum(len(revision.raw() or b"") for revision in (self, *self.revisions))
        context.files.setdefault(self.path, (raw is not None, size))

    @staticmethod
    def check(context: Any) -> Plan[None]:
        """Raise `FileQuotaError` if an owner without files would have too much; others are told at the file that is."""
        tree, (lives, sizes) = Tree(context.state, context.owner), zip(*context.files.values(), strict=True)
        (exists,) = yield from send(("EXISTS", tree.keys[3]))
        for name, number in (("files", sum(lives)), ("bytes", sum(sizes))):
            if number > (limit := getattr(tree.options, f"max_{name}")) and not exists:
                problem = f"{context.owner!r} would have {number:,} {name} with those of the records, {limit:,} at most"
                raise FileQuotaError(f"{problem}; nothing was imported", remedy=f"raise FileOptions(max_{name}=...)")

    def write(self, context: Any) -> Plan[None]:
        """Write it with its revisions, unless another one is there."""
        tree = Tree(context.state, context.owner)
        older = [(revision.note(self.created_at, revision.at), revision.raw()) for revision in reversed(self.revisions)]
        file = Stored(self.path, self.note(self.created_at, self.updated_at), self.raw(), older)
        options = tree.options
        limits = (tree.ttl or "", options.revisions, options.max_bytes, options.max_files)
        status, *_ = yield from restore(tree, self.path, file, *limits)
        context.counts["files"] += status == b"ok" and file.content is not None
        if status in {b"known", b"taken"}:
            context.files_left.append(self.path)


def merge(state: MemoryState, source: str, into: str) -> Plan[dict[str, Any]]:
    """Give the files of an owner to another one, and return what the report of a merge says of it.

    Quotas do not count here. A file whose path the other one has, with another content, gets a path beside it. Every
    step can be repeated: a file that was moved already is recognised by its note.
    """
    source_tree, target_tree = Tree(state, source), Tree(state, into)
    moved: dict[str, Any] = {"files": 0, "files_renamed": {}}

    def move(file: Stored, path: str) -> Plan[None]:
        status, *blocked = yield from restore(target_tree, path, file, target_tree.ttl or "", "", "", "")
        while status == b"taken":
            path = beside(path, blocked[0].decode())
            status, *blocked = yield from restore(target_tree, path, file, target_tree.ttl or "", "", "", "")
        if status == b"ok" and file.content is not None:
            moved["files"] += 1
            if path != file.path:
                moved["files_renamed"][file.path] = path

    for paths in (yield from grouped(source_tree)):
        for file in (yield from _read(source_tree, paths)):
            yield from move(file, file.path)
    (was_ours,) = yield from send(LEAVE.call(source_tree.keys, merge_tombstone(into)))
    if not was_ours:
        raise UserDeletedError(source)
    return moved


def beside(path: str, blocked: str) -> str:
    """Return another path for a file, given what is in its way: a file of its path, or one where it needs a directory."""
    if path.startswith(f"{blocked}/"):
        return f"{blocked} (merged){path[len(blocked) :]}"
    directory, _, name = path.rpartition("/")
    stem, dot, ending = name.rpartition(".") if "." in name[1:] else (name, "", "")
    return f"{directory}/{stem} (merged){dot}{ending}"
