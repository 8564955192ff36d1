"""The program: the names of all commands, how a function becomes one, and the handling of errors around them."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ExitStack
from dataclasses import fields, is_dataclass
from functools import partial, wraps
from importlib import import_module
from inspect import Parameter, Signature, isgeneratorfunction, signature
from io import StringIO, TextIOWrapper
from textwrap import dedent
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.main import get_command

from langchain_workingmem import __version__
from langchain_workingmem.cli.base import Output, Target, checking, failing
from langchain_workingmem.cli.help import Command, Group, Later, with_metavar
from langchain_workingmem.cli.streams import Format, Printer

if TYPE_CHECKING:
    from collections.abc import Callable

# By section: the name of a command, the module that holds it, and what it does in one line of a list.
COMMANDS = {
    "Start here": {
        "chat": ("chat", "Talk to an agent that remembers"),
        "studio": ("servers", "Show a memory on web pages of this machine"),
    },
    "See what is stored": {
        "users": ("conversations", "List the users who have threads"),
        "threads": ("conversations", "List threads, of one user or of all"),
        "show": ("conversations", "Show the messages of a thread"),
        "tail": ("conversations", "Follow a thread or a user: messages as they arrive"),
        "recall": ("conversations", "Search messages by meaning"),
        "working-memory": ("working_memory", "Facts that an agent keeps: read and change them"),
        "observations": ("observations", "Logs that stand for older messages: read, correct"),
        "files": ("files", "Files of a user, a team or an agent"),
    },
    "All data of a user": {
        "export": ("user_data", "Write it to a file"),
        "import": ("user_data", "Read it from a file, also of ChatGPT or OpenAI"),
        "merge": ("user_data", "Give it to another user, as when a guest logs in"),
        "forget": ("user_data", "Delete it"),
        "delete-messages": ("user_data", "Delete messages that are older than a time"),
    },
    "Let a model work": {
        "observe": ("observations", "Write observations that stand for older messages"),
        "keep": ("observations", "Bring working memory up to date"),
    },
    "Serve": {
        "serve": ("servers", "Run a private Redis"),
        "mcp": ("servers", "Give a memory to an AI client (MCP)"),
    },
    "Maintain": {
        "doctor": ("servers", "Check a server, its indexes and vectors"),
        "reindex": ("conversations", "Embed messages, also with another model"),
        "backfill": ("user_data", "Store what a LangGraph checkpointer holds"),
        "eval": ("evaluation", "Measure recall on your own questions"),
    },
}
_LOGS = """The log of observations that stands for older messages: of one thread, or of a resource.

Examples:
    workingmem observations list --thread trip
    workingmem observations sources 12 --thread trip
"""
_FILES = """The files of a resource: a user, a team or an agent.

Examples:
    workingmem files ls /notes --resource maya
    workingmem files cat /notes/plan.md --resource maya
"""
_FACTS = """The facts that an agent keeps, its working memory: of a resource, or of one thread.

Examples:
    workingmem working-memory get --resource maya
    workingmem working-memory diff --resource maya
"""
_HELP = """Memory for LangChain agents on Redis.

Examples:
    workingmem chat                        # an agent that remembers
    workingmem threads --resource maya     # what it has stored
    workingmem recall "the dog" --resource maya

Without --url, --dir or REDIS_URL, a command works on the memory of `workingmem chat`.
`workingmem COMMAND --help` has options and examples.

Exit codes: 0 done, 1 failed, 2 wrong call, 3 declined.
"""


# ---------------------------------------------------------------------- how a function becomes a command


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


# ---------------------------------------------------------------------- the program


def _group(name: str, help: str, room: Any, opened: Any) -> Group:
    commands = {name_of(run): made(run, opened) for run in room.COMMANDS}
    return Group(name=name, help=help, commands=commands, rich_markup_mode=None)


def _made(name: str, module: str) -> Any:
    """Import a command."""
    room = import_module(f"langchain_workingmem.cli.{module}")
    match name:
        case "observations":
            return _group(name, _LOGS, room, Target.opened_for)
        case "working-memory":
            return _group(name, _FACTS, room, room.opened)
        case "files":
            return _group(name, _FILES, room, room.opened)
    function = name.replace("-", "_")
    return made(getattr(room, f"{function}_", None) or getattr(room, function))


class Commands(Group):
    """Runs a command, and turns its errors into one line each."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for section in COMMANDS.values():
            for name, (module, about) in section.items():
                self.add_command(Later(name, about, partial(_made, name, module)))

    def sections(self) -> dict[str, list[tuple[str, str]]]:
        """List the commands by what they are for."""
        return {
            section: [(name, about) for name, (_, about) in commands.items()] for section, commands in COMMANDS.items()
        }

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Parse the words before the name of a command."""
        with failing():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        for name in ("stdin", "stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is None:  # closed by the caller
                setattr(sys, name, StringIO())
            elif name != "stdin" and isinstance(stream, TextIOWrapper):
                # a character that the terminal cannot show must not end the program
                stream.reconfigure(errors="backslashreplace")
        with failing():
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result


# no tracebacks with local variables: they would show the password of the URL
app = typer.Typer(cls=Commands, pretty_exceptions_enable=False, rich_markup_mode=None, help=_HELP)


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer's signature
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")]


@app.callback()
def _options(*, version: Version = False) -> None: ...
