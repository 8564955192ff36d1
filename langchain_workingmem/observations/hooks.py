"""What observations offer to the rooms below (`_redis/rooms.py`), above all the turn: what it is shown of a log."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from langchain_workingmem._engine.plan import Spawn, send
from langchain_workingmem._redis.access import run_script
from langchain_workingmem._redis.keys import decode, encode
from langchain_workingmem._redis.rooms import HOOKS, load_keeping
from langchain_workingmem._redis.scripts import as_told, note_covered
from langchain_workingmem._text.observed import tokens_of
from langchain_workingmem._text.ranges import contains, parse_ranges
from langchain_workingmem.errors import ObservationConflictError
from langchain_workingmem.observations import pressure
from langchain_workingmem.observations.archive import copy_command, copy_log, read_copy
from langchain_workingmem.observations.log import (
    OBSERVED_TURN,
    KnownLog,
    Remembered,
    add_to_user,
    known_log,
    learn,
    note_coverage,
    remove_from_user,
)
from langchain_workingmem.observations.observer.batches import read_ahead_of
from langchain_workingmem.observations.observing import count_later, observe_later, waiting_commands
from langchain_workingmem.observations.prompts import log_block
from langchain_workingmem.observations.reading import (
    Asked,
    Part,
    as_log,
    ask_user,
    merged,
    read_reply,
    scope_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from zoneinfo import ZoneInfo

    from langchain_workingmem._engine.plan import Argument, Command, Plan
    from langchain_workingmem._redis.rooms import Room
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem._text.ranges import Ranges
    from langchain_workingmem.models import Observation, ObservationLog

READINGS = 100  # of a log that others change meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The observations of a turn in a thread, and the messages that they stand for."""

    state: MemoryState
    thread_id: str
    observations: Sequence[Observation]
    covered: Ranges  # of the thread
    revision: int
    pending_tokens: int | None  # None: they were not counted
    usage: Sequence[bytes]  # name, value, ...
    version: bytes  # of what is covered

    def covers(self, seq: float | None) -> bool:
        """Tell whether the observations stand for the message at a position."""
        return seq is not None and contains(self.covered, int(seq))

    def block(self, name: str | None, zone: ZoneInfo | None = None) -> str | None:
        """Render the log for a prompt; None if it is empty."""
        return log_block(self.observations, name, zone)

    @property
    def tokens(self) -> int:
        """Estimate the tokens of the log."""
        return tokens_of(self.observations)

    def is_outdated(self) -> bool:
        """Tell whether the coverage of the thread has changed since, as far as this process knows."""
        known = self.state.room(Remembered).coverage.get(self.thread_id)
        return known is not None and known != self.version

    def as_log(self, thread_id: str, raw_tokens: int) -> ObservationLog:
        """Return the record that callers see; `raw_tokens` are those of the messages that are shown."""
        pending = raw_tokens if self.pending_tokens is None else self.pending_tokens
        until = {thread_id: self.covered[-1][1]} if self.covered else {}
        return as_log(self.observations, self.revision, pending, until, self.usage)


class ObservedTurn:
    """What a turn reads of observations, beside the history; without the option only what memory took out of the list."""

    def __init__(
        self, state: MemoryState, thread_id: str, user_id: str, arguments: Sequence[Argument], removed: str
    ) -> None:
        self._state, self._thread_id, self._user_id = state, thread_id, user_id
        keys, options = state.keys.of(thread_id), state.observations
        self._known = known_log(state, keys.observations) if options else KnownLog()
        scope = scope_of(state) if options else ""
        more = (scope, self._known.version, self._known.next_number, removed)
        self.calls: list[Command] = [OBSERVED_TURN.call(keys, *arguments, *more)]
        self._asked: Asked | None = None
        if scope == "u":
            self._asked = ask_user(state, user_id, thread_id)
            self.calls.append(self._asked.command)

    def covered(self, replies: Sequence[Any]) -> Ranges:
        """Return the positions that the log stands for, from the replies to `calls`."""
        told = replies[0][12]
        return parse_ranges(told[0].decode()) if told else ()

    def view(self, replies: Sequence[Any]) -> Plan[View | None]:
        """Return what the turn is shown, from the replies to `calls`; None without the option.

        No round trip; one in a cluster in scope "user".
        """
        state, thread_id, told = self._state, self._thread_id, replies[0][12]
        if not told:
            return None
        covered, reply, usage, pending, version, title, finer = told
        note_coverage(state, thread_id, version)
        key = state.keys.of(thread_id).observations
        known = yield from learn(state, key, reply, self._known)
        own = Part(thread_id, known.finer(finer), "", covered.decode(), title=title.decode())
        shown: Sequence[Observation] = own.shown()
        revision = known.revision
        if self._asked is not None:
            user = yield from read_reply(state, self._user_id, self._asked, replies[1], thread_id)
            shown = merged(state, self._user_id, [own, *user.parts])
            revision, usage = revision + user.revision, user.usage
            if covered and encode(thread_id) not in user.tags:  # Redis has lost the index, or it has expired too early
                yield from add_to_user(state, thread_id, self._user_id)
        return View(
            state=state,
            thread_id=thread_id,
            observations=shown,
            covered=parse_ranges(own.covered),
            revision=revision,
            pending_tokens=int(pending) if pending else None,
            usage=usage,
            version=version,
        )


def export_log(state: MemoryState, thread_id: str, user_id: str) -> Plan[list[dict[str, Any]]]:
    """Return the record of the log of a thread, if there is one. One round trip, and those of `read_copy`."""
    for _ in range(READINGS):
        (begun,) = yield from run_script(thread_id, user_id, copy_command(state, thread_id, user_id))
        log = yield from read_copy(state, thread_id, user_id, begun)
        if log is not None:
            break
    else:
        raise ObservationConflictError
    chunks = [
        {
            "thread_id": thread_id,
            **part._asdict(),
            "observations": [*map(_line, part.observations)],
            "finer": [*map(_line, part.finer)],
        }
        for part in log.parts
    ]
    record = {"kind": "observations", "thread_id": thread_id, "scope": "user" if log.scope == "u" else "thread"}
    return [record | {"chunks": chunks}] if chunks else []


def _line(one: Observation) -> dict[str, Any]:
    record: dict[str, Any] = {
        name: getattr(one, name) for name in ("id", "text", "priority", "level", "number", "parts")
    }
    return record | {"said_at": one.said_at.isoformat(), "sources": [list(source) for source in one.sources]}


def delete_index(state: MemoryState, user_id: str) -> Plan[dict[str, int]]:
    """Delete what a user has beside the logs of the threads. One round trip."""
    _, *keys = state.keys.log_of_user(user_id)
    yield from send(("DEL", *keys))
    return {}


def merge_index(state: MemoryState, source: str, into: str) -> Plan[dict[str, int]]:
    """Let the log of a user show the threads that the log of another one shows, which goes. Up to three round trips.

    What waits in these threads is counted after their next save, as after a transfer.
    """
    index, other = (state.keys.log_of_user(one)[2] for one in (source, into))
    (tags,) = yield from send(("ZRANGE", index, 0, -1))
    if tags:  # threads that are gone, or that belong to others, it does not show
        yield from send(("ZADD", other, *(part for tag in tags for part in (0, tag))))
    return (yield from delete_index(state, source))


turn = ObservedTurn
copying = copy_command
exported = export_log
erased = delete_index
merged_into = merge_index
copied = copy_log
shorten = pressure.shorten
wait = pressure.wait


def saving(
    state: MemoryState,
    thread_id: str,
    user_id: str | None,
    call: Command,
    removed: str,
    tokens: int | None,
) -> tuple[Command, list[Command]]:
    """Return the call that saves, as the larger variant, and what is sent beside it."""
    options = state.observations
    watched = "/"
    if options is not None and options.scope == "user":
        # what adds no messages, such as the vectors of an import, counts nothing
        watched = "/" if tokens is None else "u/"
    elif options is not None and options.background:
        watched = f"t/{options.message_tokens},{read_ahead_of(options) or ''}"
    told = as_told(call, f"{watched}/{removed}")
    return told, [] if tokens is None else waiting_commands(state, thread_id, user_id, tokens)


def saved(state: MemoryState, thread_id: str, user_id: str | None, replies: Sequence[Any]) -> Plan[None]:
    """Start the observer if it is due."""
    due, version, moves, *waiting = replies
    note_coverage(state, thread_id, version)
    note_covered(state.keys.of(thread_id).thread)
    if moves:
        yield from load_keeping().moved(state, thread_id, moves)
    if due and scope_of(state) == "u":  # the log of the user learns what the thread held before
        yield Spawn(count_later(state, thread_id, user_id))
        due = 0
    if due or any(waiting):
        yield from observe_later(state, thread_id, user_id)


def deleted(state: MemoryState, thread_id: str, reply: Sequence[Any]) -> Plan[None]:
    """Take a thread out of the index of its user. One round trip, none in scope "thread"."""
    _, owner = reply
    if owner:
        yield from remove_from_user(state, decode(owner), thread_id)


def moved(state: MemoryState, thread_id: str, owner: str, new_owner: str) -> Plan[None]:
    """Move a thread from the index of a user to that of another. Two round trips, one in scope "thread"."""
    (scope,) = yield from send(("HGET", state.keys.of(thread_id).observations, "scope"))
    if scope == b"u":
        yield from add_to_user(state, thread_id, new_owner)
        yield from remove_from_user(state, owner, thread_id)


HOOKS["observations"] = cast("Room", sys.modules[__name__])
