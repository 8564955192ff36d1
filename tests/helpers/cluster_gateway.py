"""Three ports that look like the nodes of a Redis 8 Cluster, whose coordinator lets every node search everything.

Behind them stands one real server with Search, since the engines that the tests can start have no coordinator. What a
cluster refuses is refused here: keys of two slots in one command, and keys of another node.
"""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from typing import Any

from redis.crc import key_slot

SLOTS = 16384
BY_NUMBER = {b"EVAL", b"EVALSHA"}  # whose second argument says how many keys follow
KEYLESS = {b"PING", b"HELLO", b"CLIENT", b"COMMAND", b"INFO", b"CONFIG", b"SCRIPT", b"AUTH", b"SELECT", b"SCAN"}


def keys_of(command: Any) -> list[bytes]:
    """The keys of a command, as Redis finds them; an index is none."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
    name = words[0].upper()
    if name in BY_NUMBER:
        return words[3 : 3 + int(words[2])]
    return [] if name in KEYLESS or name.startswith(b"FT.") else words[1:2]


def read(stream: io.BufferedReader) -> tuple[bytes, Any]:
    """One message of RESP2 or RESP3: its bytes, and its value as far as a command needs it."""
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise EOFError
    kind, length = line[:1], line[1:-2]
    if kind in b"$=" and int(length) >= 0:
        body = stream.read(int(length) + 2)
        return line + body, body[:-2]
    if kind in b"*~>%" and int(length) >= 0:
        parts = [read(stream) for _ in range(int(length) * (2 if kind == b"%" else 1))]
        return line + b"".join(raw for raw, _ in parts), [value for _, value in parts]
    return line, length


class Gateway:
    """The three ports."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        self.ports = [int(listener.getsockname()[1]) for listener in self._listeners]
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._listen, args=(place,)) for place in range(3)]
        self.served = [0, 0, 0]  # commands with a key, by node
        for thread in self._threads:
            thread.start()

    def _listen(self, place: int) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                outer, _ = self._listeners[place].accept()
                thread = threading.Thread(target=self._serve, args=(place, outer))
                self._threads.append(thread)
                thread.start()

    def _serve(self, place: int, outer: socket.socket) -> None:
        with outer, socket.socket(socket.AF_UNIX) as inner, contextlib.suppress(OSError, EOFError):
            self._sockets += [outer, inner]
            inner.connect(self._path)
            asked, answered = outer.makefile("rb"), inner.makefile("rb")
            while True:
                raw, command = read(asked)
                reply = self._own_reply(place, command)
                if reply is None:
                    inner.sendall(raw)
                    reply, _ = read(answered)
                outer.sendall(reply)

    def _own_reply(self, place: int, command: list[bytes]) -> bytes | None:
        if command[0].upper() == b"CLUSTER":
            rows = [
                f"*3\r\n:{SLOTS * at // 3}\r\n:{SLOTS * (at + 1) // 3 - 1}\r\n*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$40\r\n{at:040}\r\n"
                for at, port in enumerate(self.ports)
            ]
            return f"*3\r\n{''.join(rows)}".encode()
        if command[0].upper() == b"SEARCH.CLUSTERINFO":
            shards = [
                f"*2\r\n$5\r\nslots\r\n*2\r\n:{SLOTS * at // 3}\r\n:{SLOTS * (at + 1) // 3 - 1}\r\n" for at in range(3)
            ]
            return f"*2\r\n$6\r\nshards\r\n*3\r\n{''.join(shards)}".encode()
        slots = {key_slot(key) for key in keys_of(command)}
        if len(slots) > 1:
            return b"-CROSSSLOT Keys in request don't hash to the same slot\r\n"
        for slot in slots:
            owner = next(at for at in range(3) if slot < SLOTS * (at + 1) // 3)
            if owner != place:
                return f"-MOVED {slot} 127.0.0.1:{self.ports[owner]}\r\n".encode()
            self.served[place] += 1
        return None

    def close(self) -> None:
        for one in (*self._listeners, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for listener in self._listeners:
            listener.close()
        for thread in self._threads:
            thread.join()
