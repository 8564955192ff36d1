"""A small TCP proxy in front of a Redis, which breaks a connection at a chosen byte."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Self

Stream = Literal["request", "reply"]
Kind = Literal["close", "reset", "silence", "delay"]

DELAY = 0.02  # seconds


@dataclass
class Fault:
    """What happens to a connection once, when so many bytes of a stream have passed."""

    kind: Kind
    stream: Stream
    at: int


@dataclass
class Exchange:
    """What has passed, over whichever connections."""

    request: bytearray = field(default_factory=bytearray)
    reply: bytearray = field(default_factory=bytearray)

    def of(self, stream: Stream) -> bytearray:
        return self.request if stream == "request" else self.reply


class _Link:
    """One connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.silent: set[Stream] = set()
        self._is_cut = False

    def cut(self, *, reset: bool = False) -> None:
        """End both sides; the pumps, which wait for data, wake up and close the sockets."""
        if self._is_cut:
            return
        self._is_cut = True
        if reset:  # no farewell: whoever reads or writes gets ECONNRESET
            self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with suppress(OSError):
            self.client.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
        with suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Listens on a port of its own, as a context manager, and forwards to `connect()`; with `tls` it is its end."""

    def __init__(self, connect: Callable[[], socket.socket], tls: ssl.SSLContext | None = None) -> None:
        self._connect, self._tls = connect, tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._links: list[_Link] = []
        self._passed = Exchange()
        self.port = int(self._listener.getsockname()[1])
        self.url = f"redis://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._links:
            link.cut()

    def arm(self, fault: Fault | None) -> Exchange:
        """Break the first connection that comes so far, counted from here; return what has passed until now."""
        with self._lock:
            passed, self._passed, self._fault = self._passed, Exchange(), fault
            return passed

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                client = self._tls.wrap_socket(client, server_side=True) if self._tls else client
                server = self._connect()
            except OSError:  # nobody is there, or who is there is not trusted
                client.close()
                continue
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(client, server)
            self._links.append(link)
            for source, target, stream in ((client, server, "request"), (server, client, "reply")):
                threading.Thread(target=self._pump, args=(link, source, target, stream), daemon=True).start()

    def _pump(self, link: _Link, source: socket.socket, target: socket.socket, stream: Stream) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if stream in link.silent:
                    continue
                before, fault = self._count(stream, data)
                if fault is None:
                    target.sendall(data)
                    continue
                target.sendall(data[: fault.at - before])
                if fault.kind == "delay":
                    time.sleep(DELAY)
                    target.sendall(data[fault.at - before :])
                elif fault.kind == "silence":
                    link.silent.add(stream)
                else:
                    link.cut(reset=fault.kind == "reset")
        link.cut()
        source.close()

    def _count(self, stream: Stream, data: bytes) -> tuple[int, Fault | None]:
        """Count bytes, and give the fault if they reach it."""
        with self._lock:
            passed = self._passed.of(stream)
            before = len(passed)
            passed += data
            fault = self._fault
            if fault is None or fault.stream != stream or len(passed) < fault.at:
                return before, None
            self._fault = None
            return before, fault
