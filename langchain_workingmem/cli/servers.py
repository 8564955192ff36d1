"""`studio` shows a memory on web pages and `mcp` gives it to AI clients, until Ctrl-C; `doctor` checks a Redis."""

from __future__ import annotations

import os
import secrets
import signal
import stat
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from langchain_workingmem.cli.base import (
    KEEP_ALL,
    Form,
    Model,
    Program,
    Target,
    UserId,
    is_empty,
    misused,
    nothing_yet,
    tell,
)
from langchain_workingmem.cli.streams import parsed, printed, reading
from langchain_workingmem.errors import OptionError
from langchain_workingmem.options import Scope, WorkingMemoryOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_workingmem.memory import Memory

Port = Annotated[int | None, typer.Option(min=1, max=65535, help="The port to listen on. Default: a free one.")]
Tokens = Annotated[Path | None, typer.Option(help="Instead of --user: a JSON object of token -> user id.")]


def studio(
    *,
    user: UserId = None,
    write: Annotated[bool, typer.Option("--write", help="Allow changes and deletions.")] = False,
    port: Port = None,
    program: Program = None,
    embeddings: Model = "local",
    target: Target,
) -> None:
    """Show a memory on local web pages until Ctrl-C. The first line of the output is their address.

    The address holds a token: whoever has it can read the memory. Without --write nothing can be changed.
    """
    _end_on_sigterm()
    with _extra():
        from langchain_workingmem.studio import Studio, application
    from langchain_workingmem.serving import listen, run

    options = {scope: WorkingMemoryOptions(template="", scope=scope, revisions=KEEP_ALL) for scope in get_args(Scope)}
    with ExitStack() as stack:
        memory = stack.enter_context(target.of_program(program, embeddings, working_memory=options["user"]))
        if program is None:
            thread_memory = stack.enter_context(target.opened(working_memory=options["thread"]))
            documents: dict[Scope, Memory] = {"user": memory, "thread": thread_memory}
        else:
            program_options = memory._core.state.working_memory
            documents = {program_options.scope: memory} if program_options else {}
        site = Studio(
            memory=memory,
            token=secrets.token_urlsafe(24),
            user_id=user,
            write=write,
            documents=documents,
            is_program=program is not None,
        )
        if not nothing_yet(memory):
            memory.threads.list(limit=1)  # fails now, if this Redis or this layout cannot be read
        listener = listen(port)
        typer.echo(f"http://127.0.0.1:{listener.getsockname()[1]}/?token={site.token}")
        tell(f"The studio {'can write' if write else 'only reads'}; Ctrl-C ends it")
        run(application(site), listener)


def mcp(
    *,
    user: UserId = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer only the tools that read.")] = False,
    http: Annotated[
        bool,
        typer.Option(
            "--http", help="Serve HTTP on 127.0.0.1, with --port and --tokens; else standard input and output."
        ),
    ] = False,
    port: Port = None,
    tokens: Tokens = None,
    program: Program = None,
    embeddings: Model = "local",
    target: Target,
) -> None:
    """Serve the memory of a user to an AI client, by the Model Context Protocol.

    The client starts the command, and ends it. With --http it runs until Ctrl-C or SIGTERM, and the first line of the output is
    its URL. Clients never choose whose memory it is: --user says it, or the token that a client sends.
    """
    if not http and (tokens is not None or port is not None):
        misused("--tokens and --port are for a server that listens: pass --http as well")
    if (user is None) == (tokens is None):
        misused("say whose memory it is: pass --user ID, or with --http a file of --tokens; only one of them")
    _end_on_sigterm()
    with _extra():
        from langchain_workingmem.mcp import application, at_path, protocol_streams, run_stdio, server
    from langchain_workingmem.serving import listen, run

    users = None if tokens is None else _tokens(tokens)
    options = WorkingMemoryOptions(revisions=KEEP_ALL)
    with ExitStack() as stack:
        streams = None if http else stack.enter_context(protocol_streams())
        opening = target.of_program(program, embeddings, make=not read_only, working_memory=options)
        memory = stack.enter_context(opening)
        if not (read_only and is_empty(memory)):
            memory.threads.list(limit=1)  # fails now, if this Redis or this layout cannot be read
        if streams is not None:
            run_stdio(server(memory, user_id=user or "", read_only=read_only), *streams)
            return
        app = application(memory, user_id=user, tokens=users, read_only=read_only)
        listener = stack.enter_context(listen(port))
        typer.echo(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp")
        if not users:
            tell("Every program of this machine can reach this memory: --tokens FILE asks each one for a token")
        run(at_path("/mcp", app), listener)


def _end_on_sigterm() -> None:
    """End as programs do, so that all that was opened is closed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


@contextmanager
def _extra() -> Iterator[None]:
    """Name the extra that is missing, if an import fails."""
    try:
        yield
    except ImportError as error:
        raise OptionError(str(error)) from error


def _tokens(path: Path) -> dict[str, str]:
    """Read tokens and their users; only the owner of the file may read it."""
    with reading(str(path)) as file:
        if os.name == "posix" and os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise OptionError(f"{path} can be read or changed by others", remedy=f"chmod 600 {path}")
        pairs = parsed(file.read(), str(path), object_pairs_hook=list)
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) and isinstance(pair[1], str) for pair in pairs):
        raise OptionError(f"{path} is no object of tokens", remedy='write a JSON object such as {"TOKEN": "USER"}')
    if len(dict(pairs)) < len(pairs):
        raise OptionError(f"{path} holds a token twice", remedy="give each token one user")
    return dict(pairs)


def doctor(*, form: Form = "table", target: Target) -> None:
    """Check the server, the indexes and the vectors, and change nothing. Exit code 1 if something is broken."""
    with target.opened() as memory:
        diagnosis = memory.doctor()
    printed(form, diagnosis)
    raise typer.Exit(diagnosis.level == "error")
