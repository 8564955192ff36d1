"""`serve` and `doctor`: a Redis, and whether it is well."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_workingmem._redis.acl import CLUSTER, set_user
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem.cli.base import AsJson, Dir, Prefix, Url, opened, tell, worded
from langchain_workingmem.cli.output import show
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import RedisConnectionError
from langchain_workingmem.models import Diagnosis

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOK_SECONDS = 1.0  # between two looks at whether the server still runs

Port = Annotated[int | None, typer.Option(min=1, max=65535, help="Listen on this port of 127.0.0.1 as well.")]
Place = Annotated[
    Path | None, typer.Argument(metavar="[DIRECTORY]", help="Keeps the data. Without it they go when the server ends.")
]
Acl = Annotated[bool, typer.Option("--acl", help="Print the rights that a Redis user needs, and look at nothing.")]


def serve(directory: Place = None, *, port: Port = None) -> None:
    """Run a private Redis until Ctrl-C or SIGTERM. The first line of the output is its URL.

    Several programs may use one directory at once, this one or any that passes it as --dir. There is no password: the
    socket opens for this user of the machine only, a port for all of its users.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    with EmbeddedRedis(directory) as server, _port(server, port):
        typer.echo(server.url if port is None else f"redis://127.0.0.1:{port}")
        tell(f"Redis runs in {server.path}{'' if directory else ', for now'}; Ctrl-C ends it")
        while True:
            time.sleep(_LOOK_SECONDS)
            server.start()  # if it died
            _listen(server, port)


def _end(*_: Any) -> None:
    raise typer.Exit


@contextmanager
def _port(server: EmbeddedRedis, port: int | None) -> Iterator[None]:
    """Keep a port open, and close it unless somebody else had opened it."""
    import redis

    was_open = _listen(server, port)
    try:
        yield
    finally:
        if not was_open:
            with suppress(redis.RedisError), redis.Redis.from_url(server.url) as client:
                client.config_set("port", 0)


def _listen(server: EmbeddedRedis, port: int | None) -> bool:
    """Open a port, and tell whether it was open."""
    import redis

    if port is None:
        return True
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        before = int(client.config_get("port")["port"])
        if before == port:
            return True
        if before:
            msg = f"the Redis of this directory listens on port {before} already: use that, or end the program that opened it"
            raise RedisConnectionError(msg)
        try:
            client.config_set("bind", "127.0.0.1")
            client.config_set("port", port)
        except redis.ResponseError as error:
            msg = f"port {port} of 127.0.0.1 cannot be opened, choose another one: {error}"
            raise RedisConnectionError(msg) from error
    return False


def doctor(
    *, url: Url = None, directory: Dir = None, key_prefix: Prefix = "wm", as_json: AsJson = False, acl: Acl = False
) -> None:
    """Look at the server, the indexes and the vectors; exit code 1 when something is broken. Changes nothing."""
    if acl:
        typer.echo(_users(Keys(key_prefix)))
        return
    with opened(url, directory, key_prefix) as memory:
        found = memory.doctor()
    if not as_json:
        found = Diagnosis(findings=[replace(one, remedy=one.remedy and worded(one.remedy)) for one in found])
    show(found, as_json=as_json, wide=True)
    raise typer.Exit(found.level == "error")


def _users(keys: Keys) -> str:
    return "\n".join(
        (
            '# Paste into redis-cli, with the password\'s hash in its place: printf %s "$PASSWORD" | sha256sum',
            f"# On every node of a Redis Cluster, with {' '.join(CLUSTER)} at the end.",
            "",
            "# Makes the indexes and rebuilds them: for Memory(...).setup() and recall.reindex() when you deploy.",
            set_user("workingmem-admin", keys),
            "",
            "# Runs the application, as Memory(..., create_index=False).",
            set_user("workingmem", keys, create_index=False),
        )
    )
