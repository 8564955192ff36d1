"""Pools of our own clients, which send commands with few steps between hiredis and the socket.

redis-py makes a connection: it logs in, and finds out whether a connection that was idle is closed. But what its pool, its
connections and their parsers do around every command, for callers of all kinds, costs more than the exchange itself. Of four
commands with 5 KB, in us of processor time: a sync exchange 62, here 21; an async one 116, here 38. Nothing here applies to
borrowed clients, to Sentinels, to RESP3, or without hiredis: there redis-py does all of it.
"""

from __future__ import annotations

import os
import select
from collections import deque
from typing import TYPE_CHECKING, Any, cast

import redis
from redis._parsers import BaseParser
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import InvalidResponse
from redis.exceptions import TimeoutError as TimedOut

try:
    import hiredis
except ImportError:  # somebody has left it out: it is an extra of redis-py
    hiredis = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_workingmem._engine.effects import Command

MISSING = object()  # what a reader returns if a reply is not there yet, or not whole
DECODED = False  # whether a reader gives text: vectors are none
CLOSED, TIMEOUT = "Connection closed by server.", "Timeout reading from socket"
_JOINED = 2**16  # bytes up to which commands are joined for one write: a copy costs less than a call
_BUFFER = 2**16


def is_direct(options: Mapping[str, Any]) -> bool:
    """Return whether connections with these options do nothing around a command that redis-py would have to do."""
    return (
        hiredis is not None
        and hasattr(select, "poll")
        and options.get("protocol") in {2, "2"}
        and bool(options.get("socket_timeout"))
        and not options.get("health_check_interval")
        and options.get("encoding", "utf-8") == "utf-8"
        and options.get("encoding_errors", "strict") == "strict"
    )


def new_reader() -> Any:
    """Make a reader of replies that has the errors of redis-py; `gets(DECODED)` returns bytes."""
    return hiredis.Reader(
        protocolError=InvalidResponse,
        replyError=BaseParser.parse_error,
        notEnoughData=MISSING,
    )


def pack(connection: Any, commands: Sequence[Command]) -> Sequence[bytes]:
    """Encode commands as redis-py does, whose own way from there to hiredis takes three times as long."""
    try:
        packed = [hiredis.pack_command(command) for command in commands]  # type: ignore[arg-type]  # of any length
    except TypeError:  # a bytearray, which redis-py converts, or no value at all, which it names
        return cast("Sequence[bytes]", connection.pack_commands(commands))
    return [b"".join(packed)] if sum(map(len, packed)) < _JOINED else packed


class Wire:
    """A connection of redis-py that is ready, with its socket and a reader of our own."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._socket = connection._sock  # noqa: SLF001 - what redis-py has no public name for
        self._reader = new_reader()
        self._buffer = bytearray(_BUFFER)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def is_ready(self) -> bool:
        """Return whether it is open and no byte waits to be read; a closed socket has its end to read."""
        is_same = self.connection._sock is self._socket  # noqa: SLF001
        return is_same and not self._reader.has_data() and not self._poll.poll(0)

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one write and return all replies, refusals among them."""
        gets, feed, buffer, replies = self._reader.gets, self._reader.feed, self._buffer, list[Any]()
        receive = self._socket.recv_into
        try:
            for part in pack(self.connection, commands):
                self._socket.sendall(part)
            for _ in commands:
                while (reply := gets(DECODED)) is MISSING:
                    size = receive(buffer)
                    if not size:
                        raise ConnectionLost(CLOSED)
                    feed(buffer, 0, size)
                replies.append(reply)
        except TimeoutError as error:
            raise TimedOut(TIMEOUT) from error
        except OSError as error:
            raise ConnectionLost(f"Error while reading from socket: {error.args}") from error
        return replies


class WirePool(redis.BlockingConnectionPool):
    """A pool of redis-py whose connections stay out of it between two calls, as wires.

    Wires are used last in, first out. Whatever is doubtful goes through the pool: it makes connections, waits for one that is
    given back, and connects again.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # An entry for each caller who needs a connection of the pool. A number and a lock would not do: where a signal handler
        # raises, the lock may stay locked.
        self._waiting: list[None] = []
        super().__init__(*arguments, **options)  # type: ignore[no-untyped-call]
        self.is_direct = is_direct(self.connection_kwargs)

    def reset(self) -> None:
        """Begin without connections, also in a forked process: those of the other one are not to be used."""
        self._ready: deque[Wire] = deque()
        super().reset()  # type: ignore[no-untyped-call]

    def take(self) -> Wire:
        """Take a wire; it may be made, and waits for a free connection as the pool does."""
        if self.pid != os.getpid():
            self._checkpid()
        wire = self._pop()
        if wire is None:
            self._waiting.append(None)
            try:  # again: who gave a wire back before may not have seen that it is waited for
                wire = self._pop() or Wire(self.get_connection())  # type: ignore[no-untyped-call]
            finally:
                self._waiting.pop()
        return wire

    def _pop(self) -> Wire | None:
        while True:
            try:
                wire = self._ready.pop()
            except IndexError:
                return None
            if wire.is_ready():
                return wire
            self.drop(wire)

    def give_back(self, wire: Wire) -> None:
        """Keep a wire for the next caller, or the pool for who waits for one."""
        self._ready.append(wire)
        if self._waiting:
            try:
                wire = self._ready.pop()
            except IndexError:
                return
            self.release(wire.connection)  # type: ignore[no-untyped-call]

    def drop(self, wire: Wire) -> None:
        """Close a wire, and give its place in the pool back."""
        wire.connection.disconnect()
        self.release(wire.connection)  # type: ignore[no-untyped-call]
