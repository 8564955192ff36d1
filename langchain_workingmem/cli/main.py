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
    observations,
    servers,
    user_data,
    working_memory,
)
from langchain_workingmem.cli.base import add_command, failing


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


add_command(app, observations.observe)
_logs = typer.Typer(
    no_args_is_help=True, help="The log that stands for older messages: of one thread, or of a resource."
)
_facts = typer.Typer(no_args_is_help=True, help="The facts that an agent keeps: of a resource, or of one thread.")
for _app, _module in (
    *((app, each) for each in (chat, servers, conversations, user_data, evaluation, docs)),
    (_logs, observations),
    (_facts, working_memory),
):
    for _command in _module.COMMANDS:
        add_command(_app, _command)
app.add_typer(_logs, name="observations")
app.add_typer(_facts, name="working-memory")
