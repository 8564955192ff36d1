"""The program: all commands by name."""

from __future__ import annotations

from typing import Annotated

import typer

from langchain_workingmem import __version__
from langchain_workingmem.cli import conversations, servers, user_data, working_memory
from langchain_workingmem.cli.base import Commands, targeted
from langchain_workingmem.cli.chat import chat

_HELP = """Memory for LangChain agents on Redis.

Without --url, --dir or REDIS_URL, a command works on the memory of `workingmem chat`. Exit codes: 0 done, 1 failed, 2 wrong call, 3 declined.
"""
COMMANDS = {
    "chat": chat,
    "studio": servers.studio,
    "users": conversations.users,
    "threads": conversations.threads,
    "show": conversations.show,
    "recall": conversations.recall,
    "export": user_data.export,
    "import": user_data.import_,
    "forget": user_data.forget,
    "mcp": servers.mcp,
    "doctor": servers.doctor,
    "reindex": conversations.reindex,
    "backfill": user_data.backfill,
}
GROUPS = {
    "working-memory": (working_memory.COMMANDS, "The facts that an agent keeps, of a user or of one thread."),
}

# no tracebacks with local variables: they would show the password of the URL
app = typer.Typer(cls=Commands, pretty_exceptions_enable=False, no_args_is_help=True, help=_HELP)
for _name, _command in COMMANDS.items():
    app.command(_name)(targeted(_command))
for _name, (_commands, _help) in GROUPS.items():
    _group = typer.Typer(help=_help, no_args_is_help=True)
    for _command_name, _command in _commands.items():
        _group.command(_command_name)(targeted(_command))
    app.add_typer(_group, name=_name)


def _version(value: bool) -> None:  # noqa: FBT001 - typer's signature
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...
