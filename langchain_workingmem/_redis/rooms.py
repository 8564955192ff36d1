"""Wings that keep data of users: the core deletes, exports and merges it without knowing what it is.

The core names no module of a wing. `memory.py` registers a loader for each by its name, and a wing that is loaded registers itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from langchain_workingmem._engine.plan import Plan, Step
    from langchain_workingmem._redis.state import MemoryState


class Wing(Protocol):
    """What a wing does with the data of a user."""

    def exported(self, state: MemoryState, owner: str) -> Step[dict[str, Any]]:
        """Return the records of an owner in an archive, step by step."""

    def merged_into(self, state: MemoryState, source: str, into: str) -> Plan[Mapping[str, Any]]:
        """Give what a user has to another one; return fields of `MergeReport`."""

    def erased(self, state: MemoryState, owner: str) -> Plan[dict[str, int]]:
        """Delete what a user has, and return counts by the fields of `DeletionReport`."""


LOADERS: dict[str, Callable[[], object]] = {}  # of wings by name
WINGS: dict[str, Wing] = {}  # that are loaded, by name


def load(name: str) -> Wing:
    """Load a wing."""
    if name not in WINGS:
        LOADERS[name]()
    return WINGS[name]
