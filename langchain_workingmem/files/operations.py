"""The plans of files: scripts on the keys of one owner, which share a slot."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from langchain_workingmem import errors
from langchain_workingmem._engine.plan import Plan, compute, jittered, send
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem._text.values import shown
from langchain_workingmem.checks import LARGEST, check_ttl
from langchain_workingmem.files.paths import below, check_path
from langchain_workingmem.files.records import FileEdit, FileInfo, LineMatch, Note
from langchain_workingmem.options import FileOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from langchain_workingmem._engine.plan import Argument, Command
    from langchain_workingmem._redis.state import Core, MemoryState
    from langchain_workingmem.files.paths import Pattern

T = TypeVar("T")
# makes the new text, and tells how often something was changed, and in which line first
Maker: TypeAlias = Callable[["Tree", str, bytes], tuple[bytes, int, int]]

READ, HISTORY = (Script(f"files/{name}", "files/tree") for name in ("read", "history"))
CHANGE, REMOVE, RENAME = (
    Script(f"files/{name}", "files/tree", "files/changing") for name in ("change", "remove", "rename")
)
IS_DIRECTORY = "is a directory"  # what may be wrong with a path
DAMAGED = "is neither read nor changed, as Redis has evicted a part of the files of this owner"
MAX_BY = 200  # bytes of the name of a writer
GROUP = 500  # files that one round trip changes
PAGE = 2000  # files of a listing in one round trip
SEARCHED = 4 * 2**20  # bytes that a search reads in one round trip
MOST_LINES = 1000  # that an error names
MOST_TRIES = 100  # of an edit that others are faster than each time


def run_scripts(user_id: str, *calls: Command) -> Plan[list[Any]]:
    """Send calls of scripts over the files of a user; `UserDeletedError` while it is being deleted."""
    try:
        return (yield from send(*calls))
    except errors.RedisReplyError as error:
        if error.code == "WMDELETED":
            raise errors.UserDeletedError(user_id) from None
        raise


@dataclass(frozen=True, slots=True)
class Tree:
    """The files of one owner."""

    state: MemoryState
    user_id: str
    new_id: Callable[[], str] = str  # of a call that changes something; "" where none does

    @classmethod
    def of(cls, core: Core, user_id: str | None) -> Tree:
        """Check the owner."""
        return cls(core.state, check_id(user_id, "user_id"), core.new_id)

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of all scripts."""
        return self.state.keys.of_user(self.user_id).files

    @property
    def options(self) -> FileOptions:
        """Return the limits."""
        return self.state.files or FileOptions()

    @property
    def ttl(self) -> int | str:
        """Return the milliseconds until the files expire, 0: they stay; "" leaves that to others: it has no options."""
        return "" if self.state.files is None else check_ttl(self.options.ttl) or 0

    def run(self, script: Script, *arguments: Argument) -> Plan[list[Any]]:
        """Run a script. One round trip; one that changes something notes its token, so it may be repeated."""
        (reply,) = yield from run_scripts(self.user_id, script.call(self.keys, *arguments))
        return list(reply)

    def run_each(self, script: Script, each: Sequence[Sequence[Argument]]) -> Plan[list[list[Any]]]:
        """Run a script many times. One round trip per 500."""
        replies: list[list[Any]] = []
        for start in range(0, len(each), GROUP):
            calls = [script.call(self.keys, self.new_id(), *arguments) for arguments in each[start : start + GROUP]]
            replies += yield from run_scripts(self.user_id, *calls)
        return replies

    def change(
        self, path: str, by: str | None, base: Argument, what: str, content: Argument, kind: str = "", is_new: int = 0
    ) -> Plan[FileEdit]:
        """Write a revision of a file by `change.lua`; `base` is "" for any. One round trip."""
        options = self.options
        if isinstance(content, bytes) and len(content) > options.max_file_bytes:
            raise self.refusal(path, b"size", [len(content)])
        head = (self.new_id(), path, check_by(by), self.ttl, options.revisions, options.max_bytes, options.max_files)
        status, *reply = yield from self.run(CHANGE, *head, base, what, content, kind, is_new)
        if status != b"ok":
            raise self.refusal(path, status, reply, content)
        return FileEdit(FileInfo.of(path, reply[0]), 0, 0, changed=not reply[1])

    def read(self, path: str, revision: Argument = "") -> Plan[tuple[bytes, bytes]]:
        """Return the note and the content of a file. One round trip."""
        note, *content = (yield from self.run(READ, path, revision)) or [None]
        if note == 0:
            raise errors.FilePathError(path, IS_DIRECTORY, remedy="list it, or pass the path of a file")
        if note == 1 or (note and not content and not revision and Note.of(note).kind != "d"):
            raise self.refusal(path, b"damaged", ())
        if not content:
            raise errors.FileMissingError(path, None if revision == "" else int(revision))
        return note, content[0]

    def edit(self, path: str, by: str | None, base: int | None, what: str, make: Maker) -> Plan[tuple[FileEdit, bytes]]:
        """Write what `make` makes of the newest text, if nobody was faster; else again. Return the new text, too.

        Two round trips, and two more each time that others were faster.
        """
        tries = 0
        while True:
            note, raw = yield from self.read(path)
            info = FileInfo.of(path, note)
            if base is not None and info.revision != base:
                raise errors.FileConflictError(path, info.revision, raw.decode(errors="replace"))
            if not info.is_text:
                raise errors.FileEditError(path, "it holds bytes, no text", remedy="write it as a whole")
            text, times, line = yield from compute(partial(make, self, path, raw), 4 * len(raw))
            try:
                written = yield from self.change(path, by, note, what, text, "t")
                return replace(written, occurrences=times, line=line), text
            except errors.FileConflictError:
                tries += 1
                if base is not None or tries == MOST_TRIES:
                    raise
            yield jittered(0.001 * tries)

    def refusal(self, path: str, status: bytes, reply: Sequence[Any], value: Argument = "") -> errors.WorkingMemError:
        """Return the error for what a script has refused."""
        data: Any = reply[0] if reply else b""
        match status:
            case b"directory":
                return errors.FilePathError(data.decode(), IS_DIRECTORY, remedy="take another path, or delete it first")
            case b"below":
                problem = f"is below {data.decode()!r}, which is a file"
                return errors.FilePathError(path, problem, remedy="take another path")
            case b"exists":
                return errors.FilePathError(path, "exists", remedy="take another path, or replace or delete it")
            case b"missing":
                return errors.FileMissingError(path)
            case b"revision":
                return errors.FileMissingError(path, int(value))
            case b"conflict":
                return errors.FileConflictError(path, int(data), reply[1].decode(errors="replace"))
            case b"damaged":
                return damaged(path)
        limits = self.options
        subject, unit, limit = {
            b"size": (f"{path!r} would have", "bytes", limits.max_file_bytes),
            b"bytes": ("all files with their revisions would have", "bytes", limits.max_bytes),
            b"files": ("there are", "files", limits.max_files),
        }[status]
        remedy = "leave something out, or delete files for good that nobody needs"
        return errors.FileQuotaError(
            f"{subject} {int(data):,} {unit}, {limit:,} at most, so nothing was written", remedy=remedy
        )


def damaged(path: str) -> errors.FilePathError:
    """Return the error for files of which Redis has evicted a part."""
    remedy = "delete what is left, files.delete('/', purge=True), import an export, and set maxmemory-policy noeviction"
    return errors.FilePathError(path, DAMAGED, remedy=remedy)


def check_by(by: str | None) -> str:
    """Return the name of a writer; `OptionError` if it cannot be stored."""
    if by is None:
        return ""
    if not isinstance(by, str) or not by.isprintable() or len(by.encode(errors="replace")) > MAX_BY:
        raise errors.OptionError(f"by={by!r}", remedy=f"use a str of at most {MAX_BY} bytes without control characters")
    return by


def check_content(tree: Tree, path: str, content: object) -> tuple[bytes, str]:
    """Return the content of a file and its kind, as scripts take them."""
    if not isinstance(content, str | bytes | bytearray | memoryview):
        raise errors.OptionError(f"content is of type {type(content).__name__}", remedy="pass a str, or bytes")
    if len(content) > tree.options.max_file_bytes:
        raise tree.refusal(path, b"size", [len(content)])
    return (check_text(content, "content").encode(), "t") if isinstance(content, str) else (bytes(content), "b")


def check_text(text: object, name: str, limit: int = LARGEST) -> str:
    """Return a text; `OptionError` for what is none, or cannot be stored."""
    if not isinstance(text, str):
        raise errors.OptionError(f"{name} is of type {type(text).__name__}", remedy="pass a str")
    if len(text) > limit:
        raise errors.ArgumentError(
            f"{name} has {len(text):,} characters", remedy=f"use at most {limit:,}, as a file may have"
        )
    if not is_utf8(text):
        problem = f"{name} holds a lone surrogate, which UTF-8 cannot carry"
        raise errors.ArgumentError(problem, remedy="pass valid Unicode")
    return text


def find(tree: Tree, directory: str, matches: Pattern | None = None) -> Plan[list[FileInfo]]:
    """Return the files below a directory that match, by name. One round trip per 2,000 files that are there."""
    start, infos = below(directory), list[FileInfo]()
    low: Argument | None = f"[{start}"
    probe = [READ.call(tree.keys, "/", "")]  # no file has this path: it only tells whether Redis has evicted a part
    while low is not None:
        page = ("ZRANGE", tree.keys[1], low, f"({start[:-1]}0", "BYLEX", "LIMIT", 0, PAGE)  # 0 follows /
        members, *damage = yield from run_scripts(tree.user_id, page, *probe)
        if damage == [[1]]:
            raise damaged(directory)
        size = sum(map(len, members)) * (1 if matches is None else matches.size)
        infos += yield from compute(partial(_infos, members, matches), size)
        low, probe = b"(" + members[-1] if len(members) == PAGE else None, []
    return infos


def _infos(members: Sequence[bytes], matches: Pattern | None) -> list[FileInfo]:
    pairs = ((path.decode(), note) for path, _, note in (member.partition(b"\0") for member in members))
    return [FileInfo.of(path, note) for path, note in pairs if matches is None or matches(path)]


def find_deleted(tree: Tree, directory: str) -> Plan[list[str]]:
    """Return the paths below a directory that have only revisions. One round trip per 1,000 notes of the owner."""
    pattern = re.sub(r"([\\*?\[\]^-])", r"\\\1", below(directory)) + "*"
    paths, cursor = list[str](), None
    while cursor is None or int(cursor):
        ((cursor, notes),) = yield from send(("HSCAN", tree.keys[3], cursor or 0, "MATCH", pattern, "COUNT", 1000))
        names = [*notes][::2] if isinstance(notes, list) else notes
        paths += [name.decode() for name in names if b"\0" not in name]
    return paths


def slices(rows: Iterable[T], size_of: Callable[[T], int], most_bytes: int, most_rows: int) -> Iterator[list[T]]:
    """Divide rows into lists of at most so many bytes, and so many rows; a larger row stands alone."""
    step, size = list[T](), 0
    for row in rows:
        if step and (size + size_of(row) > most_bytes or len(step) == most_rows):
            yield step
            step, size = [], 0
        step.append(row)
        size += size_of(row)
    if step:
        yield step


def remove(tree: Tree, path: str, by: str | None, *, purge: bool) -> Plan[int]:
    """Delete a file, or each file below a directory; with `purge` also what was deleted there before."""
    arguments = (check_by(by), tree.ttl, tree.options.revisions, int(purge))

    def each(paths: Iterable[str]) -> Plan[list[int | None]]:  # 1: it was there, 0: only its revisions, None: neither
        replies = yield from tree.run_each(REMOVE, [(file, *arguments) for file in paths])
        if [b"damaged"] in replies:
            raise damaged(path)
        return [reply[1] if reply[0] == b"ok" else None for reply in replies]

    counts = (yield from each([path])) if path != "/" or purge else []
    if not any(counts):  # nothing is below a file
        paths = [info.path for info in (yield from find(tree, path))]
        deleted = (yield from find_deleted(tree, path)) if purge else []
        counts += yield from each(dict.fromkeys([*paths, *deleted]))
    if all(count is None for count in counts):
        raise errors.FileMissingError(path)
    return sum(count or 0 for count in counts)


def rename(tree: Tree, path: str, new_path: str, by: str | None) -> Plan[int]:
    """Rename a file, or each file below a directory."""
    arguments, max_bytes = (check_by(by), tree.ttl, tree.options.revisions), tree.options.max_bytes
    ((status, *reply),) = yield from tree.run_each(RENAME, [(path, *arguments, new_path, max_bytes)])
    if status == b"ok":
        return 1
    if status != b"tree":
        raise tree.refusal(path if status == b"missing" else new_path, status, reply)
    existing = {info.path for info in (yield from find(tree, new_path))}
    moves = [(info.path, new_path + info.path[len(path) :]) for info in (yield from find(tree, path))]
    for taken in (target for _, target in moves if target in existing):
        raise tree.refusal(taken, b"exists", ())
    replies = yield from tree.run_each(RENAME, [(old, *arguments, target, max_bytes) for old, target in moves])
    for (_, target), (status, *reply) in zip(moves, replies, strict=True):
        if status not in {b"ok", b"missing"}:  # missing: it was renamed or deleted by others meanwhile
            raise tree.refusal(target, status, reply)
    return sum(status == b"ok" for status, *_ in replies)


def edit(
    core: Core, path: str, old: str, new: str, user_id: str, by: str | None, *, everywhere: bool = False
) -> Plan[tuple[FileEdit, bytes]]:
    """Replace a passage, as `Files.edit` says, and return the new text, too."""
    tree = Tree.of(core, user_id)
    limit = tree.options.max_file_bytes
    if not check_text(old, "old", limit):
        raise errors.ArgumentError("old is empty", remedy="pass the text to replace, or write a new file")
    if check_text(new, "new", limit) == old:
        raise errors.ArgumentError("old and new are the same", remedy="pass another text as new")
    return tree.edit(check_path(path), check_by(by), None, "edit", replacing(old, new, everywhere=everywhere))


def replacing(old: str, new: str, *, everywhere: bool) -> Maker:
    """Return what replaces a passage; it takes a time that grows with the text alone."""
    old_bytes, new_bytes = old.encode(), new.encode()

    def make(tree: Tree, path: str, raw: bytes) -> tuple[bytes, int, int]:
        count, limit = raw.count(old_bytes), 1 if everywhere else MOST_LINES
        if not count:
            remedy = "read the file again, and copy the passage as it is, with its blanks and line ends"
            raise errors.FileEditError(path, f"{shown(old)} is not in it", remedy=remedy)
        lines, position, line = list[int](), 0, 1
        while len(lines) < min(count, limit):
            start = raw.index(old_bytes, position)
            line += raw.count(b"\n", position, start)
            lines.append(line)
            position, line = start + len(old_bytes), line + old_bytes.count(b"\n")
        if count > 1 and not everywhere:
            problem = f"{shown(old)} appears {count} times, in lines {', '.join(map(str, lines[:20]))}"
            remedy = "take more of the text around it, or replace all"
            raise errors.FileEditError(path, problem, remedy=remedy, lines=tuple(lines))
        size = len(raw) + count * (len(new_bytes) - len(old_bytes))
        if size > tree.options.max_file_bytes:  # such a text is not made
            raise tree.refusal(path, b"size", [size])
        return raw.replace(old_bytes, new_bytes), count, lines[0]

    return make


def inserting(line: int, text: str) -> Maker:
    """Return what inserts lines after a line; -1 is the last one."""
    new = text.encode()

    def make(_: Tree, path: str, raw: bytes) -> tuple[bytes, int, int]:
        raw += b"\n" * (raw[-1:] not in (b"", b"\n"))  # whole lines
        count = raw.count(b"\n")
        after = count if line == -1 else line
        if after > count:
            problem = f"it has {count} lines, and line {line} was asked for"
            raise errors.FileEditError(path, problem, remedy=f"use a line from 0 to {count}", lines=(count,))
        tail = raw.split(b"\n", after)[after]
        return raw[: len(raw) - len(tail)] + new + tail, 1, after + 1

    return make


def grep(tree: Tree, text: str, path: str, matches: Pattern | None, limit: int) -> Plan[list[LineMatch]]:
    """Find the lines that hold a text, in the file `path` or in those below it. A round trip per 4 MiB of texts."""
    if "\n" in text:
        return []
    infos = [info for info in (yield from find(tree, path, matches)) if info.is_text]
    if not infos and (matches is None or matches(path)):  # it may be a file
        (members,) = yield from send(("ZRANGE", tree.keys[1], f"[{path}\0", f"({path}\1", "BYLEX"))
        infos = [info for info in _infos(members, None) if info.is_text]
    hits: list[LineMatch] = []
    for step in slices(infos, lambda info: info.size, SEARCHED, GROUP):
        if len(hits) < limit:
            (texts,) = yield from send(("HMGET", tree.keys[2], *(info.path for info in step)))
            rows = [(info.path, raw) for info, raw in zip(step, texts, strict=True) if raw]  # else deleted meanwhile
            search = partial(_lines, rows, text.encode(), limit - len(hits))
            hits += yield from compute(search, 4 * sum(len(raw) for _, raw in rows))
    return hits


def _lines(rows: Sequence[tuple[str, bytes]], needle: bytes, limit: int) -> list[LineMatch]:
    hits: list[LineMatch] = []
    for path, raw in rows:
        position, line = 0, 1  # where a line begins, and its number
        while len(hits) < limit and (index := raw.find(needle, position)) >= 0:
            line_start = max(position, raw.rfind(b"\n", position, index) + 1)
            end = raw.find(b"\n", index)
            end = len(raw) if end < 0 else end
            line += raw.count(b"\n", position, line_start)
            hits.append(LineMatch(path, line, raw[line_start:end].decode(errors="replace")))
            position, line = end + 1, line + 1
    return hits
