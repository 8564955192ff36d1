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
def connect(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Connections to a server that waits a short time for requests."""
    monkeypatch.setattr(serving, "REQUEST_SECONDS", PATIENCE)
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
    ("begin", "dripping"),
    [
        (b"", b""),
        (b"", b"G"),
        (b"GET / HTT", b""),
        (HEAD, b"X: x\r\n"),
        (HEAD + b"Content-Length: 900\r\n\r\n", b"x"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"the second request", b"x"),
    ],
    ids=["nothing", "no line", "half a line", "headers", "a body", "chunks", "the second request"],
)
def test_a_request_that_never_ends_is_closed(connect: Connect, begin: bytes, dripping: bytes) -> None:
    one = connect()
    if begin == b"the second request":
        one.sendall(HEAD + b"Content-Length: 2\r\n\r\nhi")
        while not (part := one.recv(10_000)).endswith(b"hi"):
            assert part
        begin = b"GET / HTTP/1.1\r\nX: "
    one.sendall(begin)
    _, seconds = until_closed(one, dripping=dripping)
    assert PATIENCE * 0.5 < seconds < 10 * PATIENCE


def test_an_answer_may_take_longer_than_its_request(connect: Connect) -> None:
    one = connect()
    one.sendall(HEAD + b"Content-Length: 4\r\nConnection: close\r\n\r\nslow")
    said, seconds = until_closed(one)
    assert said.endswith(b"slow")
    assert seconds > PATIENCE


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        (b"X: " + b"x" * 40_000, (b"", b"HTTP/1.1 400")),
        (b"X: x\r\n" * 8_000, (b"", b"HTTP/1.1 400")),
        (b"Content-Length: 1001\r\nConnection: close\r\n\r\n" + b"x" * 1001, (b"HTTP/1.1 413",)),
    ],
    ids=["a header", "headers", "a body"],
)
def test_a_request_has_a_size(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, sent: bytes, answers: tuple[bytes, ...]
) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 20)  # it is not closed for its time
    one = connect()
    one.sendall(HEAD + sent)
    assert until_closed(one)[0][:12] in answers


def test_connections_have_a_number(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 20)
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
