"""Commands that read files: `ls`, `cat`, `find`, `grep`, `history`, `diff`, `get`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_workingmem.cli import base
from langchain_workingmem.cli.base import Newest, Output, Yes  # noqa: TC001 - typer reads annotations
from langchain_workingmem.cli.files import shared
from langchain_workingmem.cli.files.shared import Place, Whose  # noqa: TC001 - typer reads annotations
from langchain_workingmem.cli.streams import seconds, table, usable
from langchain_workingmem.display.pictures import clock, counted
from langchain_workingmem.display.safe import clean
from langchain_workingmem.errors import FileMissingError, OptionError
from langchain_workingmem.files import compare

if TYPE_CHECKING:
    from langchain_workingmem.files import FileInfo
    from langchain_workingmem.memory import Memory

Revision = Annotated[int | None, typer.Option(min=1, help="An older revision, as `history` lists them.")]
Compared = Annotated[int | None, typer.Argument(min=0, help="A revision; 0 is before the first.")]
ALL = "{*,.*}"  # a pattern


def ls(memory: Memory, path: Place = "/", *, resource: Whose) -> Output:
    """List what is in a directory."""
    found = memory.files.list(path, resource_id=resource)
    if not found and path.strip("/"):
        found = [_existing(memory, path, resource)]
    rows = (
        [f"{one.path}/", "", "", "", ""]
        if one.is_dir
        else [one.path, f"{one.size:,}", str(one.revision), seconds(one.updated_at), one.by]
        for one in found
    )
    columns = ("path", "bytes", "revision", f"written ({clock()})", "by")
    yield [shared.record(one) for one in found], table(columns, rows, "no files")


def cat(memory: Memory, path: shared.Path, *, revision: Revision = None, resource: Whose) -> None:
    """Print a file, byte for byte; a terminal shows control characters as signs."""
    content = memory.files.read(path, resource_id=resource, revision=revision).content
    if not sys.stdout.isatty():
        typer.echo(content.encode() if isinstance(content, str) else content, nl=False)
    elif isinstance(content, str):
        typer.echo(clean(content), nl=not content.endswith("\n"))
    else:
        raise OptionError(f"{path!r} holds {len(content):,} bytes, no text", remedy="send them to a file, with > FILE")


def find(
    memory: Memory,
    pattern: Annotated[str, typer.Argument(help="*.md for a name at any depth, /src/**/*.py for a path.")],
    path: Place = "/",
    *,
    resource: Whose,
) -> Output:
    """Find files by a pattern of their paths: one path a line."""
    found = memory.files.glob(pattern, resource_id=resource, path=path)
    yield [shared.record(one) for one in found], None
    for one in found:
        yield None, clean(one.path)


def grep(
    memory: Memory,
    words: Annotated[str, typer.Argument(metavar="TEXT", help="The text to look for, as it is.")],
    path: Place = "/",
    *,
    glob: Annotated[str | None, typer.Option(help="Only in files whose paths match, such as *.md.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most lines to print.")] = 1000,
    resource: Whose,
) -> Output:
    """Find the lines that hold a text: PATH:LINE:TEXT."""
    found = memory.files.grep(words, resource_id=resource, path=path, glob=glob, limit=limit)
    yield [one._asdict() for one in found], None
    for one in found:
        yield None, clean(f"{one.path}:{one.line}:{one.text}")
    if len(found) == limit:
        base.tell(f"There may be more than {limit:,} lines: pass --limit")


def history(memory: Memory, path: shared.Path, *, limit: Newest = 20, resource: Whose) -> Output:
    """List the revisions of a file, the newest first, also of a deleted one."""
    found = memory.files.history(path, resource_id=resource, limit=limit)
    columns = ("revision", f"written ({clock()})", "by", "what", "bytes")
    yield (
        found,
        table(columns, ([str(one.revision), seconds(one.at), one.by, one.what, f"{one.size:,}"] for one in found), ""),
    )


def diff(
    memory: Memory, path: shared.Path, earlier: Compared = None, later: Compared = None, *, resource: Whose
) -> Output:
    """Show the changes between two revisions.

    Without numbers: the last two. With EARLIER alone: from there to the newest.
    """
    found = memory._core.run(compare(memory.files, path, resource, earlier, later))
    head = [f"--- {path} revision {found.earlier}", f"+++ {path} revision {found.later}"]
    yield found, "\n".join(map(clean, [*head, *found.lines])) if found.lines else "no change"


def get(
    memory: Memory,
    path: Place,
    destination: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where to; default: this folder.")] = Path(),
    *,
    yes: Yes = False,
    resource: Whose,
) -> Output:
    """Copy a file or a directory to this machine; it asks before it replaces files."""
    one = _existing(memory, path, resource)
    above = one.path.rpartition("/")[0] if not one.is_dir else one.path.rstrip("/")
    found = memory.files.glob(ALL, resource_id=resource, path=path) if one.is_dir else [one]
    copies = [(info, destination.expanduser() / info.path[len(above) + 1 :]) for info in found]
    if not yes and (present := [str(local) for _, local in copies if local.exists()]):
        base.confirm(f"{counted(len(present), 'file')} would be replaced, such as {present[0]}. Replace?")
    for info, local in copies:
        content = memory.files.read(info.path, resource_id=resource).content
        with usable(local):
            local.parent.mkdir(parents=True, exist_ok=True)
            local.write_bytes(content.encode() if isinstance(content, str) else content)
    yield _copied(copies), f"copied to {clean(str(destination))}: {counted(len(copies), 'file')}"


def _copied(copies: list[tuple[FileInfo, Path]]) -> list[dict[str, Any]]:
    return [{**shared.record(info), "file": str(local)} for info, local in copies]


def _existing(memory: Memory, path: str, resource: str) -> FileInfo:
    found = memory.files.stat(path, resource_id=resource)
    if found is None:
        raise FileMissingError(path)
    return found


COMMANDS = (ls, cat, find, grep, history, diff, get)
