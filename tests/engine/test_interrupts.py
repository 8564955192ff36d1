"""A signal handler may raise anywhere in a call; whoever calls next reads the replies to what was sent then."""

from __future__ import annotations

import socketserver
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any

import pytest
import redis

from langchain_workingmem._engine import clients, exchange, run
from langchain_workingmem._engine.plan import attempt
from langchain_workingmem._engine.run import Runner

SECOND = timedelta(seconds=1)
FILES = (exchange.__file__, run.__file__, redis.connection.__file__)
NAMES = {"send", "exchange"}
NAMES |= {"read_response", "connect_check_health", "on_connect_check_health"}
LATE = 0.0002  # seconds: a reply that has not come yet is not seen when a connection is taken from the pool


class _Late(socketserver.StreamRequestHandler):
    """Answers GET with the key, after the login only, and late."""

    def handle(self) -> None:
        is_in = False
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size + 2)[:-2])
            time.sleep(LATE)
            is_in |= words[0] == b"AUTH"
            reply = b"OK" if words[0] != b"GET" else words[1] if is_in else b"nobody"
            with suppress(OSError):
                self.wfile.write(b"+" + reply + b"\r\n")


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with _Server(("127.0.0.1", 0), _Late) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"redis://:pw@127.0.0.1:{server.server_address[1]}?max_connections=1&timeout=0.001"
        server.shutdown()


def interrupted(call: Any, at: int) -> bool:
    """Raise in the given line of a call, counted in those of NAMES; return False if the call has fewer."""
    left = at

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        if event == "call":
            return trace if frame.f_code.co_filename in FILES and frame.f_code.co_name in NAMES else None
        if event == "line":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            call()
    finally:
        sys.settrace(before)
    return left < 0


def get(runner: Runner, *keys: str) -> list[Any]:
    return runner.run(attempt(*(("GET", key) for key in keys)))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets that nobody got
@pytest.mark.parametrize("first", [False, True], ids=["later", "first"])
def test_nobody_reads_the_replies_to_a_call_that_was_interrupted(url: str, first: bool) -> None:
    at, wrong = 0, {}
    while True:
        runner = Runner(lambda: clients.client_of(redis, url, SECOND, SECOND))
        client = runner.client
        if not first:
            get(runner, "warm")
        if not interrupted(partial(get, runner, "a", "b"), at):
            break
        with suppress(Exception):  # the pool of redis-py may have lost its only place
            if (replies := get(runner, "c", "d")) != [b"c", b"d"]:
                wrong[at] = replies
        client.close()
        at += 1
    assert at > 15
    assert not wrong
