"""The commands of Claude's memory tool (`memory_20250818`) on the files of an owner, with the results that Claude knows."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from langchain_workingmem._redis.core import plan_of
from langchain_workingmem.errors import FileEditError, FileMissingError, FilePathError, FileQuotaError
from langchain_workingmem.files import Files, Tree, below, find

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem.files import File

ROOT = "/memories"
COMMANDS = ("view", "create", "str_replace", "insert", "delete", "rename")
MOST_LINES = 999_999
_WIDTH = 6  # of a line number
_READ, _WRITE, _EDIT = plan_of(Files.read), plan_of(Files.write), plan_of(Files.edit)
_INSERT, _DELETE, _RENAME = plan_of(Files.insert), plan_of(Files.delete), plan_of(Files.rename)


class CommandError(Exception):
    """A command was refused; the text is for the model."""


def run_command(files: Files, owner: str, by: str | None, command: Mapping[str, Any]) -> Plan[str]:
    """Run a command; `CommandError` for one that is refused. One round trip, two for an edit and for what needs a look first."""
    name = command.get("command")
    if name not in COMMANDS:
        raise CommandError(f"Unknown command: {name}. Use one of {', '.join(COMMANDS)}.")
    missing = [one for one in _NEEDS[name] if command.get(one) is None]
    if missing:
        raise CommandError(f"The command `{name}` needs {', '.join(f'`{one}`' for one in missing)}.")
    try:
        return (yield from _PLANS[name](files, owner, by, command))
    except FileQuotaError as error:
        raise CommandError(str(error)) from error
    except FilePathError as error:
        raise CommandError(str(error)) from error


def clear(files: Files, owner: str, by: str | None) -> Plan[str]:
    """Delete all memory files; their revisions stay."""
    with suppress(FileMissingError):
        yield from _DELETE(files, ROOT, resource_id=owner, by=by)
    return "All memory cleared"


def _checked(path: str) -> str:
    """Return a path in its normal form, below `/memories`."""
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise CommandError(f"Path must start with {ROOT}, got: {path}")
    found = posixpath.normpath(path)
    if found != ROOT and not found.startswith(f"{ROOT}/"):
        raise CommandError(f"Path {path} would escape {ROOT} directory")
    return found


def _numbered(lines: list[str], first: int) -> str:
    return "\n".join(f"{number:>{_WIDTH}}\t{line}" for number, line in enumerate(lines, first))


def _view(files: Files, owner: str, _: str | None, command: Mapping[str, Any]) -> Plan[str]:
    path = command["path"]
    found = _checked(path)
    if found != ROOT:
        try:
            file: File = yield from _READ(files, found, resource_id=owner)
        except FileMissingError as error:
            raise CommandError(f"The path {path} does not exist. Please provide a valid path.") from error
        except FilePathError as error:
            if "is a directory" not in str(error):
                raise
        else:
            return _content(path, file, command.get("view_range"))
    inside = yield from find(Tree.of(files._core, owner), below(found), None)
    sizes: defaultdict[str, int] = defaultdict(int)  # of what is shown, by its path below this one
    total = 0
    for one in inside:
        parts = one.path[len(found) + 1 :].split("/")
        if any(part.startswith(".") for part in parts):
            continue
        total += one.size
        for depth in range(1, min(len(parts), 3)):
            sizes["/".join(parts[:depth]) + "/"] += one.size
        if len(parts) <= 2:
            sizes["/".join(parts)] += one.size
    shown = [f"{_size(size)}\t{path}/{name}" for name, size in sorted(sizes.items(), key=_in_tree)]
    header = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
    return "\n".join([header, f"{_size(total)}\t{path}", *shown])


def _in_tree(item: tuple[str, int]) -> list[str]:
    return item[0].rstrip("/").split("/")


def _content(path: str, file: File, view_range: Any) -> str:
    lines = file.lines
    if len(lines) > MOST_LINES:
        raise CommandError(f"File {path} exceeds maximum line limit of 999,999 lines.")
    first = 1
    if view_range and len(view_range) == 2:
        first = max(1, view_range[0])
        lines = lines[first - 1 : len(lines) if view_range[1] == -1 else view_range[1]]
    return f"Here's the content of {path} with line numbers:\n{_numbered(lines, first)}"


def _create(files: Files, owner: str, by: str | None, command: Mapping[str, Any]) -> Plan[str]:
    path = command["path"]
    found = _checked(path)
    try:
        yield from _WRITE(files, found, command["file_text"], resource_id=owner, if_exists="error", by=by)
    except FilePathError as error:
        if "exists" in str(error) or "is a directory" in str(error):
            raise CommandError(f"File {path} already exists") from error
        raise
    return f"File created successfully at: {path}"


def _str_replace(files: Files, owner: str, by: str | None, command: Mapping[str, Any]) -> Plan[str]:
    path, old = command["path"], command["old_str"]
    found = _checked(path)
    new = command.get("new_str") or ""
    try:
        if not old or old == new:
            problem = "`old_str` is empty" if not old else "`old_str` and `new_str` are the same"
            raise CommandError(f"No replacement was performed, {problem}.")
        made = yield from _EDIT(files, found, old, new, resource_id=owner, by=by)
    except FileEditError as error:
        if error.lines:
            where = ", ".join(map(str, error.lines))
            raise CommandError(
                f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {where}. "
                "Please ensure it is unique"
            ) from error
        raise CommandError(
            f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}."
        ) from error
    except (FileMissingError, FilePathError) as error:
        raise _no_file(path, found, error) from error
    file = yield from _READ(files, found, resource_id=owner, revision=made.info.revision)
    first = max(1, made.line - 2)
    snippet = _numbered(file.lines[first - 1 : made.line + 2], first)
    return f"The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{snippet}"


def _insert(files: Files, owner: str, by: str | None, command: Mapping[str, Any]) -> Plan[str]:
    path, line = command["path"], command["insert_line"]
    found = _checked(path)
    text = str(command["insert_text"]).rstrip("\n") + "\n"
    try:
        if line < 0:
            count = len((yield from _READ(files, found, resource_id=owner)).text.removesuffix("\n").split("\n"))
            raise CommandError(_bad_line(line, count))
        yield from _INSERT(files, found, line, text, resource_id=owner, by=by)
    except FileEditError as error:
        raise CommandError(_bad_line(line, error.lines[0]) if error.lines else str(error)) from error
    except (FileMissingError, FilePathError) as error:
        raise _no_file(path, found, error) from error
    return f"The file {path} has been edited."


def _bad_line(line: int, count: int) -> str:
    return f"Invalid `insert_line` parameter: {line}. It should be within the range [0, {count}]."


def _no_file(path: str, found: str, error: Exception) -> CommandError:
    if found == ROOT or "is a directory" in str(error):
        return CommandError(f"The path {path} is not a file.")
    if isinstance(error, FileMissingError):
        return CommandError(f"The path {path} does not exist. Please provide a valid path.")
    return CommandError(str(error))


def _delete(files: Files, owner: str, by: str | None, command: Mapping[str, Any]) -> Plan[str]:
    path = command["path"]
    if (found := _checked(path)) == ROOT:
        raise CommandError(f"Cannot delete the {ROOT} directory itself")
    try:
        yield from _DELETE(files, found, resource_id=owner, by=by)
    except FileMissingError as error:
        raise CommandError(f"The path {path} does not exist") from error
    return f"Successfully deleted {path}"


def _rename(files: Files, owner: str, by: str | None, command: Mapping[str, Any]) -> Plan[str]:
    old, new = command["old_path"], command["new_path"]
    found, to = _checked(old), _checked(new)
    if found == ROOT:
        raise CommandError(f"Cannot rename the {ROOT} directory itself")
    try:
        yield from _RENAME(files, found, to, resource_id=owner, by=by)
    except FileMissingError as error:
        raise CommandError(f"The path {old} does not exist") from error
    except FilePathError as error:
        if "exists" in str(error):
            raise CommandError(f"The destination {new} already exists") from error
        raise
    return f"Successfully renamed {old} to {new}"


_PLANS: dict[str, Callable[[Files, str, str | None, Mapping[str, Any]], Plan[str]]] = {
    "view": _view,
    "create": _create,
    "str_replace": _str_replace,
    "insert": _insert,
    "delete": _delete,
    "rename": _rename,
}
_NEEDS = {
    "view": ("path",),
    "create": ("path", "file_text"),
    "str_replace": ("path", "old_str"),
    "insert": ("path", "insert_line", "insert_text"),
    "delete": ("path",),
    "rename": ("old_path", "new_path"),
}


def _size(size: int) -> str:
    """Write a number of bytes as Claude's tool does."""
    amount, units = float(size), iter("BKMG")
    unit = next(units)
    while amount >= 1024 and unit != "G":
        amount, unit = amount / 1024, next(units)
    return f"{amount:.0f}{unit}" if amount == int(amount) else f"{amount:.1f}{unit}"
