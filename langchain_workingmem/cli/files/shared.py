"""What the commands of files share: whose files, and what is said of one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_workingmem.checks import LARGEST
from langchain_workingmem.options import FileOptions

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from langchain_workingmem.cli.base import Target
    from langchain_workingmem.files import FileEdit, FileInfo
    from langchain_workingmem.memory import Memory

MEGABYTE = 2**20
BY = "person"  # in the revisions
# Only the program decides how many revisions are kept, and how much an owner may have.
KEPT = FileOptions(revisions=LARGEST, max_bytes=LARGEST, max_files=LARGEST)

Whose = Annotated[str, typer.Option("--resource", "--user", help="Whose files: the id of a resource, usually a user.")]
Path = Annotated[str, typer.Argument(metavar="PATH", help="The path of a file, such as /notes/plan.md.")]
Place = Annotated[str, typer.Argument(metavar="PATH", help="The path of a directory or a file; / is everything.")]
MaxBytes = Annotated[int, typer.Option(min=1, help="Refuse a larger file.")]


def opened(target: Target, max_bytes: int = MEGABYTE) -> AbstractContextManager[Memory]:
    """Open the memory for its files."""
    return target.opened(files=replace(KEPT, max_file_bytes=max_bytes))


def record(info: FileInfo) -> dict[str, Any]:
    """Return what is known of a file or a directory, for JSON."""
    names = () if info.is_dir else ("revision", "size", "is_text", "created_at", "updated_at", "by")
    return {"path": info.path, "is_dir": info.is_dir, **{name: getattr(info, name) for name in names}}


def edited(made: FileEdit) -> tuple[dict[str, Any], str]:
    """Say what a change has done, for JSON and for people."""
    what = "written" if made.changed else "unchanged"
    also = ", merged with what others have changed" if made.merged else ""
    more = {"occurrences": made.occurrences, "line": made.line, "changed": made.changed, "merged": made.merged}
    return {**record(made.info), **more}, f"{made.info.path}: {what}, revision {made.info.revision}{also}"
