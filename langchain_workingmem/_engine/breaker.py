"""The circuit breaker: after Redis has failed, agents continue without memory and do not wait for Redis in each call."""

from __future__ import annotations

import logging
import time
from threading import Lock
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

# The position of a call in the turn of its thread: the first call, a later one, or a call outside of any known turn.
Part: TypeAlias = Literal["begins", "within", "alone"]

PAUSE = 5.0  # seconds until one call is let through again
LONGEST_TURN = 60.0  # seconds; after them, for example after an interrupt, a turn may ask Redis again
_MOST_TURNS = 10_000  # limit of `_lost`
_log = logging.getLogger("langchain_workingmem")


class Breaker:
    """Closed while Redis answers. Open after a failure: then one call every `pause` seconds may ask Redis.

    A turn that has continued without memory once does so until its end, so that each turn waits for a silent server at most
    once. Any reply of Redis closes the breaker.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, pause: float = PAUSE) -> None:
        self.clock = clock
        self.pause = pause
        self._since: float | None = None  # the time of the failure; None: closed
        self._next = 0.0  # the time when a call may ask Redis again
        self._lost: dict[str | None, float] = {}  # the threads whose turns are without memory, and since when
        self._lock = Lock()

    @property
    def open_for(self) -> float | None:
        """The seconds since it has opened; None while it is closed."""
        since = self._since
        return None if since is None else self.clock() - since

    def admits(self, thread_id: str | None, part: Part) -> bool:
        """Return whether a call may ask Redis now."""
        with self._lock:
            if part == "begins":
                self._lost.pop(thread_id, None)
            if self._since is None:
                return True
            now = self.clock()
            lost = self._lost.get(thread_id)
            if now >= self._next and (lost is None or now >= lost + LONGEST_TURN):
                self._next = now + self.pause
                return True
            self._lose(thread_id, part, now if lost is None else lost)
            return False

    def fail(self, thread_id: str | None, part: Part) -> None:
        """Open, because Redis did not answer this call."""
        with self._lock:
            now = self.clock()
            if self._since is None:
                self._since = now
                _log.warning("Redis has failed: agents continue without memory, and ask again every %g s", self.pause)
            self._next = now + self.pause
            self._lose(thread_id, part, now)

    def close(self) -> None:
        """Close, because Redis has answered."""
        if self._since is None:
            return
        with self._lock:
            self._since = None
            self._lost.clear()
        _log.warning("Redis answers again")

    def _lose(self, thread_id: str | None, part: Part, since: float) -> None:
        if part == "alone":  # the end of its turn is not known
            return
        if len(self._lost) >= _MOST_TURNS:
            self._lost.clear()
        self._lost[thread_id] = since

    def __repr__(self) -> str:
        return f"<Breaker: {'closed' if self._since is None else 'open'}>"
