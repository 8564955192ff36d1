"""Serve an ASGI application to this machine only, as `workingmem studio` and `mcp` do."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
from threading import Timer
from typing import TYPE_CHECKING

from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]+)?", re.IGNORECASE)
_REFUSED = "Refused: the host or the origin is not this machine. Open the address that the program printed.\n"
_GRACE_SECONDS = 2  # for requests that are under way when the server stops


class LoopbackOnly:
    """Refuses requests that name another host than this machine, and those of pages of other origins.

    A page of the web that gives its own host name the address 127.0.0.1 (DNS rebinding) still sends its own name.
    The port of the host is free, because a tunnel may have another one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403, or pass the request on."""
        from starlette.responses import PlainTextResponse

        is_refused = scope["type"] == "http" and not _is_own(scope)
        await (PlainTextResponse(_REFUSED, 403) if is_refused else self._app)(scope, receive, send)


def _is_own(scope: Scope) -> bool:
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    origins = {value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"}
    known = len(hosts) == 1 and _HOST.fullmatch(hosts[0]) is not None
    return known and origins <= {f"http://{hosts[0]}"}


def listen(port: int | None) -> socket.socket:
    """Listen on a port; None is a free one."""
    try:
        return socket.create_server(("127.0.0.1", port or 0), backlog=128)
    except OSError as error:
        seen = f"port {port} of 127.0.0.1 cannot be opened: {os.strerror(error.errno or 0)}"
        raise OptionError(seen, remedy="pass another --port, or none for a free one") from error


def leave_soon(*, at_once: bool = False) -> None:
    """End the process within a few seconds, even if a thread waits for a model; `at_once`: the user has asked twice.

    Python waits for its threads at the end of a program. A private Redis ends without its users, too.
    """
    if at_once:
        os._exit(0)
    timer = Timer(2 * _GRACE_SECONDS, os._exit, [0])
    timer.daemon = True
    timer.start()


def run(app: ASGIApp, listener: socket.socket) -> None:
    """Serve until Ctrl-C or SIGTERM. To be called in the main thread; the handlers of these signals are put back."""
    import uvicorn

    config = uvicorn.Config(
        LoopbackOnly(app),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = uvicorn.Server(config)

    def end(*_: object) -> None:
        leave_soon(at_once=server.should_exit)
        server.should_exit = True
        logging.getLogger("uvicorn.error").disabled = True  # it would report the requests that are cut off

    # uvicorn hears signals only once its loop runs, and would call the handlers of others at the end
    server.handle_exit = end  # type: ignore[assignment, method-assign]
    kept = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with listener:
            server.run([listener])
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
