"""The circuit breaker of a memory: after Redis has failed, agents that can do without it do not wait for it each time."""

from __future__ import annotations

import logging
import time
from threading import Lock
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

# What a call is to the turn of its thread: its first question to memory, a later one, or not known to be in a turn.
Part: TypeAlias = Literal["begins", "within", "alone"]

PAUSE = 5.0  # seconds until one call is let through again
LONGEST_TURN = 60.0  # seconds; a turn that takes longer, or goes on after an interrupt, may ask again
_MOST_TURNS = 10_000  # that are kept in mind
_log = logging.getLogger("langchain_workingmem")


class Breaker:
    """Closed while Redis answers; open after it has failed, and then one call every few seconds is let through.

    A turn that went without memory once goes on without it: none of its later calls is let through, however long its
    tools take, so that a turn waits for a silent server once. Any reply of Redis closes the breaker.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, pause: float = PAUSE) -> None:
        self.clock = clock
        self.pause = pause
        self._since: float | None = None  # open since then
        self._next = 0.0  # when a call is let through again
        self._lost: dict[str | None, float] = {}  # threads whose turns go without memory, and since when
        self._lock = Lock()

    @property
    def open_for(self) -> float | None:
        """Return for how many seconds it has been open, None while it is closed."""
        since = self._since
        return None if since is None else self.clock() - since

    def admits(self, thread_id: str | None, part: Part) -> bool:
        """Tell whether a call may ask Redis now."""
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
        """Open: Redis did not answer this call."""
        with self._lock:
            now = self.clock()
            if self._since is None:
                self._since = now
                _log.warning(
                    "Redis has failed: it is asked again every %g s, until then agents go without memory", self.pause
                )
            self._next = now + self.pause
            self._lose(thread_id, part, now)

    def close(self) -> None:
        """Close: Redis has answered somebody."""
        if self._since is None:  # nearly always
            return
        with self._lock:
            self._since = None
            self._lost.clear()
        _log.warning("Redis answers again")

    def _lose(self, thread_id: str | None, part: Part, since: float) -> None:
        if part == "alone":  # nobody would say when its turn is over
            return
        if len(self._lost) >= _MOST_TURNS:
            self._lost.clear()
        self._lost[thread_id] = since

    def __repr__(self) -> str:
        return f"<Breaker: {'closed' if self._since is None else 'open'}>"
