"""Serve an ASGI application to this machine only, as `workingmem studio` and `mcp` do."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
from contextlib import suppress
from threading import Timer
from typing import TYPE_CHECKING

from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send
    from uvicorn import Server

_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]+)?", re.IGNORECASE)
_REFUSED = "Refused: the host or the origin is not this machine. Open the address that the program printed.\n"
_GRACE_SECONDS = 2  # for requests that are under way when the server stops
_CONNECTIONS = 100  # at the same time


def loopback_only(app: ASGIApp) -> ASGIApp:
    """Refuse requests that name another host than this machine, and those of pages of other origins.

    A page that gives its host name the address 127.0.0.1 (DNS rebinding) still sends its name. A tunnel has any port.
    """
    from starlette.responses import PlainTextResponse

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name, value.decode("latin-1")) for name, value in scope.get("headers", ())]
        hosts = [value for name, value in headers if name == b"host"]
        origins = {value for name, value in headers if name == b"origin"}
        is_own = len(hosts) == 1 and _HOST.fullmatch(hosts[0]) and origins <= {f"http://{hosts[0]}"}
        is_refused = scope["type"] == "http" and not is_own
        await (PlainTextResponse(_REFUSED, 403) if is_refused else app)(scope, receive, send)

    return guarded


async def read_body(request: Request, most: int) -> bytes | None:
    """Return the body of a request; None for one of more than `most` bytes, or whose client has left."""
    from starlette.requests import ClientDisconnect

    body = bytearray()
    with suppress(ClientDisconnect):
        async for part in request.stream():
            body += part
            if len(body) > most:
                return None
        return bytes(body)
    return None


def listen(port: int | None) -> socket.socket:
    """Listen on a port; None is a free one."""
    try:
        return socket.create_server(("127.0.0.1", port or 0), backlog=128)
    except OSError as error:
        problem = f"port {port} of 127.0.0.1 cannot be opened: {os.strerror(error.errno or 0)}"
        raise OptionError(problem, remedy="pass another --port, or none for a free one") from error


def leave_soon(*, at_once: bool = False) -> None:
    """End within a few seconds, even if a thread waits for a model; `at_once`: the user has asked twice."""
    if at_once:
        os._exit(0)
    timer = Timer(2 * _GRACE_SECONDS, os._exit, [0])
    timer.daemon = True
    timer.start()


def server_of(app: ASGIApp) -> Server:
    """Make the server of an application, with its limits."""
    import uvicorn

    config = uvicorn.Config(
        loopback_only(app),
        http="h11",  # httptools takes headers of any size
        ws="none",
        h11_max_incomplete_event_size=32_768,  # bytes of all headers
        limit_concurrency=_CONNECTIONS,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    return uvicorn.Server(config)


def run(app: ASGIApp, listener: socket.socket) -> None:
    """Serve until Ctrl-C or SIGTERM. To be called in the main thread, at the end of a program."""
    server = server_of(app)

    def end(*_: object) -> None:
        leave_soon(at_once=server.should_exit)
        server.should_exit = True
        logging.getLogger("uvicorn.error").disabled = True  # it would report the requests that are cut off

    server.handle_exit = end  # type: ignore[assignment, method-assign]
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn hears signals only once its loop runs
        signal.signal(number, end)
    with listener:
        server.run([listener])
