"""Optional rooms: they are imported when their option is given, or when their data is met."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LOADERS: dict[str, Callable[[], object]] = {}  # by the name of the room; `memory.py` registers them


def load(name: str) -> None:
    """Import an optional room, unless this process has it."""
    LOADERS[name]()
