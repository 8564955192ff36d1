"""A cool-down: after Redis has failed, agents continue without memory, and do not wait for Redis in each call."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE = 5.0  # seconds until one call is let through again
_log = logging.getLogger("langchain_workingmem")


class Breaker:
    """Closed while Redis answers. Open after a failure: then one call every `pause` seconds may ask Redis."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, pause: float = PAUSE) -> None:
        self.clock = clock
        self.pause = pause
        self._since: float | None = None  # the time of the failure; None: closed
        self._next = 0.0  # the time when a call may ask Redis again

    @property
    def open_for(self) -> float | None:
        """The seconds since it has opened; None while it is closed."""
        since = self._since
        return None if since is None else self.clock() - since

    def admits(self) -> bool:
        """Return whether a call may ask Redis now."""
        if self._since is not None and self.clock() < self._next:
            return False
        self._next = self.clock() + self.pause
        return True

    def fail(self) -> None:
        """Open, because Redis did not answer a call."""
        if self._since is None:
            self._since = self.clock()
            _log.warning("Redis has failed: agents continue without memory, and ask again every %g s", self.pause)
        self._next = self.clock() + self.pause

    def close(self) -> None:
        """Close, because Redis has answered."""
        if self._since is not None:
            self._since = None
            _log.warning("Redis answers again")
