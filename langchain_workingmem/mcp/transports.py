"""The transports of the server: standard input and output, as clients start it, and streamable HTTP.

Over standard input it ends with its input, or on a signal. Over HTTP each request has one answer. There are no sessions, so there is
none to take over.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from concurrent.futures import CancelledError as Cancelled
from contextlib import contextmanager, suppress
from inspect import signature
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.errors import OptionError
from langchain_workingmem.mcp.protocol import MOST_BYTES, build, refusal
from langchain_workingmem.mcp.tokens import check_tokens, user_of
from langchain_workingmem.serving import leave_soon, read_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from mcp.server.lowlevel import Server
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from langchain_workingmem.memory import Memory

_WAITING = 16  # lines that are read ahead
_END = MOST_BYTES // 2 + 1  # bytes of both ends of a line that are kept
_USER = "langchain_workingmem.user"  # in the scope of a request
# newer versions of the SDK limit requests to 4 MiB, older ones have no limit
_LIMIT = "max_request_body_size"
_OPTIONS: dict[str, Any] = {_LIMIT: MOST_BYTES} if _LIMIT in signature(StreamableHTTPSessionManager).parameters else {}


@contextmanager
def protocol_streams() -> Iterator[tuple[int, TextIO]]:
    """Take standard input and output for the protocol: what the process prints goes to standard error from now on."""
    sys.stdout.flush()
    source, sink = os.dup(0), os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace", newline="\n")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
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
        with suppress(NotImplementedError):  # of Windows, where each signal wakes the loop
            loop.add_signal_handler(number, bool)  # it only wakes the loop, which sleeps where a thread gets the signal
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


def _line(file: BinaryIO) -> bytes:
    """Read a line; of one that is too long its ends, which together are too long as well."""
    line = part = file.readline(MOST_BYTES + 1)
    while part and not part.endswith(b"\n"):
        part = file.readline(MOST_BYTES)
        line = line[:_END] + (line[_END:] + part)[-_END:]
    return line


async def _lines(source: int) -> AsyncIterator[bytes]:
    """Read lines in a thread that ends with the process: a read that waits for input cannot be interrupted."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue(_WAITING)

    def read() -> None:
        with suppress(RuntimeError, Cancelled, OSError), os.fdopen(source, "rb") as file:  # the loop may be closed
            while line := _line(file):
                asyncio.run_coroutine_threadsafe(queue.put(line), loop).result()
            asyncio.run_coroutine_threadsafe(queue.put(b""), loop).result()

    Thread(target=read, name="workingmem-stdin", daemon=True).start()
    while line := await queue.get():
        yield line


async def _valid(lines: AsyncIterator[bytes], output: _Output) -> AsyncIterator[str]:
    """Pass on what the SDK can answer, and answer the rest."""
    async for line in lines:
        if not line.strip():
            continue
        if (answer := refusal(line)) is None:
            yield line.decode()
        elif answer.text:
            await output.write(f"{answer.text}\n")


# ---------------------------------------------------------------------- HTTP


def application(
    memory: Memory,
    *,
    user_id: str | None = None,
    tokens: Mapping[str, str] | None = None,
    read_only: bool = False,
) -> ASGIApp:
    """Return an ASGI application that is an MCP server over streamable HTTP, to be mounted at a path of a program.

    Either `user_id`, the one user of all requests, which then nothing protects. Or `tokens`: a dict of token ->
    user; a request says its token in the header `Authorization: Bearer <token>`, and gets 401 without a known one. The
    rest is as `server` says. A request needs no other one before it: any process answers any request, and no lifespan has to
    run. The hosts and origins that may call are the program's matter. Raises `OptionError` and `IdError`.
    """
    if (user_id is None) == (tokens is None):
        raise OptionError("an MCP server needs an owner", remedy="pass either user_id=... or tokens={...}")
    if user_id is not None:
        check_id(user_id, "user_id")
    digests = check_tokens(tokens.items()) if tokens is not None else None

    return _Application(memory, user_id, digests, read_only=read_only)


class _Application:
    """Finds the user of each request, and lets the server answer it."""

    def __init__(
        self, memory: Memory, user_id: str | None, digests: list[tuple[bytes, str]] | None, *, read_only: bool
    ) -> None:
        self._user = user_id
        self._digests = digests
        self._server = build(memory, _owner, read_only=read_only)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            msg = f"this application answers HTTP, not {scope['type']}"
            raise RuntimeError(msg)
        user = self._user if self._digests is None else user_of(scope["headers"], self._digests)
        if user is None:
            text = "Refused: send a known token as `Authorization: Bearer TOKEN`.\n"
            await PlainTextResponse(text, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
        elif scope["method"] != "POST":  # there is no stream to open and no session to end
            await PlainTextResponse("Use POST.\n", 405, {"Allow": "POST"})(scope, receive, send)
        elif (body := await read_body(Request(scope, receive), MOST_BYTES)) is None:
            await PlainTextResponse(f"Send at most {MOST_BYTES:,} bytes.\n", 413)(scope, receive, send)
        elif (answer := refusal(body)) is not None:
            await Response(answer.text, answer.status, media_type="application/json")(scope, receive, send)
        else:
            parts = iter([{"type": "http.request", "body": body}])

            async def replay() -> Message:
                return next(parts, None) or await receive()

            manager = StreamableHTTPSessionManager(self._server, json_response=True, stateless=True, **_OPTIONS)
            async with manager.run():
                await manager.handle_request({**scope, _USER: user}, replay, send)


def _owner(server: Server[Any, Any]) -> str:
    request: Any = server.request_context.request
    return str(request.scope[_USER])


def at_path(path: str, app: ASGIApp) -> ASGIApp:
    """Serve an application at one path, and nothing else."""
    return Starlette(routes=[Route(path, app)])
