"""`files`: list, read and change the files of a user, a team or an agent."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_workingmem.checks import LARGEST
from langchain_workingmem.cli import base
from langchain_workingmem.cli.base import Newest, Output, Restored, Target, Yes  # noqa: TC001 - typer reads annotations
from langchain_workingmem.cli.streams import seconds, table, usable
from langchain_workingmem.display.pictures import clock, counted
from langchain_workingmem.display.safe import clean
from langchain_workingmem.errors import FileMissingError, OptionError, WorkingMemError
from langchain_workingmem.files import compare
from langchain_workingmem.options import FileOptions

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from langchain_workingmem.files import FileEdit, FileInfo
    from langchain_workingmem.memory import Memory

MEGABYTE = 2**20
BY = "person"  # in the revisions
EVERY_FILE = "{*,.*}"  # a pattern
# Only the program decides how many revisions are kept, and how much an owner may have.
KEPT = FileOptions(revisions=LARGEST, max_bytes=LARGEST, max_files=LARGEST)

Whose = Annotated[str, typer.Option("--resource", "--user", help="Whose files: the id of a resource, usually a user.")]
FilePath = Annotated[str, typer.Argument(metavar="PATH", help="The path of a file, such as /notes/plan.md.")]
Place = Annotated[str, typer.Argument(metavar="PATH", help="The path of a directory or a file; / is everything.")]
Revision = Annotated[int | None, typer.Option(min=1, help="An older revision, as `history` lists them.")]
Compared = Annotated[int | None, typer.Argument(min=0, help="A revision; 0 is before the first.")]
MaxBytes = Annotated[int, typer.Option(min=1, help="Refuse a larger file.")]
Base = Annotated[
    int | None,
    typer.Option(min=0, help="The revision that you have read, 0 for none: what others changed since is kept, too."),
]


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


# ---------------------------------------------------------------------- reading


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
    yield [record(one) for one in found], table(columns, rows, "no files")


def cat(memory: Memory, path: FilePath, *, revision: Revision = None, resource: Whose) -> None:
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
    yield [record(one) for one in found], None
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


def history(memory: Memory, path: FilePath, *, limit: Newest = 20, resource: Whose) -> Output:
    """List the revisions of a file, the newest first, also of a deleted one."""
    found = memory.files.history(path, resource_id=resource, limit=limit)
    columns = ("revision", f"written ({clock()})", "by", "what", "bytes")
    rows = ([str(one.revision), seconds(one.at), one.by, one.what, f"{one.size:,}"] for one in found)
    yield found, table(columns, rows, "")


def diff(
    memory: Memory, path: FilePath, earlier: Compared = None, later: Compared = None, *, resource: Whose
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
    found = memory.files.glob(EVERY_FILE, resource_id=resource, path=path) if one.is_dir else [one]
    copies = [(info, destination.expanduser() / info.path[len(above) + 1 :]) for info in found]
    if not yes and (present := [str(local) for _, local in copies if local.exists()]):
        base.confirm(f"{counted(len(present), 'file')} would be replaced, such as {present[0]}. Replace?")
    for info, local in copies:
        content = memory.files.read(info.path, resource_id=resource).content
        with usable(local):
            local.parent.mkdir(parents=True, exist_ok=True)
            local.write_bytes(content.encode() if isinstance(content, str) else content)
    copied = [{**record(info), "file": str(local)} for info, local in copies]
    yield copied, f"copied to {clean(str(destination))}: {counted(len(copies), 'file')}"


def _existing(memory: Memory, path: str, resource: str) -> FileInfo:
    found = memory.files.stat(path, resource_id=resource)
    if found is None:
        raise FileMissingError(path)
    return found


# ---------------------------------------------------------------------- changing


def write(
    path: FilePath,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to read; - is standard input.")] = "-",
    *,
    new: Annotated[bool, typer.Option("--new", help="Fail if there is such a file.")] = False,
    base_revision: Base = None,
    max_bytes: MaxBytes = MEGABYTE,
    resource: Whose,
    target: Target,
) -> Output:
    """Write a file as a whole, from standard input or a file. UTF-8 is text, anything else bytes."""
    with usable(file):
        content = typer.get_binary_stream("stdin").read() if file == "-" else Path(file).expanduser().read_bytes()
    options: dict[str, Any] = {"base_revision": base_revision, "if_exists": "error" if new else "replace"}
    with opened(target, max_bytes) as memory:
        made = memory.files.write(path, _content(content), resource_id=resource, by=BY, **options)
    yield edited(made)


def edit(
    path: FilePath,
    *,
    old: Annotated[str | None, typer.Option(help="Replace this passage, instead of opening an editor.")] = None,
    new: Annotated[str | None, typer.Option(help="The text to put in the place of --old.")] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Replace --old wherever it is. Without this, it must occur exactly once.")
    ] = False,
    max_bytes: MaxBytes = MEGABYTE,
    resource: Whose,
    target: Target,
) -> Output:
    """Edit a text in your editor (VISUAL or EDITOR), or replace a passage.

    What others change meanwhile is kept, too. If they have changed the same lines, your text stays in a temporary file.
    """
    if (old is None) != (new is None) or (all_ and old is None):
        base.misused("--old and --new belong together, and --all to them")
    with opened(target, max_bytes) as memory:
        if old is None or new is None:
            made = _in_editor(memory, path, resource)
        else:
            made = edited(memory.files.edit(path, old, new, resource_id=resource, replace_all=all_, by=BY))
    yield made


def _in_editor(memory: Memory, path: str, resource: str) -> tuple[object, str]:
    """Let the editor change a copy of a file, and merge it. The copy stays if it could not be written."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        base.misused("there is no editor: set EDITOR to yours, or pass --old and --new")
    try:
        found = memory.files.read(path, resource_id=resource)
        before, revision = found.content, found.revision
    except FileMissingError:
        before, revision = "", _last_revision(memory, path, resource)
    if isinstance(before, bytes):
        raise OptionError(f"{path!r} holds bytes, no text", remedy="write it as a whole with `workingmem files write`")
    folder = Path(mkdtemp(prefix="workingmem-"))
    copy = folder / (path.rpartition("/")[2][-100:] or "text")
    try:
        with usable(copy):
            copy.write_bytes(before.encode())
        with usable(editor):
            code = subprocess.run([*shlex.split(editor), str(copy)], check=False).returncode  # noqa: S603 - the user's own
        if code:
            raise OptionError(f"the editor ended with exit code {code}, so nothing was written", remedy="run it again")
        with usable(copy):
            text = _content(copy.read_bytes())
        if text == before:
            said: tuple[object, str] = {"path": path, "changed": False}, "Nothing was changed."
        else:
            said = edited(memory.files.write(path, text, resource_id=resource, base_revision=revision, by=BY))
    except WorkingMemError as error:
        error.add_note(f"Your text is in {copy}")
        raise
    copy.unlink(missing_ok=True)
    folder.rmdir()
    return said


def _last_revision(memory: Memory, path: str, resource: str) -> int:
    """Return the revision of the deletion of a file, 0 if there never was one."""
    try:
        return memory.files.history(path, resource_id=resource, limit=1)[0].revision
    except FileMissingError:
        return 0


def revert(memory: Memory, path: FilePath, revision: Restored, *, resource: Whose) -> Output:
    """Restore a revision, as a new one; also of a deleted file."""
    yield edited(memory.files.revert(path, revision, resource_id=resource, by=BY))


def rm(
    memory: Memory,
    path: Place,
    *,
    purge: Annotated[
        bool, typer.Option("--purge", help="Forget the revisions, too; nothing brings them back.")
    ] = False,
    yes: Yes = False,
    resource: Whose,
) -> Output:
    """Delete a file, or a directory after asking; `revert` restores a file. Exit code 3: declined."""
    found = memory.files.stat(path, resource_id=resource)
    is_directory = found is not None and found.is_dir
    if not yes and (purge or is_directory):
        what = f"all files below {path}" if is_directory else path
        base.confirm(f"Delete {what} with all revisions permanently?" if purge else f"Delete {what}?")
    count = memory.files.delete(path, resource_id=resource, purge=purge, by=BY)
    yield {"files": count}, f"deleted: {counted(count, 'file')}"


def mv(
    memory: Memory,
    path: Place,
    new_path: Annotated[str, typer.Argument(metavar="NEW_PATH", help="The new path. Nothing may be there.")],
    *,
    resource: Whose,
) -> Output:
    """Rename a file with its revisions, or a directory."""
    count = memory.files.rename(path, new_path, resource_id=resource, by=BY)
    yield {"files": count}, f"renamed: {counted(count, 'file')}"


def put(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A file or a directory of this machine.")],
    path: Annotated[str, typer.Argument(metavar="DIRECTORY", help="Where to; default: the root.")] = "/",
    *,
    max_bytes: MaxBytes = MEGABYTE,
    resource: Whose,
    target: Target,
) -> Output:
    """Copy a file, or the files in a directory, into memory. Links are left out. It can be repeated."""
    source = source.expanduser()
    with usable(source):
        source.stat()
        inside = sorted(one for one in source.rglob("*") if one.is_file() and not one.is_symlink())
    found = inside if source.is_dir() else [source]
    top = source if source.is_dir() else source.parent
    made = []
    with opened(target, max_bytes) as memory:
        for file in found:
            with usable(file):
                content = _content(file.read_bytes())
            name = f"{path}/{file.relative_to(top).as_posix()}"
            made.append(memory.files.write(name, content, resource_id=resource, by=BY))
    changed = sum(one.changed for one in made)
    yield [edited(one)[0] for one in made], f"written: {counted(changed, 'file')}, {len(made) - changed:,} unchanged"


def _content(given: bytes) -> str | bytes:
    """Return text as a str, anything else as bytes."""
    try:
        return given if b"\0" in given else given.decode()
    except UnicodeDecodeError:
        return given


COMMANDS = (ls, cat, find, grep, history, diff, get, write, edit, revert, rm, mv, put)
