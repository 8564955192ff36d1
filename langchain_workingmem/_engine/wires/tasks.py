"""The lanes of async clients: connections that tasks share, so that a turn waits for none.

A lane takes the transport of a connection that redis-py has made, and answers each call in the order of sending. So tasks
that call at the same time need neither a connection each nor a place in a queue. What one caller does costs the others
nothing: a lane whose call is cancelled or times out takes no further calls, answers those that it has, and closes.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import redis.asyncio
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as TimedOut

from langchain_workingmem._engine.wires import BUFFER, CLOSED, DECODED, MISSING, TIMEOUT, is_direct, new_reader, pack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.effects import Command

_LANES = 8  # that are opened while all are busy; more only if all are held up
_HELD_UP = 0.25  # seconds without a reply, after which other lanes are chosen


class _Call:
    """Commands that were sent, and what has come back."""

    __slots__ = ("count", "done", "replies", "sent")

    def __init__(self, done: asyncio.Future[list[Any]], count: int, sent: float) -> None:
        self.done, self.count, self.sent = done, count, sent
        self.replies: list[Any] = []


class Lane(asyncio.BufferedProtocol):
    """A connection over which several tasks send commands; replies come in the same order."""

    def __init__(self, pool: LanePool, connection: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool, self.connection = pool, connection
        self._timeout: float = connection.socket_timeout
        # A view: asyncio reads what follows the first record of TLS into a slice, and a slice of a bytearray is a copy.
        self._reader, self._buffer = new_reader(), memoryview(bytearray(BUFFER))
        self.waiting: deque[_Call] = deque()
        self.is_held_up = False
        self._moved = 0.0  # when the last call was answered or the last byte of a long one was written
        self._timer: asyncio.TimerHandle | None = None
        self._transport = connection._writer.transport  # noqa: SLF001 - what redis-py has no public name for
        self._streams = self._transport.get_protocol()  # whom redis-py asks whether the connection is closed
        self._transport.set_protocol(self)

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands and return all replies, refusals among them."""
        packed = pack(self.connection, commands)
        loop = self._loop
        call = _Call(loop.create_future(), len(commands), loop.time())
        self.waiting.append(call)
        for part in packed:
            self._transport.write(part)
        if self._timer is None:
            self._timer = loop.call_later(min(_HELD_UP, self._timeout), self._look)
        try:
            return await call.done
        except asyncio.CancelledError:
            self._retire()
            raise

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - its name in asyncio
        """Return where the event loop puts what it reads."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Read replies, and answer the calls that have all of theirs."""
        try:
            self._reader.feed(self._buffer, 0, nbytes)
            self._answer()
        except BaseException:  # a reply that cannot be read, or a signal handler that raises
            self._transport.abort()
            raise
        if not self.waiting and (self._reader.has_data() or self not in self._pool.lanes):
            self._transport.abort()  # nobody has asked for it, or nobody else will

    def _answer(self) -> None:
        gets, waiting = self._reader.gets, self.waiting
        while waiting:
            call = waiting[0]
            while len(call.replies) < call.count:
                if (reply := gets(DECODED)) is MISSING:
                    return
                call.replies.append(reply)
            waiting.popleft()
            if not call.done.done():
                call.done.set_result(call.replies)
            self._moved, self.is_held_up = self._loop.time(), False

    def resume_writing(self) -> None:
        """Begin to wait for replies: a call that takes long to send has as long for its reply as another one."""
        self._moved = self._loop.time()

    def eof_received(self) -> None:
        """Close: the server has."""

    def connection_lost(self, error: Exception | None) -> None:
        """Tell whoever waits, and give the place in the pool back."""
        self._pool.forget(self)
        self._streams.connection_lost(error)
        seen = CLOSED if error is None else f"Error while reading from socket: {error.args}"
        for call in self.waiting:
            if not call.done.done():
                call.done.set_exception(ConnectionLost(seen))
        self.waiting.clear()

    def is_closing(self) -> bool:
        """Tell whether nothing can be sent any more: asyncio would drop it, and uvloop raise an error of its own."""
        return bool(self._transport.is_closing())

    def _look(self) -> None:
        """See whether replies are late. Those that have come are read before: a busy event loop is no silent server."""
        self._timer = None
        if not self.waiting:
            return
        now, last = self._loop.time(), self._moved
        self.is_held_up = now - max(last, self.waiting[0].sent) >= min(_HELD_UP, self._timeout)
        for call in self.waiting:
            if now - max(last, call.sent) < self._timeout:
                break
            if not call.done.done():
                call.done.set_exception(TimedOut(TIMEOUT))
            self._retire()
        else:
            return
        later = max(last, call.sent) + self._timeout
        self._timer = self._loop.call_at(min(now + _HELD_UP, later), self._look)

    def _retire(self) -> None:
        """Take no further calls, and close as soon as nobody waits."""
        if self in self._pool.lanes:
            self._pool.lanes.remove(self)
        if all(call.done.done() for call in self.waiting):
            self._transport.abort()


class LanePool(redis.asyncio.BlockingConnectionPool):
    """A pool of redis-py that makes the connections of lanes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.is_direct = is_direct(self.connection_kwargs)
        self.lanes: list[Lane] = []  # that take calls
        self._gone: list[Any] = []  # connections that are closed, and have a place in the pool
        self._opening: asyncio.Task[None] | None = None
        self._giving: asyncio.Task[None] | None = None  # asyncio keeps no task that nobody else does

    async def take(self) -> Lane:
        """Return a lane that is free, else the one with the fewest calls; wait only if there is none that moves."""
        while (lane := self._least()) is None:
            await _end_of(self._open_another())
        if lane.waiting and len(self.lanes) < (
            self.max_connections if lane.is_held_up else min(_LANES, self.max_connections)
        ):
            opening = self._open_another()
            if lane.is_held_up:
                with suppress(RedisError):  # then all wait for the server
                    await _end_of(opening)
                return self._least() or await self.take()
        return lane

    def _least(self) -> Lane | None:
        """Return the first lane without a call, else the one with the fewest, of those that are not held up if there are any."""
        while self.lanes:
            lane = next((lane for lane in self.lanes if not lane.waiting), None) or min(
                self.lanes, key=lambda lane: (lane.is_held_up, len(lane.waiting))
            )
            if not lane.is_closing():
                return lane
            self.lanes.remove(lane)
        return None

    def _open_another(self) -> asyncio.Task[None]:
        if self._opening is None:
            # an empty context: a lane is no part of the run that was the first to need it
            task = asyncio.get_running_loop().create_task(self._open(), context=contextvars.Context())
            task.add_done_callback(self._opened)
            self._opening = task
        return self._opening

    async def _open(self) -> None:
        await self._give_back()
        try:
            connection = await self.get_connection()  # type: ignore[no-untyped-call]
        except RuntimeError as error:  # of uvloop, where the server closes it during the handshake
            raise ConnectionLost(CLOSED) from error
        self.lanes.append(Lane(self, connection))

    async def _give_back(self) -> None:
        """Give the places of closed connections back."""
        while self._gone:
            connection = self._gone.pop()
            await connection.disconnect(nowait=True)
            await self.release(connection)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # whoever waits for it raises it; with other lanes open, nobody has to

    def forget(self, lane: Lane) -> None:
        """Note that the connection of a lane is closed."""
        if lane in self.lanes:
            self.lanes.remove(lane)
        lane.connection._close()  # noqa: SLF001 - without it, redis-py warns of a connection that is open
        self._gone.append(lane.connection)
        if self._opening is not None:  # it may wait for this place
            self._giving = asyncio.get_running_loop().create_task(self._give_back(), context=contextvars.Context())

    async def aclose(self) -> None:
        """Close all connections; calls that wait for a reply fail."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        await super().aclose()


async def _end_of(opening: asyncio.Task[None]) -> None:
    """Wait until a lane is open, and raise what went wrong: a pool that is closed is no cancellation of the caller."""
    await asyncio.wait([opening])
    if opening.cancelled():
        raise ConnectionLost(CLOSED)
    opening.result()
