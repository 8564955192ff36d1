"""The server under the studio and MCP: who keeps a connection open without a request, and how much may come."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from threading import Thread

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from langchain_workingmem import serving

PATIENCE = 0.4  # seconds
HEAD = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    body = await serving.read_body(Request(scope, receive), 1000)
    if body == b"slow":
        await asyncio.sleep(3 * PATIENCE)
    answer = PlainTextResponse("too large" if body is None else body, 413 if body is None else 200)
    await answer(scope, receive, send)


Connect = Callable[[], socket.socket]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connections to a server."""
    listener, opened = serving.listen(None), list[socket.socket]()
    server = serving.server_of(app)
    thread = Thread(target=server.run, args=([listener],))
    thread.start()

    def make() -> socket.socket:
        opened.append(socket.create_connection(listener.getsockname(), timeout=10))
        return opened[-1]

    yield make
    for one in opened:
        one.close()
    server.should_exit = True
    thread.join(10)
    listener.close()
    assert not thread.is_alive()


def until_closed(one: socket.socket, *, dripping: bytes = b"") -> tuple[bytes, float]:
    """Send a byte again and again until the server closes; return what it said, and after how long."""
    said, began = b"", time.monotonic()
    one.settimeout(0.05)
    while time.monotonic() - began < 10:
        try:
            if dripping:
                one.sendall(dripping)
            part = one.recv(10_000)
        except TimeoutError:
            continue
        except OSError:  # reset
            break
        if not part:
            break
        said += part
    else:
        pytest.fail("the connection stays open")
    return said, time.monotonic() - began


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        (b"X: " + b"x" * 40_000, (b"", b"HTTP/1.1 400")),
        (b"X: x\r\n" * 8_000, (b"", b"HTTP/1.1 400")),
        (b"Content-Length: 1001\r\nConnection: close\r\n\r\n" + b"x" * 1001, (b"HTTP/1.1 413",)),
    ],
    ids=["a header", "headers", "a body"],
)
def test_a_request_has_a_size(connect: Connect, sent: bytes, answers: tuple[bytes, ...]) -> None:
    one = connect()
    one.sendall(HEAD + sent)
    assert until_closed(one)[0][:12] in answers


def test_connections_have_a_number(connect: Connect) -> None:
    many = [connect() for _ in range(serving._CONNECTIONS)]
    last = connect()
    last.sendall(HEAD + b"Content-Length: 2\r\n\r\nhi")
    assert last.recv(10_000).startswith(b"HTTP/1.1 503")
    for one in many:
        one.close()
    deadline = time.monotonic() + 10
    said = b""
    while not said.endswith(b"hi") and time.monotonic() < deadline:
        with connect() as again:
            again.sendall(HEAD + b"Content-Length: 2\r\n\r\nhi")
            said = again.recv(10_000)
    assert said.endswith(b"hi")
