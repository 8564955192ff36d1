"""Wings that keep data of users: the core exports and merges it without knowing what it is, and deletes the keys that `keys.py` names.

The core names no module of a wing. `memory.py` registers a loader for each by its name, and a wing that is loaded registers itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from langchain_workingmem._engine.plan import Command, Plan, Step
    from langchain_workingmem._redis.state import MemoryState


class Wing(Protocol):
    """What a wing does with the data of a user."""

    def exported(self, state: MemoryState, owner: str) -> Step[dict[str, Any]]:
        """Return the records of an owner in an archive, step by step."""

    def merged_into(self, state: MemoryState, source: str, into: str) -> Plan[Mapping[str, Any]]:
        """Give what a user has to another one; return fields of `MergeReport`."""

    record: type[Any]  # the model of its records in an archive


class Part:
    """What takes part in turns beside history, recall and working memory; it appends itself to `MemoryState.parts`."""

    follows = False  # whether it works on the messages of an agent while this runs, so that they are saved before each call of the model

    def narrow(self, head: dict[str, Any]) -> None:
        """Change what `read.lua` reads of the history."""

    def commands(self, state: MemoryState, thread_id: str, user_id: str) -> list[Command]:
        """Return what is read beside the history, in the same round trip."""
        return []

    def gathered(
        self,
        state: MemoryState,
        found: Any,
        head: dict[str, Any],
        reply: dict[str, Any],
        asked: Sequence[Command],
        replies: list[Any],
    ) -> Plan[bool]:
        """Take the replies into what was `Gathered`; tell whether the history has to be read again by `head`.

        `reply` is that of `read.lua`.
        """
        yield from ()
        return False

    def renewed(self, state: MemoryState, found: Any, *, waits: bool) -> Plan[None]:
        """Do the same before a further call of the model in the run of an agent; one that `waits` may be kept waiting."""
        yield from ()

    def overflowed(self, state: MemoryState, found: Any) -> Plan[bool]:
        """Make room after a model has refused a prompt as too long; tell whether it is worth another try."""
        yield from ()
        return False

    def blocks(self, state: MemoryState, found: Any, name: str | None) -> list[tuple[str, str]]:
        """Return blocks of a prompt, each with its place: "question", "system", or "first", in front of the conversation."""
        return []

    def written(self, state: MemoryState, thread_id: str, user_id: str | None, tokens: int) -> Plan[None]:
        """Take notice of messages that were written."""
        yield from ()


class Keeping(Protocol):
    """What the wing of the keeper does for the core: a document may have been made by a keeper of another process."""

    def verified(self, state: MemoryState, scope_key: Any, found: Any) -> Plan[Any]:
        """Return a document without values whose messages are gone."""

    def renew_later(self, state: MemoryState, scope_key: Any) -> Plan[None]:
        """Note in the background what others have set in a document."""

    def without_rows(self, text: str, kept: str | None) -> str:
        """Return a document without the values that rows have given."""

    def moved(self, kept: str, source: str, thread_id: str) -> str:
        """Return what a copy of a thread notes beside its document."""

    def checked(self, text: str) -> str:
        """Return what an archive notes beside a document, or raise what is wrong with it."""

    def read(self, state: MemoryState, thread_id: str | None, user_id: str | None) -> Plan[Any]:
        """Read a document with the time and the sources of its values."""

    def undo(self, state: MemoryState, thread_id: str | None, user_id: str | None, path: str) -> Plan[Any]:
        """Take back what was said last about a value."""

    def keep(self, state: MemoryState, thread_id: str, user_id: str | None) -> Plan[Any]:
        """Let the keeper read a thread."""


LOADERS: dict[str, Callable[[], object]] = {}  # of wings by name
WINGS: dict[str, Any] = {}  # that are loaded, by name


def load(name: str) -> Any:
    """Load a wing."""
    if name not in WINGS:
        LOADERS[name]()
    return WINGS[name]


def files() -> Wing:
    """Load the wing of files."""
    found: Wing = load("files")
    return found


def keeping() -> Keeping:
    """Load the wing of the keeper."""
    found: Keeping = load("keeping")
    return found
