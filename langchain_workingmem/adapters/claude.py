"""The commands of Claude's memory tool (`memory_20250818`) on the files of an owner, with the results that it knows."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from functools import partial
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, Any

from langchain_core.tools import ToolException

from langchain_workingmem._engine.plan import compute
from langchain_workingmem._redis.state import plan_of
from langchain_workingmem._text.values import shown
from langchain_workingmem.adapters import spell_hidden
from langchain_workingmem.errors import FileEditError, FileMissingError, FilePathError
from langchain_workingmem.faces.tools import for_model
from langchain_workingmem.files import Files
from langchain_workingmem.files.operations import IS_DIRECTORY, Tree, edit, find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.adapters import FilesOfOwner
    from langchain_workingmem.files import FileInfo

ROOT = "/memories"
_NO_LINE = 2**31
MOST_LINES, _WIDTH = 999_999, 6  # that are viewed, and the width of their numbers
_READ, _WRITE, _INSERT = plan_of(Files.read), plan_of(Files.write), plan_of(Files.insert)
DELETE, _RENAME = plan_of(Files.delete), plan_of(Files.rename)


class CommandError(ToolException):
    """A command was refused; the text is for the model."""


def run_command(adapter: FilesOfOwner, command: Mapping[str, Any]) -> Plan[str]:
    """Run a command; `CommandError` for one that is refused.

    One round trip; a second one to view a directory, for `str_replace` and `insert`, and for each 500 files.
    """
    name: Any = command.get("command")
    if not isinstance(name, str) or name not in _COMMANDS:
        raise CommandError(f"Unknown command: {shown(name)}. Use one of {', '.join(_COMMANDS)}.")
    run, needed = _COMMANDS[name]
    if missing := [key for key in needed if type(command.get(key)) is not (int if key == "insert_line" else str)]:
        raise CommandError(f"The command `{name}` needs {', '.join(f'`{key}`' for key in missing)}.")
    path = command[needed[0]]
    if (normal := _checked(path)) == ROOT and name != "view":
        raise CommandError(f"Cannot {name} the {ROOT} directory itself")
    owner = adapter.owner if name == "view" else adapter.writer
    try:
        return (yield from run(adapter.files, normal, command, {"user_id": owner, "by": adapter.by}))
    except FileMissingError as error:
        hint = "" if name in ("delete", "rename") else ". Please provide a valid path."
        raise CommandError(f"The path {path} does not exist{hint}") from error
    except FilePathError as error:
        new_path = command.get("new_path")
        texts = {"create": f"File {path} already exists", "rename": f"The destination {new_path} already exists"}
        is_taken = error.problem in ("exists", IS_DIRECTORY)
        text = texts.get(name, f"The path {path} is not a file.") if is_taken else for_model(error, name)
        raise CommandError(text) from error


def _view(files: Files, path: str, command: Mapping[str, Any], options: dict[str, Any]) -> Plan[str]:
    owner = options["user_id"]
    try:
        file = (yield from _READ(files, path, user_id=owner)) if path != ROOT else None
    except FilePathError as error:
        if error.problem != IS_DIRECTORY:
            raise
        file = None
    if file is None:
        infos = yield from find(Tree.of(files._core, owner), path)
        rows = yield from compute(partial(_sizes, infos, command["path"], path), sum(len(info.path) for info in infos))
        header = f"Here're the files and directories up to 2 levels deep in {command['path']}, excluding hidden items:"
        return "\n".join([header, *rows])
    if file.text.count("\n") >= MOST_LINES:
        raise CommandError(f"File {command['path']} exceeds maximum line limit of {MOST_LINES:,} lines.")
    first, last = 1, -1
    match command.get("view_range"):
        case [begin, end] if type(begin) is type(end) is int:
            first, last = max(1, min(begin, MOST_LINES)), min(end, MOST_LINES)
    lines = yield from compute(partial(_numbered, file.text, first, last), 4 * file.info.size)
    return f"Here's the content of {command['path']} with line numbers:\n{lines}"


def _create(files: Files, path: str, command: Mapping[str, Any], options: dict[str, Any]) -> Plan[str]:
    yield from _WRITE(files, path, command["file_text"], if_exists="error", **options)
    return f"File created successfully at: {command['path']}"


def _str_replace(files: Files, path: str, command: Mapping[str, Any], options: dict[str, Any]) -> Plan[str]:
    old, new = command["old_str"], command.get("new_str") or ""
    try:
        change, text = yield from edit(files._core, path, old, new, **options)
    except FileEditError as error:
        problem = f", old_str `{old}` did not appear verbatim in {command['path']}."
        if error.lines:
            numbers = ", ".join(map(str, error.lines))
            problem = f". Multiple occurrences of old_str `{old}` in lines: {numbers}. Please ensure it is unique"
        raise CommandError(f"No replacement was performed{problem}") from error
    first = max(1, change.line - 2)
    snippet = yield from compute(partial(_numbered, text.decode(), first, change.line + 2), 4 * len(text))
    intro = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
    return f"{intro}\n{snippet}"


def _insert(files: Files, path: str, command: Mapping[str, Any], options: dict[str, Any]) -> Plan[str]:
    line, text = command["insert_line"], command["insert_text"].rstrip("\n")
    position = line if 0 <= line < _NO_LINE else _NO_LINE  # no line at all: refused with the number of lines
    try:
        yield from _INSERT(files, path, position, f"{text}\n", **options)
    except FileEditError as error:
        if not error.lines:
            raise
        problem = f"{line}. It should be within the range [0, {error.lines[0]}]."
        raise CommandError(f"Invalid `insert_line` parameter: {problem}") from error
    return f"The file {command['path']} has been edited."


def _delete(files: Files, path: str, command: Mapping[str, Any], options: dict[str, Any]) -> Plan[str]:
    yield from DELETE(files, path, **options)
    return f"Successfully deleted {command['path']}"


def _rename(files: Files, path: str, command: Mapping[str, Any], options: dict[str, Any]) -> Plan[str]:
    yield from _RENAME(files, path, _checked(command["new_path"]), **options)
    return f"Successfully renamed {command['old_path']} to {command['new_path']}"


# each with the arguments that it needs, the path first
_COMMANDS: dict[str, tuple[Callable[[Files, str, Mapping[str, Any], dict[str, Any]], Plan[str]], tuple[str, ...]]] = {
    "view": (_view, ("path",)),
    "create": (_create, ("path", "file_text")),
    "str_replace": (_str_replace, ("path", "old_str")),
    "insert": (_insert, ("path", "insert_line", "insert_text")),
    "delete": (_delete, ("path",)),
    "rename": (_rename, ("old_path", "new_path")),
}


def _checked(path: str) -> str:
    """Return a path in its normal form, `/memories` or below it."""
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise CommandError(f"Path must start with {ROOT}, got: {path}")
    normal = posixpath.normpath(path)
    if normal != ROOT and not normal.startswith(f"{ROOT}/"):
        raise CommandError(f"Path {path} would escape {ROOT} directory")
    return normal


def _numbered(text: str, first: int, last: int) -> str:
    """Write lines with their numbers; -1 is the last one. It makes no list: a million lines are slow to free."""
    lines, output = StringIO(f"{spell_hidden(text)}\n", newline="\n"), StringIO()
    for number, line in enumerate(islice(lines, first - 1, None if last == -1 else max(0, last)), first):
        output.write(f"{number:>{_WIDTH}}\t{line}")
    return output.getvalue()[:-1]


def _sizes(infos: Iterable[FileInfo], path: str, normal: str) -> list[str]:
    """Write what lies in a directory, down to two levels, each with the size of what is in it."""
    sizes: defaultdict[tuple[str, ...], int] = defaultdict(int)  # by the names of its path; () is the whole
    for info in infos:
        names = info.path[len(normal) + 1 :].split("/")
        if any(name.startswith(".") for name in names):
            continue
        parts = (*(f"{name}/" for name in names[:-1]), names[-1])
        for depth in range(min(len(parts), 2) + 1):
            sizes[parts[:depth]] += info.size
    ordered = sorted(sizes.items(), key=lambda item: [part.rstrip("/") for part in item[0]])
    rows = [f"{_size(size)}\t{path}/{''.join(parts)}" for parts, size in ordered if parts]
    return [f"{_size(sizes[()])}\t{path}", *rows]


def _size(size: int) -> str:
    """Write a number of bytes as Claude's tool does."""
    amount, unit = float(size), 0
    while amount >= 1024 and unit < 3:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.1f}".removesuffix(".0") + "BKMG"[unit]
