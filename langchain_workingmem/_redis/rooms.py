"""Optional rooms stand on top: they are loaded when an option asks for them, or where stored data has a flag of them.

The core names no module of them. `memory.py` registers a loader for each by its name, and a room that is loaded registers its
hooks here. A plain script answers WMCOVERED where the flag of a thread says that a room has to be told of what changes; then
the room is loaded, and the larger variant of the script is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from langchain_workingmem._redis.scripts import RESEND, as_covered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from zoneinfo import ZoneInfo

    from langchain_workingmem._engine.plan import Argument, Command, Plan, Send, Step
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem._text.ranges import Ranges
    from langchain_workingmem.errors import RedisReplyError
    from langchain_workingmem.models import (
        Observation,
        ObservationLog,
        Thread,
        WorkingMemoryState,
    )
    from langchain_workingmem.reports import KeeperReport

T = TypeVar("T")


class View(Protocol):
    """What a turn is shown of a log, and the messages that it stands for."""

    observations: Sequence[Observation]
    covered: Ranges  # of the thread

    def covers(self, seq: float | None) -> bool:
        """Tell whether the log stands for the message at a position."""

    def block(self, name: str | None, zone: ZoneInfo | None = None) -> str | None:
        """Render the log for a prompt; None if it is empty."""

    @property
    def tokens(self) -> int:
        """Estimate the tokens of the log."""

    def as_log(self, thread_id: str, raw_tokens: int) -> ObservationLog:
        """Return the record that callers see; `raw_tokens` are those of the messages that are shown."""

    def is_outdated(self) -> bool:
        """Tell whether the log stands for other messages by now, as far as this process knows."""


class Turn(Protocol):
    """What a turn reads beside the history."""

    calls: Sequence[Command]  # the larger variant of `turn.lua`, and what is sent beside it

    def covered(self, replies: Sequence[Any]) -> Ranges:
        """Return the positions that the log stands for, from the replies to `calls`."""

    def view(self, replies: Sequence[Any]) -> Plan[View | None]:
        """Return what the turn is shown, from the replies to `calls`; None without the option."""


class Room(Protocol):
    """The hooks of observations."""

    def turn(
        self, state: MemoryState, thread_id: str, user_id: str, arguments: Sequence[Argument], removed: str
    ) -> Turn:
        """Prepare to read a turn; `arguments` are those of `turn.lua`, `removed` what memory took out of the list."""

    def saving(
        self,
        state: MemoryState,
        thread_id: str,
        user_id: str | None,
        call: Command,
        removed: str,
        tokens: int | None,
    ) -> tuple[Command, list[Command]]:
        """Return the call that saves as the larger variant of its script, and what is sent beside it.

        `tokens` are those of new messages; None: there are none.
        """

    def saved(self, state: MemoryState, thread_id: str, user_id: str | None, replies: Sequence[Any]) -> Plan[None]:
        """Go on after a save, with what its script and the commands beside it have replied."""

    def shorten(self, state: MemoryState, thread_id: str, user_id: str) -> Plan[None]:
        """Let the log stand for all that it can, because the prompt has become too long."""

    def wait(self, state: MemoryState, thread_id: str, user_id: str) -> Plan[bool]:
        """Wait until the log stands for more, because the prompt has become long; tell whether it may do so now."""

    def deleted(self, state: MemoryState, thread_id: str, reply: Sequence[Any]) -> Plan[None]:
        """Go on after all messages of a thread were deleted, with what `delete.lua` has replied."""

    def moved(self, state: MemoryState, thread_id: str, owner: str, new_owner: str) -> Plan[None]:
        """Go on after a thread was transferred."""

    def copying(self, state: MemoryState, thread_id: str, owner: str) -> Command:
        """Return the command that reads the log of a thread for a copy."""

    def copied(
        self, state: MemoryState, source: str, owner: str, reply: Any, copy: Thread, new_ids: dict[str, str]
    ) -> Plan[None]:
        """Write the log of a copied thread, given the reply to `copying`."""

    def exported(self, state: MemoryState, thread_id: str, owner: str) -> Plan[list[dict[str, Any]]]:
        """Return the records of a thread in an archive."""

    def merged_into(self, state: MemoryState, source: str, into: str) -> Plan[Mapping[str, Any]]:
        """Give what a user has beside the threads to another one, who has the threads already.

        Return fields of `MergeReport`: numbers, and names by names.
        """

    def erased(self, state: MemoryState, owner: str) -> Plan[dict[str, int]]:
        """Delete what a user has beside the threads, and return counts by the fields of `DeletionReport`."""


class Keeping(Protocol):
    """The hooks of the values of working memories."""

    def change(
        self,
        state: MemoryState,
        scope_key: Any,
        make: Callable[[Any, str], str],
        origin: str,
        expected: int | None,
        said: Any,
    ) -> Plan[tuple[WorkingMemoryState, WorkingMemoryState]]:
        """Change a working memory as `change_at_scope_key` does, and keep who said so and when."""

    def write(
        self, state: MemoryState, scope_key: Any, expected: str, origin: str, what: str, value: str | int
    ) -> Plan[tuple[int, dict[bytes, bytes]]]:
        """Write as `write_revision_into` does."""

    def rendered(self, state: MemoryState, scope_key: Any) -> Plan[WorkingMemoryState]:
        """Make the document of the values that are left."""

    def read(self, state: MemoryState, scope_key: Any) -> Plan[WorkingMemoryState]:
        """Read a working memory with the sources and the history of its values."""

    def undo(
        self, state: MemoryState, scope_key: Any, path: str
    ) -> Plan[tuple[WorkingMemoryState, WorkingMemoryState]]:
        """Set a value back to what held before it."""

    def keep(self, state: MemoryState, thread_id: str, user_id: str | None) -> Plan[KeeperReport]:
        """Let the keeper read a thread now."""

    def keep_later(self, state: MemoryState, thread_id: str, user_id: str | None, tokens: int) -> Plan[None]:
        """Tell the keeper of a thread that has more tokens of messages."""

    def forgetting(self, error: RedisReplyError, effect: Send) -> Plan[list[Any]]:
        """Let values forget messages that a script is about to change, and send the script's call again."""

    def moved(self, state: MemoryState, thread_id: str, moves: bytes) -> Plan[None]:
        """Let values know what a save has moved between branches, as its script has replied it."""

    def copied(
        self, state: MemoryState, source: str, owner: str, copy: Thread, new_ids: Mapping[str, str], scopes: str
    ) -> Plan[None]:
        """Let a copied thread have its values; `scopes` is the field `kept` of its source."""

    def exported(self, state: MemoryState, thread_id: str | None, user_id: str) -> Plan[list[dict[str, Any]]]:
        """Return the records of values in an archive."""

    def merged_into(self, state: MemoryState, source: str, into: str) -> Plan[int]:
        """Give the values of a user to another one; return how many claims there are."""


class Files(Protocol):
    """The hooks of files."""

    def exported(self, state: MemoryState, owner: str) -> Step[dict[str, Any]]:
        """Emit the records of the files of an owner in an archive."""


LOADERS: dict[str, Callable[[], object]] = {}  # of rooms by name
HOOKS: dict[str, Room] = {}  # of loaded rooms by name


def load(name: str) -> Room:
    """Load a room, and return its hooks."""
    if name not in HOOKS:
        LOADERS[name]()
    return HOOKS[name]


def load_keeping() -> Keeping:
    """Load the values of working memories, and return their hooks."""
    return cast("Keeping", load("keeping"))


def load_files() -> Files:
    """Load files, and return their hooks."""
    return cast("Files", load("files"))


def tell_deleted(state: MemoryState, thread_id: str, reply: Sequence[Any]) -> Plan[None]:
    """Tell a room that all messages of a thread were deleted, if `delete.lua` has replied something about it."""
    if reply:
        yield from load("observations").deleted(state, thread_id, reply)


def _tell(command: Command) -> Command:
    load("observations")  # which names the parts of the larger variants
    return as_covered(command)


RESEND["WMCOVERED"] = _tell
