"""Commands that change files: `write`, `edit`, `revert`, `rm`, `mv`, `put`."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_workingmem.cli import base
from langchain_workingmem.cli.base import Output, Restored, Target, Yes  # noqa: TC001 - typer reads annotations
from langchain_workingmem.cli.files import shared
from langchain_workingmem.cli.files.shared import BY, MEGABYTE, MaxBytes, Whose, edited
from langchain_workingmem.cli.streams import usable
from langchain_workingmem.display.pictures import counted
from langchain_workingmem.errors import FileMissingError, OptionError, WorkingMemError

if TYPE_CHECKING:
    from langchain_workingmem.memory import Memory

Entry = Annotated[str, typer.Argument(metavar="PATH", help="The path of a file or a directory.")]
Base = Annotated[
    int | None,
    typer.Option(min=0, help="The revision that you have read, 0 for none: what others changed since is kept, too."),
]


def write(
    path: shared.Path,
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
    with shared.opened(target, max_bytes) as memory:
        made = memory.files.write(path, _content(content), resource_id=resource, by=BY, **options)
    yield edited(made)


def edit(
    path: shared.Path,
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
    with shared.opened(target, max_bytes) as memory:
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


def revert(memory: Memory, path: shared.Path, revision: Restored, *, resource: Whose) -> Output:
    """Restore a revision, as a new one; also of a deleted file."""
    yield edited(memory.files.revert(path, revision, resource_id=resource, by=BY))


def rm(
    memory: Memory,
    path: Entry,
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
    path: Entry,
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
    with shared.opened(target, max_bytes) as memory:
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


COMMANDS = (write, edit, revert, rm, mv, put)
