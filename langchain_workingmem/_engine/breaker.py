"""The circuit breaker: after Redis has failed, agents go on without memory, and do not wait for Redis in each call."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE = 5.0  # seconds until one call is let through again
_log = logging.getLogger("langchain_workingmem")


@dataclass(slots=True)
class Breaker:
    """Closed while Redis answers. Open after a failure: then one call every `PAUSE` seconds may ask Redis."""

    clock: Callable[[], float] = time.monotonic
    since: float | None = None  # the time of the failure; None: closed
    _next: float = 0.0  # the time when a call may ask Redis again

    @property
    def open_for(self) -> float | None:
        """The seconds since it has opened; None while it is closed."""
        return None if self.since is None else self.clock() - self.since

    def admits(self) -> bool:
        """Return whether a call may ask Redis now."""
        now = self.clock()
        if self.since is not None and now < self._next:
            return False
        self._next = now + PAUSE
        return True

    def fail(self) -> None:
        """Open, because Redis did not answer a call."""
        now = self.clock()
        if self.since is None:
            self.since = now
            _log.warning("Redis has failed: agents continue without memory, and ask again every %g s", PAUSE)
        self._next = now + PAUSE

    def close(self) -> None:
        """Close, because Redis has answered."""
        if self.since is not None:
            self.since = None
            _log.warning("Redis answers again")
