"""Files as tools for any model: `file_tools(memory)`, for `bind_tools`, ToolNode and `create_agent`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from langchain_workingmem._redis.core import plan_of
from langchain_workingmem.adapters.owners import OfOwner
from langchain_workingmem.adapters.shapes import MOST, Edit, Read, Write, edited, numbered, written
from langchain_workingmem.checks import as_tuple
from langchain_workingmem.errors import OptionError
from langchain_workingmem.files import Files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_core.tools import BaseTool

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem.faces.ids import Owner
    from langchain_workingmem.memory import Memory


class _Delete(BaseModel):
    path: str = Field(description="The path of a file, or of a directory that is deleted with all files in it.")


class _Rename(BaseModel):
    path: str = Field(description="The present path of a file or a directory.")
    new_path: str = Field(description="The new path. Nothing may be there.")


class _List(BaseModel):
    path: str = Field("/", description="The path of a directory.")


class _Find(BaseModel):
    pattern: str = Field(description="A pattern of paths: *.md for a name at any depth, /src/**/*.py for a path.")


class _Search(BaseModel):
    text: str = Field(description="The text to look for in the lines of files, as it is.")
    path: str = Field("/", description="Search only this file or directory.")


_READ, _WRITE, _EDIT = plan_of(Files.read), plan_of(Files.write), plan_of(Files.edit)
_DELETE, _RENAME = plan_of(Files.delete), plan_of(Files.rename)
_LIST, _GLOB, _GREP = plan_of(Files.list), plan_of(Files.glob), plan_of(Files.grep)


def file_tools(
    memory: Memory,
    *,
    resource_id: str | Owner | None = None,
    include: Sequence[str] | None = None,
    by: str | None = "agent",
    trust_client_ids: bool = False,
) -> list[BaseTool]:
    """Return tools by which a model reads and changes files; `include` names some of them, None: all.

    `list_files`, `find_files`, `search_files`, `read_file`, `write_file`, `edit_file`, `delete_file`, `rename_file`. The files are those of
    `resource_id`, or of the user of the run, as in `memory.tools`; a model cannot choose them. A refused call tells the model the
    reason. `by` is written into the revisions.
    """
    tools = _FileTools(memory, resource_id, by, trust_client_ids=trust_client_ids)
    made = tools.made()
    chosen = list(made) if include is None else as_tuple(include, "include", "tool names")
    if unknown := [name for name in chosen if name not in made]:
        raise OptionError(f"there is no tool {unknown[0]!r}", remedy=f"use {', '.join(made)}")
    return [tools.tool(name, *made[name]) for name in chosen]


class _FileTools(OfOwner):
    def made(self) -> dict[str, tuple[str, type[BaseModel], Callable[..., Plan[str]]]]:
        """Return description, schema and plan of each tool."""
        return {
            "list_files": ("List the files and directories in a directory.", _List, self._list),
            "find_files": ("Find files by a pattern of their paths.", _Find, self._find),
            "search_files": ("Find the lines of files that hold a text.", _Search, self._search),
            "read_file": ("Read a file, with line numbers.", Read, self._read),
            "write_file": ("Write a file as a whole: a new one, or over one that exists.", Write, self._write),
            "edit_file": ("Replace a passage of a file. Read the file before.", Edit, self._edit),
            "delete_file": ("Delete a file or a directory.", _Delete, self._delete),
            "rename_file": ("Rename or move a file or a directory.", _Rename, self._rename),
        }

    def _list(self, path: str) -> Plan[str]:
        found = yield from _LIST(self.files, path, resource_id=self.owner)
        names = [f"{one.path}/" if one.is_dir else f"{one.path} ({one.size} bytes)" for one in found]
        return _lines(names, "The directory is empty.")

    def _find(self, pattern: str) -> Plan[str]:
        found = yield from _GLOB(self.files, pattern, resource_id=self.owner)
        return _lines([one.path for one in found], "No file matches.")

    def _search(self, text: str, path: str) -> Plan[str]:
        found = yield from _GREP(self.files, text, resource_id=self.owner, path=path, limit=MOST + 1)
        return _lines([f"{one.path}:{one.line}: {one.text}" for one in found], "No line holds this text.")

    def _read(self, path: str, start_line: int, lines: int) -> Plan[str]:
        file = yield from _READ(self.files, path, resource_id=self.owner)
        return numbered(file, start_line, lines)

    def _write(self, path: str, content: str, revision: int | None) -> Plan[str]:
        made = yield from _WRITE(
            self.files, path, content, resource_id=self.writer, base_revision=revision, by=self._by
        )
        return written(made)

    def _edit(self, path: str, old: str, new: str, all: bool) -> Plan[str]:  # noqa: FBT001 - as the model calls it
        made = yield from _EDIT(self.files, path, old, new, resource_id=self.writer, replace_all=all, by=self._by)
        return edited(made)

    def _delete(self, path: str) -> Plan[str]:
        count = yield from _DELETE(self.files, path, resource_id=self.writer, by=self._by)
        return f"{path} is deleted{'' if count == 1 else f', {count} files'}."

    def _rename(self, path: str, new_path: str) -> Plan[str]:
        yield from _RENAME(self.files, path, new_path, resource_id=self.writer, by=self._by)
        return f"{path} is {new_path} now."


def _lines(found: list[str], otherwise: str) -> str:
    more = [f"(more than {MOST} were found: ask for less)"] if len(found) > MOST else []
    return "\n".join([*found[:MOST], *more]) or otherwise
