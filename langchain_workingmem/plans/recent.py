"""What one process remembers for a while: the newest entries of a mapping."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

MOST = 1000  # entries; the one that was used longest ago goes


class Recent(Generic[K, V]):
    """A bounded mapping that threads may share."""

    __slots__ = ("_entries", "_lock", "_most")

    def __init__(self, most: int = MOST) -> None:
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()
        self._most = most

    def get(self, key: K) -> V | None:
        """Return an entry, None where there is none (any more)."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        """Set an entry."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)

    def pop(self, key: K) -> V | None:
        """Take an entry out."""
        with self._lock:
            return self._entries.pop(key, None)
