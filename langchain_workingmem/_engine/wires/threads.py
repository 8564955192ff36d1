"""The wires of sync clients: connections that are ready, outside of the pool of redis-py."""

from __future__ import annotations

import os
import select
from collections import deque
from typing import TYPE_CHECKING, Any

import redis
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import TimeoutError as TimedOut

from langchain_workingmem._engine.wires import BUFFER, CLOSED, DECODED, MISSING, TIMEOUT, is_direct, new_reader, pack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.effects import Command


class Wire:
    """A connection of redis-py that is ready, with its socket and a reader of our own."""

    def __init__(self, pool: WirePool, connection: Any) -> None:
        self._pool, self.connection = pool, connection
        self._socket = connection._sock  # noqa: SLF001 - what redis-py has no public name for
        self._reader, self._buffer = new_reader(), bytearray(BUFFER)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def is_ready(self) -> bool:
        """Return whether it is open and no byte waits to be read; a closed socket has its end to read."""
        is_same = self.connection._sock is self._socket  # noqa: SLF001
        return is_same and not self._reader.has_data() and not self._poll.poll(0)

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one write, give the wire back, and return all replies, refusals among them.

        A wire whose replies are not read to the end is closed, also where a signal handler raises between two of them: whoever
        took it next would read them.
        """
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
        except BaseException as error:
            self._pool.drop(self)
            if isinstance(error, TimeoutError):
                raise TimedOut(TIMEOUT) from error
            if isinstance(error, OSError):
                raise ConnectionLost(f"Error while reading from socket: {error.args}") from error
            raise
        self._pool.give_back(self)
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
                wire = self._pop() or Wire(self, self.get_connection())  # type: ignore[no-untyped-call]
            finally:
                self._waiting.pop()
        return wire

    def _pop(self) -> Wire | None:
        while True:
            try:
                wire = self._ready.pop()
            except IndexError:
                return None
            is_ready = False
            try:
                if is_ready := wire.is_ready():
                    return wire
            finally:
                if not is_ready:  # or a signal handler has raised: its place must not be lost
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
