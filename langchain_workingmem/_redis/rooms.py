"""Optional rooms stand on top: they are loaded when an option asks for them, or where stored data belongs to them.

The core names no module of them. `memory.py` registers a loader for each by its name, and a room that is loaded registers its
hooks here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.state import MemoryState


class Files(Protocol):
    """The hooks of files."""

    def merged_into(self, state: MemoryState, source: str, into: str) -> Plan[Mapping[str, Any]]:
        """Give what a user has beside the threads to another one, who has the threads already.

        Return fields of `MergeReport`: numbers, and names by names.
        """

    def erased(self, state: MemoryState, owner: str) -> Plan[dict[str, int]]:
        """Delete what a user has beside the threads, and return counts by the fields of `DeletionReport`."""

    def exported(self, state: MemoryState, owner: str) -> Plan[None]:
        """Emit the records of the files of an owner in an archive."""


LOADERS: dict[str, Callable[[], object]] = {}  # of rooms by name
HOOKS: dict[str, Files] = {}  # of loaded rooms by name


def load(name: str) -> Files:
    """Load a room, and return its hooks."""
    if name not in HOOKS:
        LOADERS[name]()
    return HOOKS[name]


def load_files() -> Files:
    """Load files, and return their hooks."""
    return load("files")
