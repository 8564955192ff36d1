"""Arguments and answers of the tools that read and write files; an MCP server has the same ones, and needs no LangChain tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from langchain_workingmem.faces.for_models import Whole  # noqa: TC001 - Pydantic reads it

if TYPE_CHECKING:
    from langchain_workingmem.files import File, FileEdit

MOST = 2000  # lines, or entries, that a tool returns
PATH = Field(description="The path of the file, such as /notes/plan.md.")
_REVISION = Field(
    None, ge=0, description="The revision that read_file showed. With it, changes that others have made since are kept."
)


class Read(BaseModel):
    """Arguments of `read_file`."""

    path: str = PATH
    start_line: Whole = Field(1, ge=1, description="The first line to read.")
    lines: Whole = Field(MOST, ge=1, le=MOST, description="How many lines to read.")


class Write(BaseModel):
    """Arguments of `write_file`."""

    path: str = PATH
    content: str = Field(description="The whole text of the file.")
    revision: Whole | None = _REVISION


class Edit(BaseModel):
    """Arguments of `edit_file`."""

    path: str = PATH
    old: str = Field(
        description="The text to replace, exactly as it is in the file. It must be there once, unless `all` is true."
    )
    new: str = Field(description="Replacement text.")
    all: bool = Field(default=False, description="Replace every occurrence.")


def numbered(file: File, start_line: int = 1, lines: int = MOST) -> str:
    """Return lines of a file with their numbers, as a model reads them."""
    path = file.info.path
    if isinstance(file.content, bytes):
        return f"{path} is no text; it has {file.info.size} bytes."
    every = file.content.removesuffix("\n").split("\n") if file.content else []
    shown = every[start_line - 1 : start_line - 1 + lines]
    end = start_line + len(shown) - 1
    rest = f"\n({len(every) - end} more lines; read on from line {end + 1})" if end < len(every) else ""
    text = "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(shown, start_line))
    return f"{path}, revision {file.revision}, {len(every)} lines:\n{text}{rest}"


def written(made: FileEdit) -> str:
    """Tell a model that a file is written."""
    return f"{made.info.path} is written, revision {made.info.revision}."


def edited(made: FileEdit) -> str:
    """Tell a model that a passage is replaced."""
    where = "1 place" if made.occurrences == 1 else f"{made.occurrences} places"
    return f"{made.info.path} is changed in {where}, the first in line {made.line}; revision {made.info.revision}."
