"""The plans of files: scripts on the keys of one owner, which share a slot."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.values import shown
from langchain_workingmem.checks import check_ttl
from langchain_workingmem.errors import (
    ArgumentError,
    FileConflictError,
    FileEditError,
    FileMissingError,
    FilePathError,
    FileQuotaError,
    OptionError,
    RedisReplyError,
    UserDeletedError,
    WorkingMemError,
)
from langchain_workingmem.files.paths import below
from langchain_workingmem.files.records import FileEdit, FileInfo, LineMatch
from langchain_workingmem.options import FileOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_workingmem._engine.plan import Argument, Command
    from langchain_workingmem._redis.state import Core

CHANGE, READ, HISTORY, GREP, REMOVE, RENAME = (
    Script(f"files/{name}", "files/tree") for name in ("change", "read", "history", "grep", "remove", "rename")
)
MAX_BY = 200  # bytes of the name of a writer
GROUP = 500  # files of one round trip


def run_scripts(user_id: str, *calls: Command) -> Plan[list[Any]]:
    """Send calls of scripts over the files of a user; `UserDeletedError` while it is being deleted."""
    try:
        return (yield from send(*calls))
    except RedisReplyError as error:
        if error.code == "WMDELETED":
            raise UserDeletedError(user_id) from None
        raise


@dataclass(frozen=True, slots=True)
class Tree:
    """The files of one owner."""

    core: Core
    user_id: str

    @classmethod
    def of(cls, core: Core, user_id: str | None) -> Tree:
        """Check the owner."""
        return cls(core, check_id(user_id, "user_id"))

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of all scripts."""
        return self.core.state.keys.of_user(self.user_id).files

    @property
    def options(self) -> FileOptions:
        """Return the limits."""
        return self.core.state.files or _DEFAULT

    @property
    def ttl(self) -> int | str:
        """Return the milliseconds until the files expire, 0: they stay; "" leaves that to others, as this program has no options."""
        return "" if self.core.state.files is None else check_ttl(self.options.ttl) or 0

    def run(self, script: Script, *arguments: Argument) -> Plan[list[Any]]:
        """Run a script. One round trip; one that changes something notes its token, so it may be repeated."""
        (reply,) = yield from run_scripts(self.user_id, script.call(self.keys, *arguments))
        return list(reply)

    def run_each(self, script: Script, each: Sequence[Sequence[Argument]]) -> Plan[list[list[Any]]]:
        """Run a script many times. One round trip per 500."""
        replies: list[list[Any]] = []
        for start in range(0, len(each), GROUP):
            calls = [script.call(self.keys, *arguments) for arguments in each[start : start + GROUP]]
            replies += yield from run_scripts(self.user_id, *calls)
        return replies

    def change(self, path: str, by: str | None, base: int | None, what: str, *arguments: Argument) -> Plan[FileEdit]:
        """Change a file by `change.lua`. One round trip."""
        options = self.options
        limits = (options.revisions, options.max_file_bytes, options.max_bytes, options.max_files)
        head = (self.core.new_id(), path, check_by(by), self.ttl, *limits, "" if base is None else base, what)
        status, *reply = yield from self.run(CHANGE, *head, *arguments)
        if status != b"ok":
            raise self.refusal(path, status, reply, arguments)
        note, times, line, is_same = reply
        return FileEdit(info_of(path, note), int(times), int(line), changed=not is_same)

    def refusal(
        self, path: str, status: bytes, reply: Sequence[Any], asked: Sequence[Argument] = ()
    ) -> WorkingMemError:
        """Return the error for what a script has refused."""
        seen: Any = reply[0] if reply else b""
        match status:
            case b"directory":
                remedy = "take another path, or delete the directory first"
                return FilePathError(seen.decode(), "is a directory", remedy=remedy)
            case b"below":
                return FilePathError(path, f"is below {seen.decode()!r}, which is a file", remedy="take another path")
            case b"exists":
                return FilePathError(path, "exists", remedy="take another path, or replace or delete it")
            case b"missing":
                return FileMissingError(path)
            case b"revision":
                return FileMissingError(path, int(asked[0]))
            case b"conflict":
                return FileConflictError(path, int(seen), reply[1].decode(errors="replace"))
            case b"binary":
                return FileEditError(path, "it holds bytes, no text", remedy="write it as a whole")
            case b"lines":
                problem = f"it has {seen} lines, and line {asked[0]!r} was asked for"
                return FileEditError(path, problem, remedy=f"use a line from 0 to {seen}", lines=(int(seen),))
            case b"times" if not reply:
                remedy = "read the file again, and copy the passage as it is, with its blanks and line ends"
                return FileEditError(path, f"{shown(asked[0])} is not in it", remedy=remedy)
            case b"times":
                problem = f"{shown(asked[0])} is in it {len(reply)} times, in lines {', '.join(map(str, reply[:20]))}"
                remedy = "take more of the text around it, or replace all"
                return FileEditError(path, problem, remedy=remedy, lines=tuple(map(int, reply)))
        limits = self.options
        begin, unit, most = {
            b"size": (f"{path!r} would have", "bytes", limits.max_file_bytes),
            b"bytes": ("all files with their revisions would have", "bytes", limits.max_bytes),
            b"files": ("there are", "files", limits.max_files),
        }[status]
        remedy = "leave something out, or delete files for good that nobody needs"
        return FileQuotaError(f"{begin} {int(seen):,} {unit}, {most:,} at most, so nothing was written", remedy=remedy)


_DEFAULT = FileOptions()


def check_by(by: str | None) -> str:
    """Return the name of a writer; `OptionError` if it cannot be stored."""
    if by is None:
        return ""
    if not isinstance(by, str) or not by.isprintable() or len(by.encode(errors="replace")) > MAX_BY:
        raise OptionError(f"by={by!r}", remedy=f"use a str of at most {MAX_BY} bytes without control characters")
    return by


def check_content(content: object) -> tuple[Argument, str]:
    """Return the content of a file and its kind, as scripts take them."""
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content), "b"
    if not isinstance(content, str):
        raise OptionError(f"content is of type {type(content).__name__}", remedy="pass a str, or bytes")
    return check_text(content, "content"), "t"


def check_text(text: object, name: str) -> str:
    """Return a text; `OptionError` for what is none, or cannot be stored."""
    if not isinstance(text, str):
        raise OptionError(f"{name} is of type {type(text).__name__}", remedy="pass a str")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            seen = f"{name} holds a lone surrogate, which UTF-8 cannot carry"
            raise ArgumentError(seen, remedy="pass valid Unicode") from None
    return text


def info_of(path: str, note: bytes) -> FileInfo:
    """Make the record of a file."""
    return FileInfo.of(path.encode() + b"\0" + note)


def find(tree: Tree, directory: str, matches: Callable[[str], object] | None = None) -> Plan[list[FileInfo]]:
    """Return the files below a directory that match, by name. One round trip."""
    start = below(directory)
    (members,) = yield from send(("ZRANGE", tree.keys[1], f"[{start}", f"({start[:-1]}0", "BYLEX"))
    return [FileInfo.of(one) for one in members if matches is None or matches(one.partition(b"\0")[0].decode())]


def remove(tree: Tree, path: str, by: str | None, *, purge: bool) -> Plan[int]:
    """Delete a file, or each file below a directory; with `purge` also what was deleted there before."""
    replies: list[int | None] = []
    if path != "/":
        replies = yield from _remove_each(tree, [path], by, purge=purge)
    if not any(replies):  # nothing is below a file
        paths = [one.path for one in (yield from find(tree, path))]
        if purge:
            pattern = re.sub(r"([\\*?\[\]^-])", r"\\\1", below(path)) + "*"
            cursor: Any = None
            while cursor is None or int(cursor):
                ((cursor, notes),) = yield from send(
                    ("HSCAN", tree.keys[3], cursor or 0, "MATCH", pattern, "COUNT", 1000)
                )
                names = [*notes][::2] if isinstance(notes, list) else notes
                paths += [name.decode() for name in names if b"\0" not in name]
        replies += yield from _remove_each(tree, [*dict.fromkeys(paths)], by, purge=purge)
    if all(one is None for one in replies):
        raise FileMissingError(path)
    return sum(one or 0 for one in replies)


def _remove_each(tree: Tree, paths: Sequence[str], by: str | None, *, purge: bool) -> Plan[list[int | None]]:
    """Delete files; tell of each whether it was there: 1, 0: only its revisions, None: neither."""
    rest = (check_by(by), tree.ttl, tree.options.revisions, int(purge))
    replies = yield from tree.run_each(REMOVE, [(tree.core.new_id(), path, *rest) for path in paths])
    return [reply[1] if reply[0] == b"ok" else None for reply in replies]


def rename(tree: Tree, path: str, new_path: str, by: str | None) -> Plan[int]:
    """Rename a file, or each file below a directory."""
    rest = (check_by(by), tree.ttl, tree.options.revisions, tree.options.max_bytes)
    ((status, *reply),) = yield from tree.run_each(RENAME, [(tree.core.new_id(), path, new_path, *rest)])
    if status == b"ok":
        return 1
    if status != b"tree":
        raise tree.refusal(path if status == b"missing" else new_path, status, reply)
    inside = yield from find(tree, path)
    there = {one.path for one in (yield from find(tree, new_path))}
    moves = [(one.path, new_path + one.path[len(path) :]) for one in inside]
    for _, to in moves:
        if to in there:
            raise tree.refusal(to, b"exists", ())
    replies = yield from tree.run_each(RENAME, [(tree.core.new_id(), *move, *rest) for move in moves])
    for (_, to), (status, *reply) in zip(moves, replies, strict=True):
        if status not in {b"ok", b"missing"}:  # missing: it was renamed or deleted by others meanwhile
            raise tree.refusal(to, status, reply)
    return sum(status == b"ok" for status, *_ in replies)


def grep(
    tree: Tree, text: str, path: str, matches: Callable[[str], object] | None, limit: int
) -> Plan[list[LineMatch]]:
    """Find the lines that hold a text, in the file `path` or in those below it."""
    paths = [one.path for one in (yield from find(tree, path, matches))]
    if not paths and path != "/" and (matches is None or matches(path)):
        paths = [path]
    found: list[LineMatch] = []
    while paths and len(found) < limit:
        done, *hits = yield from tree.run(GREP, text, limit - len(found), *paths[:GROUP])
        triples = zip(hits[::3], hits[1::3], hits[2::3], strict=True)
        found += [LineMatch(name.decode(), int(line), hit.decode(errors="replace")) for name, line, hit in triples]
        paths = paths[done:]
    return found[:limit]
