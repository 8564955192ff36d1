"""The public part of files, `memory.files`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from langchain_workingmem._engine.plan import send
from langchain_workingmem._redis.state import Operations, operation, twin
from langchain_workingmem._text.values import shown
from langchain_workingmem.checks import at_least, one_of
from langchain_workingmem.errors import ArgumentError, FileMissingError, FilePathError
from langchain_workingmem.files import operations as plans
from langchain_workingmem.files.operations import Tree, check_by, check_content, check_text
from langchain_workingmem.files.paths import Pattern, below, check_directory, check_path
from langchain_workingmem.files.records import File, FileEdit, FileInfo, FileRevision, FileUsage, LineMatch

if TYPE_CHECKING:
    import builtins

    from langchain_workingmem._engine.plan import Plan

IfExists = Literal["replace", "error"]


class Files(Operations):
    """Files of a user, a team or an agent: one tree for each owner, as `memory.files`.

    Paths are absolute, such as "/notes/plan.md". A directory exists while there is a file below it. Content is text or
    bytes. Each change makes a revision, unless it changes nothing; `by` says who makes it. Ten older revisions of a
    file are kept (`FileOptions`), also of a deleted one. Every operation is atomic, and takes one round trip, unless it
    says otherwise.

    No edit is lost: it is applied to the newest text, and once, also if it is sent again after a lost reply. What Redis
    has evicted in part is neither read nor changed (`FilePathError`). Errors: `FilePathError`, `FileMissingError`,
    `FileQuotaError`, and `UserDeletedError` while the owner is being deleted.
    """

    @operation
    def read(self, path: str, *, user_id: str, revision: int | None = None) -> Plan[File]:
        """Return a file with its content, or an older revision of it that is still kept."""
        number = "" if revision is None else at_least(revision, 1, "revision")
        file_path = check_path(path)
        note, content = yield from Tree.of(self._core, user_id).read(file_path, number)
        info = FileInfo.of(file_path, note)
        return File(info, content.decode() if info.is_text else content)

    aread = twin(read)

    @operation
    def write(
        self,
        path: str,
        content: str | bytes,
        *,
        user_id: str,
        if_exists: IfExists = "replace",
        base_revision: int | None = None,
        by: str | None = None,
    ) -> Plan[FileEdit]:
        """Write a file as a whole, with the directories above it.

        With `if_exists="error"` an existing file raises `FilePathError`. `base_revision` is the revision that the
        caller has read, 0 for none. If others have changed the file since, `FileConflictError` has the text as it is
        now, and nothing is written.
        """
        replaces = one_of(if_exists, get_args(IfExists), "if_exists") == "replace"
        base = "" if base_revision is None else at_least(base_revision, 0, "base_revision")
        tree, file_path = Tree.of(self._core, user_id), check_path(path)
        data, kind = check_content(tree, file_path, content)
        return tree.change(file_path, by, base, "write", data, kind, int(not replaces))

    awrite = twin(write)

    @operation
    def edit(
        self, path: str, old: str, new: str, *, user_id: str, replace_all: bool = False, by: str | None = None
    ) -> Plan[FileEdit]:
        """Replace the passage `old` by `new` in the newest text.

        It must be there exactly once, or with `replace_all` at least once; else `FileEditError` names the lines, and
        nothing changes. Two round trips, and two more each time that others have changed the file between them.
        """
        return (yield from plans.edit(self._core, path, old, new, user_id, by, everywhere=replace_all))[0]

    aedit = twin(edit)

    @operation
    def insert(
        self, path: str, line: int, text: str, *, user_id: str, base_revision: int | None = None, by: str | None = None
    ) -> Plan[FileEdit]:
        """Insert `text` as lines after line number `line`; 0 is in front of the first, -1 behind the last one.

        Numbers move when others insert lines: `base_revision` guards against that, as in `write`. Cost as of `edit`.
        """
        at_least(line, -1, "line")
        base = None if base_revision is None else at_least(base_revision, 1, "base_revision")
        tree, file_path = Tree.of(self._core, user_id), check_path(path)
        make = plans.inserting(line, check_text(text, "text", tree.options.max_file_bytes).removesuffix("\n") + "\n")
        return (yield from tree.edit(file_path, check_by(by), base, "insert", make))[0]

    ainsert = twin(insert)

    @operation
    def list(self, path: str = "/", *, user_id: str) -> Plan[builtins.list[FileInfo]]:
        """Return the files and directories in a directory, by name; [] if there is none. Cost as of `glob`."""
        directory = check_directory(path)
        start, entries = below(directory), dict[str, FileInfo]()
        for info in (yield from plans.find(Tree.of(self._core, user_id), directory)):
            name, slash, _ = info.path[len(start) :].partition("/")
            entries.setdefault(name, FileInfo(f"{start}{name}", is_dir=True) if slash else info)
        return [*entries.values()]

    alist = twin(list)  # noqa: A003 - the method, as everywhere

    @operation
    def glob(self, pattern: str, *, user_id: str, path: str = "/") -> Plan[builtins.list[FileInfo]]:
        """Return the files below `path` that match a pattern, by name.

        A pattern without a slash is for the last name at any depth: `*.py`. With one it is for the path below `path`:
        `src/**/*.py`. `*`, `**`, `?`, `[abc]`, `[!abc]` and `{a,b}` are understood, as wcmatch does (extra `files`). A
        name that begins with a dot is matched only by a pattern that does. Limits: 1,024 characters; with braces 100
        patterns, and 4,096 characters of them all. One round trip per 2,000 files below `path`.
        """
        directory = check_directory(path)
        matches = Pattern(check_text(pattern, "pattern"), directory)
        return plans.find(Tree.of(self._core, user_id), directory, matches)

    aglob = twin(glob)

    @operation
    def grep(
        self, text: str, *, user_id: str, path: str = "/", glob: str | None = None, limit: int = 1000
    ) -> Plan[builtins.list[LineMatch]]:
        """Return the lines that hold a text as it is, in text files at or below `path`, by file and line.

        `glob` restricts the files as in `glob`. Round trips of `glob`, and one for each 500 files or 4 MiB of texts.
        """
        tree = Tree.of(self._core, user_id)
        if not check_text(text, "text", tree.options.max_file_bytes) or "\n" in text:
            raise ArgumentError(f"text={shown(text)}", remedy="pass the text to look for, without line ends")
        at_least(limit, 1, "limit")
        directory = check_directory(path)
        matches = None if glob is None else Pattern(check_text(glob, "glob"), directory)
        return plans.grep(tree, text, directory, matches, limit)

    agrep = twin(grep)

    @operation
    def rename(self, path: str, new_path: str, *, user_id: str, by: str | None = None) -> Plan[int]:
        """Rename a file with its revisions, or each file below a directory; return how many files that were.

        `FilePathError` if there is a file at a new path. The files of a directory are renamed one by one, 500 in a
        round trip. If that is interrupted, the same call renames the others. Revisions come along up to 4 MiB.
        """
        old, new = check_directory(path), check_directory(new_path, "new_path")
        if "/" in (old, new) or new == old or new.startswith(f"{old}/"):
            raise FilePathError(new_path, f"cannot be the new path of {old!r}", remedy="take one outside of it")
        return plans.rename(Tree.of(self._core, user_id), old, new, by)

    arename = twin(rename)

    @operation
    def delete(self, path: str, *, user_id: str, purge: bool = False, by: str | None = None) -> Plan[int]:
        """Delete a file, or all files below a directory, and return how many there were.

        `revert` brings a file back, unless `purge=True`, which forgets all its revisions, also of a file that was
        deleted before. The files of a directory are deleted one by one, 500 in a round trip; if that is interrupted,
        call it again. With `purge=True` "/" goes in one step.
        """
        return plans.remove(Tree.of(self._core, user_id), check_directory(path), by, purge=purge)

    adelete = twin(delete)

    @operation
    def history(self, path: str, *, user_id: str, limit: int = 100) -> Plan[builtins.list[FileRevision]]:
        """Return the revisions of a file that are kept, the newest first; also of a deleted file."""
        file_path = check_path(path)
        notes = yield from Tree.of(self._core, user_id).run(plans.HISTORY, file_path, at_least(limit, 1, "limit"))
        if not notes:
            raise FileMissingError(file_path)
        return [FileRevision.of(file_path, note) for note in notes]

    ahistory = twin(history)

    @operation
    def revert(self, path: str, revision: int, *, user_id: str, by: str | None = None) -> Plan[FileEdit]:
        """Write the content of an older revision as a new one; it brings a deleted file back."""
        tree, file_path = Tree.of(self._core, user_id), check_path(path)
        return tree.change(file_path, by, "", "revert", at_least(revision, 1, "revision"))

    arevert = twin(revert)

    @operation
    def usage(self, *, user_id: str) -> Plan[FileUsage]:
        """Return how many files an owner has, and how many bytes they and their revisions take."""
        key = Tree.of(self._core, user_id).keys[3]
        ((files, size),) = yield from send(("HMGET", key, "count", "bytes"))
        return FileUsage(int(files or 0), int(size or 0))

    ausage = twin(usage)
