"""`serve` and `doctor`: run a Redis, and check one."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_workingmem._redis.acl import CLUSTER, set_user
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem.cli.base import AsJson, Target, tell, worded
from langchain_workingmem.cli.streams import show
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.reports import Diagnosis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CHECK_SECONDS = 1.0  # between two checks that the server runs

Port = Annotated[int | None, typer.Option(min=1, max=65535, help="Also listen on this port of 127.0.0.1.")]
DataDirectory = Annotated[
    Path | None, typer.Argument(metavar="[DIRECTORY]", help="For the data. Without it, the data is temporary.")
]
Acl = Annotated[bool, typer.Option("--acl", help="Only print the rights that a Redis user needs.")]


def serve(directory: DataDirectory = None, *, port: Port = None) -> None:
    """Run a private Redis until Ctrl-C or SIGTERM. The first line of the output is its URL.

    Several programs may use one directory at once. There is no password: only this user of the machine can open the
    socket, but every user can open a port.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    with EmbeddedRedis(directory) as server, _port(server.path, port) as reopen:
        typer.echo(server.url if port is None else f"redis://127.0.0.1:{port}")
        tell(f"Redis runs in {server.path}{'' if directory else ', a temporary directory'}; Ctrl-C ends it")
        while True:
            time.sleep(_CHECK_SECONDS)
            server.start()  # if it died
            reopen()


def _end(*_: Any) -> None:
    raise typer.Exit


@contextmanager
def _port(directory: Path | None, port: int | None) -> Iterator[Callable[[], object]]:
    """Open a port, and close it at the end, unless it was open before. Yields a function that opens it again."""
    if directory is None or port is None:
        yield lambda: None
        return
    from langchain_workingmem._engine.server import close_port, open_port  # fails on Windows

    was_open = open_port(directory, port)
    try:
        yield partial(open_port, directory, port)
    finally:
        if not was_open:
            close_port(directory)


def doctor(*, target: Target, as_json: AsJson = False, acl: Acl = False) -> None:
    """Check the server, the indexes and the vectors, and change nothing. Exit code 1 if something is broken."""
    if acl:
        typer.echo(_users(Keys(target.key_prefix)))
        return
    with target.opened() as memory:
        found = memory.doctor()
    if not as_json:
        found = Diagnosis(findings=[replace(one, remedy=one.remedy and worded(one.remedy)) for one in found])
    show(found, as_json=as_json, wide=True)
    raise typer.Exit(found.level == "error")


def _users(keys: Keys) -> str:
    return f"""\
# Paste into redis-cli, with the hash of the password: printf %s "$PASSWORD" | sha256sum
# For a Redis Cluster: on every node, with {" ".join(CLUSTER)} at the end.
# Then keep them, or a restart forgets them: ACL SAVE, or without an aclfile CONFIG REWRITE.

# Creates and rebuilds the indexes: for Memory(...).setup() and recall.reindex() in a deployment.
{set_user("workingmem-admin", keys)}

# Runs the application, as Memory(..., create_index=False).
{set_user("workingmem", keys, create_index=False)}"""


COMMANDS = (serve, doctor)
