"""How the program reads: help as plain text in sections, commands that are loaded when they are called, ids that a shell completes."""

from __future__ import annotations

import re
import signal
from contextlib import redirect_stderr, suppress
from copy import copy
from datetime import datetime
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args, get_origin

import typer  # noqa: TC002 - typer reads annotations
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from inspect import Parameter

    from langchain_workingmem.memory import Memory

COMPLETION_SECONDS = 2.0  # a shell waits no longer for ids
_SEEN = 1000  # ids among which it is looked
# What every shell takes as it is: bash would run the $(...) of an id, and zsh would lose its quotes.
_COMPLETED = re.compile(r"[\w@%+:,./][\w@%+=:,./-]*")
_METAVARS = {int: "N", float: "NUMBER", datetime: "TIME", Path: "FILE", str: "TEXT"}
_OWN = ("--install-completion", "--show-completion", "--help", "--version")  # of the program, last in a list


class _Helpful:
    """A command whose help is plain text: a line of usage, what it does, its examples, and a list for each section."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help. Examples keep their lines."""
        command: Any = self
        params = command.get_params(ctx)
        words = [_metavar(one) for one in params if one.param_type_name == "argument"]
        pieces = [*words, "[OPTIONS]", *(["COMMAND"] if hasattr(command, "commands") else [])]
        formatter.write_usage(ctx.command_path, " ".join(pieces))
        for paragraph in (command.help or "").strip("\n").split("\n\n"):
            formatter.write_paragraph()
            if paragraph.startswith("Examples:"):
                formatter.write(f"{paragraph.rstrip()}\n")
            else:
                formatter.write_text(" ".join(paragraph.split()))
        sections = command.sections() if hasattr(command, "sections") else {}
        for title, rows in {**sections, **_options(params)}.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def _options(params: Iterable[Any]) -> dict[str, list[tuple[str, str]]]:
    """Describe parameters by section: the arguments, the options of this command, those of all commands."""
    found: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for one in sorted(params, key=lambda one: any(name in _OWN for name in one.opts)):
        if one.param_type_name == "argument":
            found["Arguments"].append((_metavar(one), one.help or ""))
            continue
        names = ", ".join(sorted(one.opts, key=len))
        right = [getattr(one, "help", None) or ""]
        if one.show_default and one.default not in (None, False, ()):
            right.append(f"Default: {one.default}.")
        if one.required:
            right.append("Required.")
        title = getattr(one, "rich_help_panel", None) or "Options"
        found.setdefault(title, []).append((names if one.is_flag else f"{names} {one.metavar}", " ".join(right)))
    return {title: rows for title, rows in found.items() if rows}


def _metavar(argument: Any) -> str:
    return str(argument.metavar) if argument.required else f"[{argument.metavar}]"


def with_metavar(one: Parameter) -> Parameter:
    """Name what a parameter takes in capitals: an argument by its name, an option by its type, choices by themselves."""
    whole, info = get_args(one.annotation)
    kind, info = whole, copy(info)  # parameters may share an annotation
    kinds = [arg for arg in get_args(kind) if arg is not type(None)] if get_origin(kind) not in {None, Literal} else []
    (kind,) = {*(kinds or [kind])}
    if info.metavar is None:
        if isinstance(info, ArgumentInfo):
            info.metavar = one.name.upper()
        elif get_origin(kind) is Literal:
            info.metavar = "|".join(map(str, get_args(kind)))
        else:
            info.metavar = _METAVARS.get(*get_args(kind) or (kind,))
    return one.replace(annotation=Annotated[whole, info])


class Command(_Helpful, TyperCommand):
    """A command."""

    target: Any = None  # the options that say which memory, for completion


class Group(_Helpful, TyperGroup):
    """Commands that are called by name. Without a name, it prints its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take no words as a question for help."""
        return super().parse_args(ctx, args or ["--help"])

    def sections(self) -> dict[str, list[tuple[str, str]]]:
        """List the commands."""
        return {"Commands": [(name, one.get_short_help_str(1000)) for name, one in self.commands.items()]}


class Later(TyperCommand):
    """A command that is made when it is called: the names of all commands need none of what the commands import."""

    def __init__(self, name: str, about: str, make: Callable[[], Any]) -> None:
        super().__init__(name, help=about, short_help=about)
        self._make = make

    @cached_property
    def made(self) -> Any:
        """Return the command."""
        return self._make()

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Parse the words of a call."""
        return self.made.make_context(*args, **extra)


# ---------------------------------------------------------------------- completion


def thread_ids(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Complete the id of a thread: the newest ones, of the resource if there is one, with their titles."""

    def look(memory: Memory) -> list[tuple[str, str]]:
        owner = ctx.params.get("resource_id") or ctx.params.get("resource")
        return [(one.id, one.title or "") for one in memory.threads.list(resource_id=owner, limit=_SEEN)]

    return _completed(ctx, incomplete, look)


def resource_ids(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Complete the id of a resource: those with the newest threads."""

    def look(memory: Memory) -> list[tuple[str, str]]:
        from langchain_workingmem.display.pictures import counted

        return [(one.resource_id, counted(one.threads, "thread")) for one in memory.users.list(limit=_SEEN)]

    return _completed(ctx, incomplete, look)


def _completed(
    ctx: typer.Context, incomplete: str, look: Callable[[Memory], list[tuple[str, str]]]
) -> list[tuple[str, str]]:
    """Look into the memory of a call that is still being typed. Any error, and the end of the time, is silence."""

    def end(*_: object) -> None:
        raise SystemExit  # which no `except Exception` of a client swallows

    with suppress(Exception, SystemExit), redirect_stderr(StringIO()):
        signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, COMPLETION_SECONDS)
        try:
            target = cast("Any", ctx.command).target
            given = {name: ctx.params[name] for name in target.__dataclass_fields__ if ctx.params.get(name)}
            with target(**given).opened() as memory:
                ids = (one for one in look(memory) if _COMPLETED.fullmatch(one[0]))
                return [one for one in ids if one[0].startswith(incomplete)]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return []
