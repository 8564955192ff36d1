"""Count round trips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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
