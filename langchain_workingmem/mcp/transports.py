"""The transports of the server: standard input and output, as clients start it, and streamable HTTP.

Over standard input it ends with its input, or on a signal. Over HTTP each request has one answer. There are no sessions, so there is
none to take over.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from concurrent.futures import CancelledError as Cancelled
from contextlib import contextmanager, suppress
from hashlib import sha256
from hmac import compare_digest
from inspect import signature
from threading import Thread
from typing import TYPE_CHECKING, Any, TextIO

from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.errors import OptionError
from langchain_workingmem.mcp.protocol import build, refusal
from langchain_workingmem.serving import leave_soon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from mcp.server.lowlevel import Server
    from starlette.types import Message, Receive, Scope, Send

    from langchain_workingmem.memory import Memory
    from langchain_workingmem.serving import Application

_WAITING = 16  # lines that are read ahead
SHORTEST = 16  # characters of a token
_TOKEN = re.compile(r"[!-~]+")
_RESOURCE = "langchain_workingmem.resource"  # in the scope of a request
_MOST_BYTES = 32 * 2**20  # of a request: what is too large for a tool gets an answer that says so
# newer versions of the SDK limit requests to 4 MiB, older ones have no limit
_LIMIT = "max_request_body_size"
_OPTIONS: dict[str, Any] = {_LIMIT: _MOST_BYTES} if _LIMIT in signature(StreamableHTTPSessionManager).parameters else {}
_MAKE = "make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"


@contextmanager
def protocol_streams() -> Iterator[tuple[int, TextIO]]:
    """Take standard input and output for the protocol: what the process prints goes to standard error from now on."""
    sys.stdout.flush()
    source, sink = os.dup(0), os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace", newline="\n")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    with suppress(BrokenPipeError), sink:  # the client may be gone
        yield source, sink


def run_stdio(server: Server[Any, Any], source: int, sink: TextIO) -> None:
    """Serve the client that has started this process, until it closes standard input, or SIGINT or SIGTERM comes.

    To be called in the main thread, at the end of a program: the process ends soon after, whatever still waits for a model.
    """
    asyncio.run(_serve(server, source, sink))


async def _serve(server: Server[Any, Any], source: int, sink: TextIO) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None  # noqa: S101 - for mypy

    def end(*_: object) -> None:
        leave_soon(at_once=task.cancelling() > 0)
        loop.call_soon_threadsafe(task.cancel)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    output: Any = _Output(sink)
    lines: Any = _valid(_lines(source), output)
    with suppress(asyncio.CancelledError):
        async with stdio_server(lines, output) as (read, write):
            await server.run(read, write, server.create_initialization_options())
    leave_soon()


class _Output:
    """Writes in threads. If the client has closed its end, nobody reads what is written."""

    def __init__(self, sink: TextIO) -> None:
        self._sink = sink

    async def write(self, text: str) -> None:
        with suppress(BrokenPipeError):
            await asyncio.to_thread(print, text, end="", file=self._sink, flush=True)

    async def flush(self) -> None:
        """Nothing is left to write."""


async def _lines(source: int) -> AsyncIterator[str]:
    """Read lines in a thread that ends with the process: a read that waits for input cannot be interrupted."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[bytes] = asyncio.Queue(_WAITING)

    def read() -> None:
        with suppress(RuntimeError, Cancelled, OSError), os.fdopen(source, "rb") as file:  # the loop may be closed
            for line in file:
                asyncio.run_coroutine_threadsafe(waiting.put(line), loop).result()
            asyncio.run_coroutine_threadsafe(waiting.put(b""), loop).result()

    Thread(target=read, name="workingmem-stdin", daemon=True).start()
    while line := await waiting.get():
        yield line.decode(errors="replace")


async def _valid(lines: AsyncIterator[str], output: _Output) -> AsyncIterator[str]:
    """Pass on what the SDK can answer, and answer the rest."""
    async for line in lines:
        if not line.strip():
            continue
        if (refused := refusal(line)) is None:
            yield line
        elif refused.text:
            await output.write(f"{refused.text}\n")


# ---------------------------------------------------------------------- HTTP


def application(
    memory: Memory,
    *,
    resource_id: str | None = None,
    tokens: Mapping[str, str] | None = None,
    read_only: bool = False,
) -> Application:
    """Return an ASGI application that is an MCP server over streamable HTTP, to be mounted at a path of a program.

    Either `resource_id`, the one resource of all requests, which then nothing protects. Or `tokens`: a dict of token ->
    resource; a request says its token in the header `Authorization: Bearer <token>`, and gets 401 without a known one. The
    rest is as `server` says. A request needs no other one before it: any process answers any request, and no lifespan has to
    run. The hosts and origins that may call are the program's matter. Raises `OptionError` and `IdError`.
    """
    if (resource_id is None) == (tokens is None):
        raise OptionError("an MCP server needs an owner", remedy="pass either resource_id=... or tokens={...}")
    if resource_id is not None:
        check_id(resource_id, "resource_id")
    known = check_tokens(tokens.items()) if tokens is not None else None

    return _Application(memory, resource_id, known, read_only=read_only)


class _Application:
    """Finds the resource of each request, and lets the server answer it."""

    def __init__(
        self, memory: Memory, resource_id: str | None, known: list[tuple[bytes, str]] | None, *, read_only: bool
    ) -> None:
        self._resource = resource_id
        self._known = known
        self._server = build(memory, _owner, read_only=read_only)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            msg = f"this application answers HTTP, not {scope['type']}"
            raise RuntimeError(msg)
        resource = self._resource if self._known is None else _resource_of(scope, self._known)
        if resource is None:
            said = "Refused: send a known token as `Authorization: Bearer TOKEN`.\n"
            await PlainTextResponse(said, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
        elif scope["method"] != "POST":  # there is no stream to open and no session to end
            await PlainTextResponse("Use POST.\n", 405, {"Allow": "POST"})(scope, receive, send)
        elif (body := await _body(Request(scope, receive))) is None:
            await PlainTextResponse(f"Send at most {_MOST_BYTES:,} bytes.\n", 413)(scope, receive, send)
        elif (refused := refusal(body)) is not None:
            await Response(refused.text, refused.status, media_type="application/json")(scope, receive, send)
        else:
            parts = iter([{"type": "http.request", "body": body}])

            async def again() -> Message:
                return next(parts, None) or await receive()

            manager = StreamableHTTPSessionManager(self._server, json_response=True, stateless=True, **_OPTIONS)
            async with manager.run():
                await manager.handle_request({**scope, _RESOURCE: resource}, again, send)


async def _body(request: Request) -> bytes | None:
    """Return the body of a request; None for one that is too large, or whose client has left."""
    body = bytearray()
    with suppress(ClientDisconnect):
        async for part in request.stream():
            body += part
            if len(body) > _MOST_BYTES:
                return None
        return bytes(body)
    return None


def _owner(server: Server[Any, Any]) -> str:
    request: Any = server.request_context.request
    return str(request.scope[_RESOURCE])


def at_path(path: str, app: Application) -> Application:
    """Serve an application at one path, and nothing else."""
    return Starlette(routes=[Route(path, app)])


def check_tokens(tokens: Iterable[tuple[str, str]]) -> list[tuple[bytes, str]]:
    """Return the digests of tokens with their resources. An error says which token is wrong, never the token itself."""
    known: dict[bytes, str] = {}
    for number, (token, resource) in enumerate(tokens, 1):
        if not isinstance(token, str) or not _TOKEN.fullmatch(token) or len(token) < SHORTEST:
            seen = f"token {number} is shorter than {SHORTEST} characters, or holds other ones than visible ASCII"
            raise OptionError(seen, remedy=_MAKE)
        digest = sha256(token.encode()).digest()
        if digest in known:
            raise OptionError(f"token {number} stands there twice", remedy="give each token one resource")
        known[digest] = check_id(resource, f"the resource of token {number}")
    if not known:
        raise OptionError("there is no token", remedy="pass an object such as {TOKEN: RESOURCE}")
    return list(known.items())


def _resource_of(scope: Scope, known: list[tuple[bytes, str]]) -> str | None:
    sent = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
    scheme, _, token = sent[0].partition(b" ") if len(sent) == 1 else (b"", b"", b"")
    if scheme.lower() != b"bearer":
        return None
    digest = sha256(token.strip()).digest()
    matching = [resource for one, resource in known if compare_digest(one, digest)]  # each is compared, in equal time
    return matching[0] if matching else None
