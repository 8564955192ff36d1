"""Files as a backend of deepagents: `create_deep_agent(backend=FilesBackend(memory))`."""

from __future__ import annotations

import base64
import re
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from deepagents.backends import protocol
from deepagents.backends.utils import slice_read_response

from langchain_workingmem._engine.plan import compute
from langchain_workingmem._redis.state import operation, plan_of, twin
from langchain_workingmem.adapters import FilesOfOwner, spell_hidden
from langchain_workingmem.errors import OF_FILES, FileMissingError, FilePathError, OptionError, ReadOnlyError
from langchain_workingmem.faces.tools import for_model
from langchain_workingmem.files import Files
from langchain_workingmem.files.operations import DAMAGED, Tree, check_text, find, grep
from langchain_workingmem.files.paths import Pattern, check_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.files import File, FileInfo

P = ParamSpec("P")
R = TypeVar("R")

MOST, LONGEST = 10_000, 10_000  # lines that a search without `max_count` returns, and characters of each
_READ, _WRITE, _EDIT = plan_of(Files.read), plan_of(Files.write), plan_of(Files.edit)
_LIST, _DELETE = plan_of(Files.list), plan_of(Files.delete)
# deepagents shows these to a model as they are, so they are never cut by lines
_MEDIA = re.compile(
    r".*\.(png|jpe?g|webp|gif|hei[cf]|mp4|mpe?g|mov|avi|flv|webm|wmv|3gpp|mkv|wav|mp3|aiff|aac|ogg|flac|pdf|pptx?)",
    re.IGNORECASE | re.DOTALL,
)


def _errors_in(result: Callable[..., R], intro: str = "") -> Callable[[Callable[P, Plan[R]]], Callable[P, Plan[R]]]:
    """Tell what was refused in a field of the result, as deepagents wants it."""

    def decorate(plan: Callable[P, Plan[R]]) -> Callable[P, Plan[R]]:
        @wraps(plan)
        def run(*args: P.args, **options: P.kwargs) -> Plan[R]:
            try:
                return (yield from plan(*args, **options))
            except FileMissingError as error:
                return result(error=f"{intro}File '{error.path}' not found")
            except (*OF_FILES, OptionError, ReadOnlyError) as error:
                return result(error=f"{intro}{for_model(error, plan.__name__)}")

        return run

    return decorate


class FilesBackend(FilesOfOwner, protocol.BackendProtocol):
    """A backend of deepagents on `memory.files`: parallel edits are all kept, and users have trees of their own.

    `user_id` fixes the owner: an id, such as that of a team, or a function of the `Ids` that the run names. Without it
    the files are those of the user of the run, found as in `memory.tools`. `by` is written into the revisions. Each
    method takes the round trips of `memory.files`, and has an async twin without threads. Errors of files are results,
    as deepagents wants them; a server that is away raises. Hidden characters of a text are shown by name.
    """

    @operation
    @_errors_in(protocol.LsResult)
    def ls(self, path: str) -> Plan[protocol.LsResult]:
        """List a directory; directories end with a slash."""
        infos = yield from _LIST(self.files, _absolute(path), user_id=self.owner)
        return protocol.LsResult(entries=(yield from _infos(infos)))

    als = twin(ls)

    @operation
    @_errors_in(protocol.ReadResult)
    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> Plan[protocol.ReadResult]:
        """Read lines of a file, or a file that is no text, as base64."""
        file = yield from _READ(self.files, _absolute(file_path), user_id=self.owner)
        is_whole = not file.info.is_text or _MEDIA.fullmatch(file_path)

        def build_result() -> protocol.ReadResult:
            data = _data(file)
            return protocol.ReadResult(file_data=data) if is_whole else slice_read_response(data, offset, limit)

        return (yield from compute(build_result, 4 * file.info.size))

    aread = twin(read)

    @operation
    @_errors_in(protocol.WriteResult, "Error: ")
    def write(self, file_path: str, content: str) -> Plan[protocol.WriteResult]:
        """Write a file, also over one that exists: its text stays as a revision."""
        yield from _WRITE(self.files, _absolute(file_path), content, user_id=self.writer, by=self.by)
        return protocol.WriteResult(path=file_path)

    awrite = twin(write)

    @operation
    @_errors_in(protocol.EditResult, "Error: ")
    def edit(
        self,
        file_path: str,
        old_string: str,
        new_string: str,
        replace_all: bool = False,  # noqa: FBT001, FBT002 - as the protocol has it
    ) -> Plan[protocol.EditResult]:
        """Replace a text in the newest revision."""
        options: Any = {"user_id": self.writer, "by": self.by, "replace_all": replace_all}
        change = yield from _EDIT(self.files, _absolute(file_path), old_string, new_string, **options)
        return protocol.EditResult(path=file_path, occurrences=change.occurrences)

    aedit = twin(edit)

    @operation
    @_errors_in(protocol.DeleteResult, "Error: ")
    def delete(self, file_path: str) -> Plan[protocol.DeleteResult]:
        """Delete a file, or all files below a directory; `memory.files.revert` brings one back."""
        yield from _DELETE(self.files, _absolute(file_path), user_id=self.writer, by=self.by)
        return protocol.DeleteResult(path=file_path)

    adelete = twin(delete)

    @operation
    @_errors_in(protocol.GrepResult)
    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> Plan[protocol.GrepResult]:
        """Find the lines that hold a text as it is."""
        most, root = MOST if max_count is None else max_count, check_directory(_absolute(path))
        glob_pattern = Pattern(glob, root) if glob else None
        tree = Tree.of(self._core, self.owner)
        check_text(pattern, "pattern", tree.options.max_file_bytes)
        hits = (yield from grep(tree, pattern, root, glob_pattern, most + 1)) if pattern else []

        def describe_hits() -> list[protocol.GrepMatch]:
            return [
                {"path": hit.path, "line": hit.line, "text": spell_hidden(hit.text[:LONGEST])} for hit in hits[:most]
            ]

        matches = yield from compute(describe_hits, sum(len(hit.text) for hit in hits))
        return protocol.GrepResult(matches=matches, truncated=len(hits) > most)

    agrep = twin(grep)

    @operation
    @_errors_in(protocol.GlobResult)
    def glob(self, pattern: str, path: str | None = None) -> Plan[protocol.GlobResult]:
        """Find files by a pattern of their paths, the last changed first."""
        root = check_directory(_absolute(path))
        infos = yield from find(Tree.of(self._core, self.owner), root, Pattern(pattern, root))
        newest = sorted(infos, key=lambda info: info.updated_at, reverse=True)
        return protocol.GlobResult(matches=(yield from _infos(newest)))

    aglob = twin(glob)

    @operation
    def upload_files(self, files: list[tuple[str, bytes]]) -> Plan[list[protocol.FileUploadResponse]]:
        """Write files as they are: UTF-8 as text, else bytes. One round trip each."""
        responses = []
        for path, content in files:
            text: str | bytes = content
            with suppress(UnicodeDecodeError):
                text = content.decode()
            _, problem = yield from self._transferred(_WRITE, path, text, writes=True)
            responses.append(protocol.FileUploadResponse(path=path, error=problem))
        return responses

    aupload_files = twin(upload_files)

    @operation
    def download_files(self, paths: list[str]) -> Plan[list[protocol.FileDownloadResponse]]:
        """Read files as they are. One round trip each."""
        responses = []
        for path in paths:
            file, problem = yield from self._transferred(_READ, path)
            content = file.content if file else None
            content = content.encode() if isinstance(content, str) else content
            responses.append(protocol.FileDownloadResponse(path=path, content=content, error=problem))
        return responses

    adownload_files = twin(download_files)

    def _transferred(self, plan: Callable[..., Plan[Any]], path: str, *text: str | bytes, writes: bool = False) -> Any:
        """Return the result of a plan, or the code of deepagents for an error, or what it says."""
        try:
            options: Any = {"user_id": self.writer, "by": self.by} if writes else {"user_id": self.owner}
            return (yield from plan(self.files, _absolute(path), *text, **options)), None
        except FileMissingError:
            return None, protocol.FILE_NOT_FOUND
        except (*OF_FILES, ReadOnlyError) as error:
            if not isinstance(error, FilePathError) or error.problem == DAMAGED:
                return None, str(error)
            return None, protocol.IS_DIRECTORY if error.problem.endswith(" a directory") else protocol.INVALID_PATH


def _infos(infos: Sequence[FileInfo]) -> Plan[list[protocol.FileInfo]]:
    return (yield from compute(lambda: [*map(_info, infos)], 100 * len(infos)))


def _info(info: FileInfo) -> protocol.FileInfo:
    path, changed = (f"{info.path}/", "") if info.is_dir else (info.path, info.updated_at.isoformat())
    return {"path": path, "is_dir": info.is_dir, "size": info.size, "modified_at": changed}


def _data(file: File) -> protocol.FileData:
    content, created_at, modified_at = file.content, file.info.created_at.isoformat(), file.info.updated_at.isoformat()
    is_text = isinstance(content, str)
    text = spell_hidden(content) if isinstance(content, str) else base64.standard_b64encode(content).decode()
    encoding = "utf-8" if is_text else "base64"
    return {"content": text, "encoding": encoding, "created_at": created_at, "modified_at": modified_at}


def _absolute(path: str | None) -> str:
    """Return a path from the root on: deepagents' own backends take "notes.md", too."""
    return path if path and path.startswith("/") else f"/{path or ''}"
