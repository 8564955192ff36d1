"""Programs that run until Ctrl-C, and `doctor`.

`serve` runs a Redis, `studio` shows a memory on web pages, `mcp` gives it to AI clients; `doctor` checks a Redis.
"""

from __future__ import annotations

import os
import secrets
import signal
import stat
import time
import webbrowser
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from langchain_workingmem._redis.acl import CLUSTER, set_user
from langchain_workingmem._redis.keys import Keys, check_id
from langchain_workingmem.cli.base import (
    MaybeModel,
    Output,
    Program,
    ResourceId,
    Target,
    checking,
    misused,
    tell,
    worded,
)
from langchain_workingmem.cli.files import KEPT
from langchain_workingmem.cli.streams import parsed, reading
from langchain_workingmem.cli.user_data import Namespaces, as_namespaces
from langchain_workingmem.cli.working_memory import KEEP_ALL
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import OptionError
from langchain_workingmem.options import Scope, WorkingMemoryOptions
from langchain_workingmem.reports import Diagnosis
from langchain_workingmem.serving import leave_soon, listen, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_workingmem.memory import Memory

_CHECK_SECONDS = 1.0  # between two checks that the server runs
_TOKENS = 'write a JSON object such as {"TOKEN": "RESOURCE"}'

Port = Annotated[int | None, typer.Option(min=1, max=65535, help="Also listen on this port of 127.0.0.1.")]
FreePort = Annotated[int | None, typer.Option(min=1, max=65535, help="The port to listen on. Default: a free one.")]
Tokens = Annotated[
    Path | None, typer.Option(help="Instead of --resource: a JSON object of token -> resource id.", metavar="FILE")
]
DataDirectory = Annotated[
    Path | None, typer.Argument(metavar="DIRECTORY", help="For the data. Without it, the data is temporary.")
]
Acl = Annotated[bool, typer.Option("--acl", help="Only print the rights that a Redis user needs.")]


def serve(directory: DataDirectory = None, *, port: Port = None) -> None:
    """Run a private Redis until Ctrl-C or SIGTERM. The first line of the output is its URL.

    Examples:
        workingmem serve data/memory
        workingmem serve --port 6399     # temporary data, on 127.0.0.1

    Several programs may use one directory at once. There is no password: only this user of the machine can open the
    socket, but every user can open a port.
    """
    _end_on_signals()
    with EmbeddedRedis(directory) as server, _port(server.path, port) as reopen:
        typer.echo(server.url if port is None else f"redis://127.0.0.1:{port}")
        tell(f"Redis runs in {server.path}{'' if directory else ', a temporary directory'}; Ctrl-C ends it")
        while True:
            time.sleep(_CHECK_SECONDS)
            server.start()  # if it died
            reopen()


def studio(
    *,
    resource: ResourceId = None,
    write: Annotated[bool, typer.Option("--write", help="Allow changes and deletions.")] = False,
    port: FreePort = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    program: Program = None,
    embeddings: MaybeModel = "local",
    namespace: Namespaces = None,
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=INPUT/OUTPUT", help="The price of a million tokens, as in small=0.25/2. Repeatable."
        ),
    ] = None,
    target: Target,
) -> None:
    """Show a memory on local web pages until Ctrl-C. The first line of the output is their address.

    Examples:
        workingmem studio --open
        workingmem studio --resource maya --write --port 8700
        workingmem studio --memory my_program:memory

    The address holds a token: whoever has it can read the memory. Without --write nothing can be changed.
    """
    with _extra():
        from langchain_workingmem.studio import Studio, application, prices_of
    _end_on_signals(_end_soon)
    templates = as_namespaces(namespace)
    prices = prices_of(price or ())
    plain = {scope: WorkingMemoryOptions(template="", scope=scope, revisions=KEEP_ALL) for scope in get_args(Scope)}
    with ExitStack() as stack:
        opened = target.of_program(program, embeddings, working_memory=plain["resource"], files=KEPT)
        memory = stack.enter_context(opened)
        if program is None:
            other = stack.enter_context(target.opened(working_memory=plain["thread"]))
            documents: dict[Scope, Memory] = {"resource": memory, "thread": other}
        else:
            options = memory._core.state.working_memory
            documents = {options.scope: memory} if options else {}
        made = Studio(
            memory=memory,
            token=secrets.token_urlsafe(24),
            resource_id=None if resource is None else check_id(resource, "resource"),
            write=write,
            namespaces=templates,
            documents=documents,
            prices=prices,
            is_program=program is not None,
            reword=worded,
        )
        _check_reached(memory)
        listener = listen(port)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/?token={made.token}"
        typer.echo(address)
        tell(f"The studio {'can write' if write else 'only reads'}; Ctrl-C ends it")
        if open_:
            _open(address, Path(stack.enter_context(TemporaryDirectory(prefix="workingmem-"))))
        run(application(made), listener)


def _open(address: str, folder: Path) -> None:
    """Open an address with a token by a file that leads there: every user of the machine may see a browser's arguments."""
    page = folder / "studio.html"
    page.touch(mode=0o600)
    page.write_text(f'<meta http-equiv="refresh" content="0; url={address}">')
    if typer.launch(str(page)):  # there is no program that opens files
        webbrowser.open(page.as_uri())


def _end_on_signals(end: Callable[..., None] | None = None) -> None:
    """End at once; `end` is called before."""

    def leave(*_: Any) -> None:
        if end is not None:
            end()
        raise SystemExit(0)  # which no `except Exception` of a library that is being imported swallows

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)


def _end_soon() -> None:
    leave_soon()
    _end_on_signals(partial(leave_soon, at_once=True))


@contextmanager
def _extra() -> Iterator[None]:
    """Name the extra that is missing, if an import fails."""
    try:
        yield
    except ImportError as error:
        raise OptionError(str(error)) from error


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


def mcp(
    *,
    resource: ResourceId = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer only the tools that read.")] = False,
    http: Annotated[
        bool,
        typer.Option(
            "--http", help="Serve HTTP on 127.0.0.1, with --port and --tokens; else standard input and output."
        ),
    ] = False,
    port: FreePort = None,
    tokens: Tokens = None,
    files: Annotated[
        bool, typer.Option("--files", help="Offer the files of the user, too. With --memory, its FileOptions decide.")
    ] = False,
    program: Program = None,
    embeddings: MaybeModel = "local",
    target: Target,
) -> None:
    """Serve the memory of a user to an AI client, by the Model Context Protocol.

    Examples:
        workingmem mcp --resource maya
        workingmem mcp --http --port 7000 --tokens tokens.json

    The client starts the command, and ends it. With --http it runs until Ctrl-C or SIGTERM, and the first line of the output is
    its URL. Clients never choose whose memory it is: --resource says it, or the token that a client sends.
    """
    if not http and (tokens is not None or port is not None):
        misused("--tokens and --port are for a server that listens: pass --http as well")
    if (resource is None) == (tokens is None):
        misused("say whose memory it is: pass --resource ID, or with --http a file of --tokens; only one of them")
    if files and program is not None:
        misused("--files is for a memory without --memory: a program passes Memory(files=FileOptions())")
    _end_on_signals(_end_soon)
    with _extra():
        from langchain_workingmem.mcp import application, at_path, protocol_streams, run_stdio, server
    known = None if tokens is None else _tokens(tokens)
    options = WorkingMemoryOptions(revisions=KEEP_ALL)
    with ExitStack() as stack:
        streams = None if http else stack.enter_context(protocol_streams())
        kept = KEPT if files else None
        opened = target.of_program(program, embeddings, make=not read_only, working_memory=options, files=kept)
        memory = stack.enter_context(opened)
        _check_reached(memory)
        if streams is not None:
            run_stdio(server(memory, resource_id=resource or "", read_only=read_only), *streams)
            return
        app = application(memory, resource_id=resource, tokens=known, read_only=read_only)
        listener = stack.enter_context(listen(port))
        typer.echo(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp")
        if not known:
            tell("Every program of this machine can reach this memory: --tokens FILE asks each one for a token")
        run(at_path("/mcp", app), listener)


def _check_reached(memory: Memory) -> None:
    """Fail now, if there is no Redis or no memory."""
    memory.threads.list(limit=1)


def _tokens(path: Path) -> dict[str, str]:
    """Read tokens and their resources; only the owner of the file may read it."""
    with reading(str(path)) as file:
        mode = os.fstat(file.fileno()).st_mode
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise OptionError(f"{path} can be read or changed by others", remedy=f"chmod 600 {path}")
        found = parsed(file.read(), str(path), remedy=_TOKENS, object_pairs_hook=list)
    if not isinstance(found, list) or not all(isinstance(one, tuple) and isinstance(one[1], str) for one in found):
        raise OptionError(f"{path} is no object of tokens", remedy=_TOKENS)
    if len(dict(found)) < len(found):
        raise OptionError(f"{path} holds a token twice", remedy="give each token one resource")
    return dict(found)


def doctor(*, target: Target, acl: Acl = False) -> Output:
    """Check the server, the indexes and the vectors, and change nothing. Exit code 1 if something is broken.

    Examples:
        workingmem doctor --url redis://localhost:6379
        workingmem doctor --acl > users.acl
    """
    if acl:
        with checking():
            typer.echo(_users(Keys(target.key_prefix)))
        return
    with target.opened() as memory:
        found = memory.doctor()
    yield found, Diagnosis(findings=[replace(one, remedy=one.remedy and worded(one.remedy)) for one in found])
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
