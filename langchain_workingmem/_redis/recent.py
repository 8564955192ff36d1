"""What one process remembers for a while: the newest entries of a mapping."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

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
        self.change(key, lambda _: value)

    def change(self, key: K, make: Callable[[V | None], V | None]) -> V | None:
        """Make an entry of the one that is there, in one step, and return it; None takes it out."""
        with self._lock:
            made = make(self._entries.pop(key, None))
            if made is not None:
                self._entries[key] = made
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
            return made

    def __len__(self) -> int:
        return len(self._entries)

    def pop(self, key: K) -> V | None:
        """Take an entry out."""
        with self._lock:
            return self._entries.pop(key, None)
