"""How a function becomes a command: its parameters are options, what it yields is printed."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, isgeneratorfunction, signature
from textwrap import dedent
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.main import get_command

from langchain_workingmem.cli.base import Output, Target, checking
from langchain_workingmem.cli.help import Command, with_metavar
from langchain_workingmem.cli.streams import Format, Printer

if TYPE_CHECKING:
    from collections.abc import Callable

Formatted = Annotated[Format, typer.Option("--format", help="How to print the result.")]


def made(run: Callable[..., Output | None], opened: Callable[..., Any] = Target.opened) -> Any:
    """Make a command of a function. What it yields is printed, in the form that the option `--format` names.

    A parameter that is a dataclass becomes an option for each field. The parameter `memory` becomes those of a target, which is
    given to `opened` with the other dataclasses. What people read has the times of the target's zone; other forms have UTC.
    """
    given = signature(run, eval_str=True, locals={"Memory": Any}).parameters
    groups: dict[str, Any] = {name: one.annotation for name, one in given.items() if is_dataclass(one.annotation)}
    options = [one for name, one in given.items() if name not in {*groups, "memory"}]
    if isgeneratorfunction(run):
        options.append(Parameter("format_", Parameter.KEYWORD_ONLY, default="table", annotation=Formatted))
    if "memory" in given:
        groups["target"] = Target
    for group in groups.values():
        options += signature(group, eval_str=True).parameters.values()

    @wraps(run)
    def called(**words: Any) -> None:
        printer = Printer(words.pop("format_", "table"))
        made = {name: kind(**{one.name: words.pop(one.name) for one in fields(kind)}) for name, kind in groups.items()}
        with ExitStack() as stack:
            if "target" in made:
                stack.enter_context(_clock(made["target"].zone))
            if "memory" in given:
                made["memory"] = stack.enter_context(opened(made.pop("target"), **made))
            for result in run(**words, **made) or ():
                printer.show(result)

    options = [*map(with_metavar, options)]
    called.__signature__ = Signature(options)  # type: ignore[attr-defined] # typer reads both
    called.__annotations__ = {one.name: one.annotation for one in options}
    one = typer.Typer(add_completion=False, rich_markup_mode=None)
    one.command(name_of(run), cls=Command)(called)
    command: Any = get_command(one)
    command.help = dedent(f"    {run.__doc__}")  # typer takes the indent from examples where nothing else has one
    command.target = Target
    return command


def name_of(run: Callable[..., Any]) -> str:
    """Return the name of a command."""
    return run.__name__.rstrip("_").replace("_", "-")


def _clock(zone: str) -> AbstractContextManager[None]:
    from langchain_workingmem.checks import check_zone
    from langchain_workingmem.display.pictures import shown_in

    with checking():
        return shown_in(check_zone(zone, "--timezone"))
