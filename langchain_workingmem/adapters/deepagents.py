"""Files as a backend of deepagents: `create_deep_agent(backend=FilesBackend(memory))`."""

from __future__ import annotations

import base64
from functools import partial, wraps
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from deepagents.backends.protocol import (
    FILE_NOT_FOUND,
    INVALID_PATH,
    IS_DIRECTORY,
    BackendProtocol,
    DeleteResult,
    EditResult,
    FileData,
    FileDownloadResponse,
    FileInfo,
    FileUploadResponse,
    GlobResult,
    GrepMatch,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)
from deepagents.backends.utils import slice_read_response

from langchain_workingmem._engine.plan import compute
from langchain_workingmem._redis.state import operation, plan_of, twin
from langchain_workingmem.adapters import OfOwner, named
from langchain_workingmem.errors import (
    OF_FILES,
    FileMissingError,
    FilePathError,
    FileQuotaError,
    OptionError,
    ReadOnlyError,
)
from langchain_workingmem.faces.tools import for_model
from langchain_workingmem.files import Files, Pattern, Tree, check_directory, find, grep

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.faces import Owner
    from langchain_workingmem.files import File, LineMatch
    from langchain_workingmem.files import FileInfo as Info
    from langchain_workingmem.memory import Memory

P = ParamSpec("P")
R = TypeVar("R")

MOST = 10_000  # lines that a search without `max_count` returns
_READ, _WRITE, _EDIT = plan_of(Files.read), plan_of(Files.write), plan_of(Files.edit)
_LIST, _DELETE = plan_of(Files.list), plan_of(Files.delete)
# deepagents shows these to a model as they are, so they are never cut by lines
# fmt: off
_MEDIA = {
    ".png", ".jpeg", ".jpg", ".webp", ".gif", ".heic", ".heif", ".mp4", ".mpeg", ".mov", ".avi", ".flv", ".mpg", ".webm", ".wmv",
    ".3gpp", ".mkv", ".wav", ".mp3", ".aiff", ".aac", ".ogg", ".flac", ".pdf", ".ppt", ".pptx",
}
# fmt: on


def _told_in(result: Callable[..., R], intro: str = "") -> Callable[[Callable[P, Plan[R]]], Callable[P, Plan[R]]]:
    """Tell what was refused in a field of the result, as deepagents wants it."""

    def telling(plan: Callable[P, Plan[R]]) -> Callable[P, Plan[R]]:
        @wraps(plan)
        def run(*args: P.args, **options: P.kwargs) -> Plan[R]:
            try:
                return (yield from plan(*args, **options))
            except FileMissingError as error:
                return result(error=f"{intro}File '{error.path}' not found")
            except (*OF_FILES, OptionError, ReadOnlyError) as error:
                return result(error=f"{intro}{for_model(error, plan.__name__)}")

        return run

    return telling


class FilesBackend(OfOwner, BackendProtocol):
    """A backend of deepagents on `memory.files`: parallel edits are all kept, files have revisions, and users their own tree.

    `user_id` fixes the owner: an id, such as that of a team, or a function of the `Ids` that the run names. Without it the files are
    those of the user of the run, found as in `memory.tools`. Each method takes one round trip (`grep` two or more) and has an async twin without threads. `by` is written into the revisions. Errors of files are results,
    as deepagents wants them; a server that is away raises.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        user_id: str | Owner | None = None,
        by: str | None = "agent",
        trust_client_ids: bool = False,
    ) -> None:
        super().__init__(memory, user_id, by, trust_client_ids=trust_client_ids)

    @operation
    @_told_in(LsResult)
    def ls(self, path: str) -> Plan[LsResult]:
        """List a directory; directories end with a slash."""
        found = yield from _LIST(self.files, _absolute(path), user_id=self.owner)
        return LsResult(entries=(yield from compute(lambda: [*map(_info, found)], 100 * len(found))))

    als = twin(ls)

    @operation
    @_told_in(ReadResult)
    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> Plan[ReadResult]:
        """Read lines of a file, or a file that is no text, as base64."""
        file = yield from _READ(self.files, _absolute(file_path), user_id=self.owner)
        is_whole = not file.info.is_text or PurePosixPath(file_path).suffix.lower() in _MEDIA

        def shown() -> ReadResult:
            data = _data(file)
            return ReadResult(file_data=data) if is_whole else slice_read_response(data, offset, limit)

        return (yield from compute(shown, 4 * file.info.size))

    aread = twin(read)

    @operation
    @_told_in(WriteResult, "Error: ")
    def write(self, file_path: str, content: str) -> Plan[WriteResult]:
        """Write a file, also over one that exists: its text stays as a revision."""
        yield from _WRITE(self.files, _absolute(file_path), content, user_id=self.writer, by=self._by)
        return WriteResult(path=file_path)

    awrite = twin(write)

    @operation
    @_told_in(EditResult, "Error: ")
    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> Plan[EditResult]:  # noqa: FBT001, FBT002 - as the protocol has it
        """Replace a text in the newest revision, on the server."""
        how: Any = {"user_id": self.writer, "by": self._by, "replace_all": replace_all}
        made = yield from _EDIT(self.files, _absolute(file_path), old_string, new_string, **how)
        return EditResult(path=file_path, occurrences=made.occurrences)

    aedit = twin(edit)

    @operation
    @_told_in(DeleteResult, "Error: ")
    def delete(self, file_path: str) -> Plan[DeleteResult]:
        """Delete a file, or all files below a directory; `memory.files.revert` brings one back."""
        yield from _DELETE(self.files, _absolute(file_path), user_id=self.writer, by=self._by)
        return DeleteResult(path=file_path)

    adelete = twin(delete)

    @operation
    @_told_in(GrepResult)
    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> Plan[GrepResult]:
        """Find the lines that hold a text as it is."""
        most, root = MOST if max_count is None else max_count, check_directory(_absolute(path))
        if not pattern:
            return GrepResult(matches=[])
        matches = Pattern(glob, root) if glob else None
        found = yield from grep(Tree.of(self._core, self.owner), pattern, root, matches, most + 1)
        size = sum(len(one.text) for one in found)
        lines = yield from compute(partial(_matches, found[:most]), size)
        return GrepResult(matches=lines, truncated=len(found) > most)

    agrep = twin(grep)

    @operation
    @_told_in(GlobResult)
    def glob(self, pattern: str, path: str | None = None) -> Plan[GlobResult]:
        """Find files by a pattern of their paths, the last changed first."""
        root = check_directory(_absolute(path))
        found = yield from find(Tree.of(self._core, self.owner), root, Pattern(pattern, root))
        newest = sorted(found, key=lambda one: one.updated_at, reverse=True)
        return GlobResult(matches=(yield from compute(lambda: [*map(_info, newest)], 100 * len(newest))))

    aglob = twin(glob)

    @operation
    def upload_files(self, files: list[tuple[str, bytes]]) -> Plan[list[FileUploadResponse]]:
        """Write files as they are: UTF-8 as text, else bytes. One round trip each."""
        done = []
        for path, content in files:
            problem = None
            try:
                text: str | bytes = content.decode()
            except UnicodeDecodeError:
                text = content
            try:
                yield from _WRITE(self.files, _absolute(path), text, user_id=self.writer, by=self._by)
            except FilePathError as error:
                problem = _code(error)
            except (FileQuotaError, ReadOnlyError) as error:
                problem = str(error)
            done.append(FileUploadResponse(path=path, error=problem))
        return done

    aupload_files = twin(upload_files)

    @operation
    def download_files(self, paths: list[str]) -> Plan[list[FileDownloadResponse]]:
        """Read files as they are. One round trip each."""
        owner, done = self.owner, []
        for path in paths:
            content, problem = None, None
            try:
                found = (yield from _READ(self.files, _absolute(path), user_id=owner)).content
                content = found.encode() if isinstance(found, str) else found
            except FileMissingError:
                problem = FILE_NOT_FOUND
            except FilePathError as error:
                problem = _code(error)
            done.append(FileDownloadResponse(path=path, content=content, error=problem))
        return done

    adownload_files = twin(download_files)


def _info(one: Info) -> FileInfo:
    path, changed = (f"{one.path}/", "") if one.is_dir else (one.path, one.updated_at.isoformat())
    return {"path": path, "is_dir": one.is_dir, "size": one.size, "modified_at": changed}


def _matches(found: list[LineMatch]) -> list[GrepMatch]:
    return [{"path": one.path, "line": one.line, "text": named(one.text)} for one in found]


def _data(file: File) -> FileData:
    content, times = file.content, file.info
    return {
        "content": named(content) if isinstance(content, str) else base64.standard_b64encode(content).decode(),
        "encoding": "utf-8" if isinstance(content, str) else "base64",
        "created_at": times.created_at.isoformat(),
        "modified_at": times.updated_at.isoformat(),
    }


def _code(error: FilePathError) -> str:
    return IS_DIRECTORY if error.problem.endswith(" a directory") else INVALID_PATH


def _absolute(path: str | None) -> str:
    """Return a path from the root on: deepagents' own backends take "notes.md", too."""
    return path if path and path.startswith("/") else f"/{path or ''}"
