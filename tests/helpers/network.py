"""A network between the nodes of a cluster that can be cut: what crosses the cut is held, as if the packets were lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.helpers.embedded import BareServers

CLIENT = 0  # in place of a node's port: whoever is no node


class Network:
    """Gives each port of a node a door, another port that the node announces; behind it, it knows which node has come."""

    def __init__(self, nodes: BareServers) -> None:
        self._nodes = nodes
        self._doors: list[socket.socket] = []
        self._sockets: list[socket.socket] = []
        self._apart: frozenset[int] = frozenset()
        self._passes = threading.Condition()

    def doors(self, node: int, bus: int) -> tuple[int, int]:
        """Open a door to the port of a node, and one to that of its bus."""
        return self._door(node, node), self._door(node, bus)

    def _door(self, node: int, port: int) -> int:
        door = socket.create_server(("127.0.0.1", 0))
        self._doors.append(door)
        threading.Thread(target=self._accept, args=(door, node, port), daemon=True).start()
        return int(door.getsockname()[1])

    @contextmanager
    def cut(self, *apart: int) -> Iterator[None]:
        """Let nothing pass between these nodes and all others; every client reaches each node, unless `CLIENT` is named."""
        self._set(frozenset(apart))
        try:
            yield
        finally:
            self._set(frozenset())

    def _set(self, apart: frozenset[int]) -> None:
        with self._passes:
            self._apart = apart
            self._passes.notify_all()

    def _accept(self, door: socket.socket, node: int, port: int) -> None:
        with suppress(OSError):  # closed
            while True:
                outer, _ = door.accept()
                source = self._who(outer)
                try:
                    inner = socket.create_connection(("127.0.0.1", port))
                except OSError:  # nobody is there
                    outer.close()
                    continue
                self._sockets += (outer, inner)
                for one, other in ((outer, inner), (inner, outer)):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=self._pump, args=(one, other, source, node), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket, source: int, node: int) -> None:
        with suppress(OSError):
            while True:
                data = one.recv(65536)
                with self._passes:  # an end is held, too
                    self._passes.wait_for(lambda: self._is_open(source, node))
                if not data:
                    break
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _is_open(self, source: int, node: int) -> bool:
        if source == CLIENT and CLIENT not in self._apart:
            return True
        return (source in self._apart) == (node in self._apart)

    def _who(self, outer: socket.socket) -> int:
        """Return the node whose process has the other end of a connection: all addresses are those of this machine."""
        ends = [f"0100007F:{port:04X}" for _, port in (outer.getpeername(), outer.getsockname())]
        rows = (row.split() for row in Path("/proc/net/tcp").read_text().splitlines())
        inode = next((row[9] for row in rows if row[1:3] == ends), "")
        for node in self._nodes.running:
            with suppress(KeyError, OSError):
                files = Path(f"/proc/{self._nodes.pid(node)}/fd").iterdir()
                if any(_leads_to(file, f"socket:[{inode}]") for file in files):
                    return node
        return CLIENT

    def close(self) -> None:
        self._set(frozenset())
        for one in (*self._doors, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def _leads_to(file: Path, target: str) -> bool:
    try:
        return str(file.readlink()) == target
    except OSError:
        return False
