"""The program: all commands, and the handling of errors around them."""

from __future__ import annotations

import sys
from io import StringIO, TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from langchain_workingmem import __version__
from langchain_workingmem.cli import (
    chat,
    conversations,
    docs,
    evaluation,
    files,
    observations,
    servers,
    user_data,
    working_memory,
)
from langchain_workingmem.cli.base import Target, add_command, failing


class Commands(TyperGroup):
    """Runs a command, and turns its errors into one line each."""

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
app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Memory for LangChain agents on Redis. Exit codes: 0 done, 1 failed, 2 wrong call, 3 declined.",
)


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer's signature
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")]


@app.callback()
def _options(*, version: Version = False) -> None: ...


_LOGS = "The log that stands for older messages: of one thread, or of a resource."
_FILES = "The files of a resource: a user, a team or an agent."
_FACTS = "The facts that an agent keeps: of a resource, or of one thread."
add_command(app, observations.observe)
add_command(app, observations.keep)
for _module in (chat, servers, conversations, user_data, evaluation, docs):
    for _command in _module.COMMANDS:
        add_command(app, _command)
for _name, _help, _room, _opened in (
    ("observations", _LOGS, observations, Target.opened_for),
    ("working-memory", _FACTS, working_memory, working_memory.opened),
    ("files", _FILES, files, files.opened),
):
    _group = typer.Typer(no_args_is_help=True, help=_help)
    for _command in _room.COMMANDS:
        add_command(_group, _command, _opened)
    app.add_typer(_group, name=_name)
