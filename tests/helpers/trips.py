"""Count round trips."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis.asyncio.connection
import redis.connection


class Trips:
    """Counts round trips where they happen: what is written to a socket at once is one."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, call: Callable[[], Any]) -> int:
        """Return how many round trips a call makes, after a first one that sets everything up."""
        call()
        before = self.count
        call()
        return self.count - before


@contextmanager
def counted_trips() -> Iterator[Trips]:
    counter = Trips()
    send: Any = redis.connection.AbstractConnection.send_packed_command
    asend = redis.asyncio.connection.AbstractConnection.send_packed_command

    def counted(self: Any, command: Any, check_health: bool = True) -> None:
        counter.count += 1
        send(self, command, check_health)

    async def acounted(self: Any, command: Any, check_health: bool = True) -> None:
        counter.count += 1
        await asend(self, command, check_health)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis.connection.AbstractConnection, "send_packed_command", counted)
        patch.setattr(redis.asyncio.connection.AbstractConnection, "send_packed_command", acounted)
        yield counter
