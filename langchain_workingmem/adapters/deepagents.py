"""Files as a backend of deepagents: `create_deep_agent(backend=FilesBackend(memory))`."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

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
from deepagents.backends.utils import perform_string_replacement, slice_read_response

from langchain_workingmem._redis.core import operation, plan_of, twin
from langchain_workingmem.adapters.owners import OfOwner
from langchain_workingmem.errors import FileEditError, FileMissingError, FilePathError, FileQuotaError
from langchain_workingmem.files import Files, Tree, below, check_directory, find, grep, pattern_of

if TYPE_CHECKING:
    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem.faces.ids import Owner
    from langchain_workingmem.files import File
    from langchain_workingmem.files import FileInfo as Info
    from langchain_workingmem.memory import Memory

_READ, _WRITE, _EDIT = plan_of(Files.read), plan_of(Files.write), plan_of(Files.edit)
_LIST, _DELETE = plan_of(Files.list), plan_of(Files.delete)
MOST = 10_000  # lines that a search without `max_count` returns
_REFUSED = (FilePathError, FileQuotaError, FileEditError)


class FilesBackend(OfOwner, BackendProtocol):
    """A backend of deepagents on `memory.files`: parallel edits are all kept, files have revisions, and users their own tree.

    `resource_id` fixes the owner: an id, such as that of a team, or a function of the `Ids` that the run names. Without it the files are
    those of the user of the run, found as in `memory.tools`. Each method takes one round trip (`grep` one per slice) and has an
    async twin without threads. `by` is written into the revisions. Errors of files are results, as deepagents wants them; a
    server that is away raises.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        resource_id: str | Owner | None = None,
        by: str | None = "agent",
        trust_client_ids: bool = False,
    ) -> None:
        super().__init__(memory, resource_id, trust_client_ids=trust_client_ids)
        self._by = by

    @property
    def _tree(self) -> Tree:
        return Tree.of(self._core, self.owner)

    @operation
    def ls(self, path: str) -> Plan[LsResult]:
        """List a directory; directories end with a slash."""
        try:
            found = yield from _LIST(self.files, path, resource_id=self.owner)
        except FilePathError as error:
            return LsResult(error=str(error))
        return LsResult(entries=[_info(one) for one in found])

    als = twin(ls)

    @operation
    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> Plan[ReadResult]:
        """Read lines of a file, or a file that is no text, as base64."""
        try:
            file = yield from _READ(self.files, file_path, resource_id=self.owner)
        except FileMissingError:
            return ReadResult(error=f"File '{file_path}' not found")
        except FilePathError as error:
            return ReadResult(error=str(error))
        data = _data(file)
        return ReadResult(file_data=data) if data["encoding"] == "base64" else slice_read_response(data, offset, limit)

    aread = twin(read)

    @operation
    def write(self, file_path: str, content: str) -> Plan[WriteResult]:
        """Write a file, also over one that exists: its text stays as a revision."""
        try:
            yield from _WRITE(self.files, file_path, content, resource_id=self.owner, by=self._by)
        except _REFUSED as error:
            return WriteResult(error=f"Error: {error}")
        return WriteResult(path=file_path)

    awrite = twin(write)

    @operation
    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> Plan[EditResult]:  # noqa: FBT001, FBT002 - as the protocol has it
        """Replace a text in the newest revision, on the server."""
        owner = self.owner
        try:
            if not old_string or old_string == new_string:
                return (
                    yield from self._without_change(owner, file_path, old_string, new_string, replace_all=replace_all)
                )
            made = yield from _EDIT(
                self.files, file_path, old_string, new_string, resource_id=owner, replace_all=replace_all, by=self._by
            )
        except FileMissingError:
            return EditResult(error=f"Error: File '{file_path}' not found")
        except FileEditError as error:
            found = yield from self._without_change(owner, file_path, old_string, new_string, replace_all=replace_all)
            return found if found.error else EditResult(error=f"Error: {error}")
        except _REFUSED as error:
            return EditResult(error=f"Error: {error}")
        return EditResult(path=file_path, occurrences=made.occurrences)

    aedit = twin(edit)

    def _without_change(
        self, owner: str, file_path: str, old_string: str, new_string: str, *, replace_all: bool
    ) -> Plan[EditResult]:
        """Say what an edit would do, in deepagents' words."""
        file = yield from _READ(self.files, file_path, resource_id=owner)
        if isinstance(file.content, bytes):
            return EditResult(error="Error: Cannot edit binary files with text replacements.")
        told = perform_string_replacement(file.content, old_string, new_string, replace_all)
        return EditResult(error=told) if isinstance(told, str) else EditResult(path=file_path, occurrences=told[1])

    @operation
    def delete(self, file_path: str) -> Plan[DeleteResult]:
        """Delete a file, or all files below a directory; `memory.files.revert` brings one back."""
        try:
            yield from _DELETE(self.files, file_path, resource_id=self.owner, by=self._by)
        except FileMissingError:
            return DeleteResult(error=f"Error: File '{file_path}' not found")
        except FilePathError as error:
            return DeleteResult(error=f"Error: {error}")
        return DeleteResult(path=file_path)

    adelete = twin(delete)

    @operation
    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> Plan[GrepResult]:
        """Find the lines that hold a text as it is."""
        most = MOST if max_count is None else max_count
        if not pattern:
            return GrepResult(matches=[])
        try:
            root = check_directory(_absolute(path))
        except FilePathError:
            return GrepResult(matches=[])
        try:
            start, matches = pattern_of(glob, root) if glob else (below(root), None)
            found = yield from grep(self._tree, pattern, root, start, matches, most + 1)
        except FilePathError as error:
            return GrepResult(error=str(error))
        lines: list[GrepMatch] = [{"path": one.path, "line": one.line, "text": one.text} for one in found[:most]]
        return GrepResult(matches=lines, truncated=len(found) > most)

    agrep = twin(grep)

    @operation
    def glob(self, pattern: str, path: str | None = None) -> Plan[GlobResult]:
        """Find files by a pattern of their paths, the last changed first."""
        try:
            root = check_directory(_absolute(path))
        except FilePathError:
            return GlobResult(matches=[])
        try:
            found = yield from find(self._tree, *pattern_of(pattern, root))
        except FilePathError as error:
            return GlobResult(error=str(error))
        newest = sorted(found, key=lambda one: one.updated_at, reverse=True)
        return GlobResult(matches=[_info(one) for one in newest])

    aglob = twin(glob)

    @operation
    def upload_files(self, files: list[tuple[str, bytes]]) -> Plan[list[FileUploadResponse]]:
        """Write files as they are: UTF-8 as text, else bytes. One round trip each."""
        owner, done = self.owner, []
        for path, content in files:
            try:
                text: str | bytes = content.decode()
            except UnicodeDecodeError:
                text = content
            try:
                yield from _WRITE(self.files, path, text, resource_id=owner, by=self._by)
            except FilePathError:
                done.append(FileUploadResponse(path=path, error=INVALID_PATH))
            except FileQuotaError as error:
                done.append(FileUploadResponse(path=path, error=str(error)))
            else:
                done.append(FileUploadResponse(path=path))
        return done

    aupload_files = twin(upload_files)

    @operation
    def download_files(self, paths: list[str]) -> Plan[list[FileDownloadResponse]]:
        """Read files as they are. One round trip each."""
        owner, done = self.owner, []
        for path in paths:
            content, problem = None, None
            try:
                file = yield from _READ(self.files, path, resource_id=owner)
                content = file.content.encode() if isinstance(file.content, str) else file.content
            except FileMissingError:
                problem = FILE_NOT_FOUND
            except FilePathError as error:
                problem = IS_DIRECTORY if "is a directory" in str(error) else INVALID_PATH
            done.append(FileDownloadResponse(path=path, content=content, error=problem))
        return done

    adownload_files = twin(download_files)


def _info(one: Info) -> FileInfo:
    if one.is_dir:
        return {"path": f"{one.path}/", "is_dir": True, "size": 0, "modified_at": ""}
    return {"path": one.path, "is_dir": False, "size": one.size, "modified_at": one.updated_at.isoformat()}


def _data(file: File) -> FileData:
    is_text = isinstance(file.content, str)
    content = file.content if isinstance(file.content, str) else base64.standard_b64encode(file.content).decode()
    return {
        "content": content,
        "encoding": "utf-8" if is_text else "base64",
        "created_at": file.info.created_at.isoformat(),
        "modified_at": file.info.updated_at.isoformat(),
    }


def _absolute(path: str | None) -> str:
    return path if path and path.startswith("/") else f"/{path or ''}"
