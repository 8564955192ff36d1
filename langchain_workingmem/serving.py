"""Serve an ASGI application to this machine only, as `workingmem studio` and `mcp` do.

Also what their applications share: the tokens of clients, and bodies of a limited size.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
from contextlib import suppress
from hashlib import sha256
from hmac import compare_digest
from threading import Timer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    Application: TypeAlias = ASGIApp

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_ASKED = (b"host", b"origin")
_REFUSED = "Refused: the host or the origin is not this machine. Open the address that the program printed.\n"
MOST_BYTES = 32 * 2**20  # of a request, by default
SHORTEST = 16  # characters of a token
_TOKEN = re.compile(r"[!-~]+")
_MAKE = "make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
_GRACE_SECONDS = 2  # for requests that are under way when the server stops


class LoopbackOnly:
    """Refuses requests that name another host than this machine, and those of pages of other origins.

    A page of the web that gives its own host name the address 127.0.0.1 (DNS rebinding) still sends its own name.
    The port of the host is free, because a tunnel may have another one.
    """

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403, or pass the request on."""
        from starlette.responses import PlainTextResponse

        if scope["type"] == "lifespan" or _is_own(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await PlainTextResponse(_REFUSED, 403)(scope, receive, send)


def _is_own(scope: Scope) -> bool:
    hosts, origins = ([value.decode("latin-1") for key, value in scope["headers"] if key == name] for name in _ASKED)
    return len(hosts) == 1 and _name(f"http://{hosts[0]}") in LOOPBACK and {*origins} <= {f"http://{hosts[0]}"}


def _name(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError unless it is a number
    except ValueError:
        return None
    return parts.hostname if not (parts.path or parts.query or parts.fragment or parts.username) else None


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


def run(app: Application, listener: socket.socket) -> None:
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


# ---------------------------------------------------------------------- requests


async def read_body(request: Request, most: int = MOST_BYTES) -> bytes | None:
    """Return the body of a request; None for one that is too large, or whose client has left."""
    from starlette.requests import ClientDisconnect

    body = bytearray()
    with suppress(ClientDisconnect):
        async for part in request.stream():
            body += part
            if len(body) > most:
                return None
        return bytes(body)
    return None


def check_tokens(tokens: Iterable[tuple[str, str]]) -> list[tuple[bytes, str]]:
    """Return the digests of tokens with their users. An error says which token is wrong, never the token itself."""
    known: dict[bytes, str] = {}
    for number, (token, user) in enumerate(tokens, 1):
        if not isinstance(token, str) or not _TOKEN.fullmatch(token) or len(token) < SHORTEST:
            seen = f"token {number} is shorter than {SHORTEST} characters, or holds other ones than visible ASCII"
            raise OptionError(seen, remedy=_MAKE)
        digest = sha256(token.encode()).digest()
        if digest in known:
            raise OptionError(f"token {number} stands there twice", remedy="give each token one user")
        known[digest] = check_id(user, f"the user of token {number}")
    if not known:
        raise OptionError("there is no token", remedy="pass an object such as {TOKEN: USER}")
    return list(known.items())


def user_of(headers: Iterable[tuple[bytes, bytes]], known: list[tuple[bytes, str]]) -> str | None:
    """Return the user whose token the headers of a request hold; None without a known one."""
    sent = [value for name, value in headers if name.lower() == b"authorization"]
    scheme, _, token = sent[0].partition(b" ") if len(sent) == 1 else (b"", b"", b"")
    if scheme.lower() != b"bearer":
        return None
    digest = sha256(token.strip()).digest()
    matching = [user for one, user in known if compare_digest(one, digest)]  # each is compared, in equal time
    return matching[0] if matching else None
