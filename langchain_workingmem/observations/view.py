"""What a turn is shown of a log, and which messages that stands for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from langchain_workingmem._redis.keys import encode
from langchain_workingmem._redis.scripts import note_covered
from langchain_workingmem._text.observed import tokens_of
from langchain_workingmem._text.ranges import contains, parse_ranges
from langchain_workingmem.models import Observation, ObservationLog, ObservationUsage
from langchain_workingmem.observations.log import (
    OBSERVED_TURN,
    KnownLog,
    Remembered,
    add_to_user,
    known_log,
    learn,
    read_usage,
)
from langchain_workingmem.observations.prompts import log_block
from langchain_workingmem.observations.reading import (
    READ,
    Asked,
    Part,
    ask_user,
    merged,
    of_thread,
    read_reply,
    scope_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.effects import Argument, Command, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem._text.ranges import Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The observations of a turn in a thread, and the messages that they stand for."""

    state: MemoryState
    thread_id: str
    observations: Sequence[Observation] = ()
    covered: Ranges = ()  # of the thread
    revision: int = 0
    pending_tokens: int | None = None  # None: they were not counted
    usage: ObservationUsage = field(default_factory=ObservationUsage)
    version: bytes = b""  # of what is covered

    def covers(self, seq: float | None) -> bool:
        """Tell whether the observations stand for the message at a position."""
        return seq is not None and contains(self.covered, int(seq))

    def block(self, name: str | None) -> str | None:
        """Render the log for a prompt; None if it is empty."""
        return log_block(self.observations, name)

    def is_outdated(self) -> bool:
        """Tell whether the coverage of the thread has changed since, as far as this process knows."""
        known = self.state.room(Remembered).coverage.get(self.thread_id)
        return known is not None and known != self.version

    def as_log(self, thread_id: str, raw_tokens: int) -> ObservationLog:
        """Return the record that callers see; `raw_tokens` are those of the messages that are shown."""
        return ObservationLog(
            observations=[*self.observations],
            tokens=tokens_of(self.observations),
            revision=self.revision,
            pending_tokens=raw_tokens if self.pending_tokens is None else self.pending_tokens,
            covered_until={thread_id: self.covered[-1][1]} if self.covered else {},
            usage=self.usage,
        )


class ObservedTurn:
    """What a turn reads of observations, beside the history; without the option only what memory took out of the list."""

    def __init__(
        self, state: MemoryState, thread_id: str, resource_id: str, arguments: Sequence[Argument], removed: str
    ) -> None:
        self._state, self._thread_id, self._resource_id = state, thread_id, resource_id
        keys, options = state.keys.of(thread_id), state.observations
        self._known = known_log(state, keys.observations) if options else KnownLog()
        scope = scope_of(state) if options else ""
        more = (scope, self._known.version, self._known.next_number, removed)
        self.calls: list[Command] = [OBSERVED_TURN.call(keys, *arguments, *more)]
        self._asked: Asked | None = None
        if scope == "r":
            self._asked = ask_user(state, resource_id, thread_id)
            self.calls.append(self._asked.command)
        names: dict[str, Literal["all", "others", "none"]] = {"t": "others", "r": "none", "": "all"}
        self.recalls = names[scope]

    def covered(self, replies: Sequence[Any]) -> Ranges:
        """Return the positions that the log stands for, from the replies to `calls`."""
        told = replies[0][12]
        return parse_ranges(told[0].decode()) if told else ()

    def view(self, replies: Sequence[Any]) -> Plan[View | None]:
        """Return what the turn is shown, from the replies to `calls`; None without the option.

        No round trip; one where this process knows too little of a log, as after a revert, and one in a cluster in scope
        "resource".
        """
        state, thread_id, told = self._state, self._thread_id, replies[0][12]
        if not told:
            return None
        covered, reply, usage, pending, version = told
        note_coverage(state, thread_id, version)
        key = state.keys.of(thread_id).observations
        known = learn(state, key, reply, self._known)
        if not known.is_whole:
            where = of_thread(state, thread_id, None)
            (found,) = yield from where.run(READ.call(where.keys, "", "", 0))
            known = learn(state, key, found[0], KnownLog())
        own = Part(thread_id, known, "", covered.decode())
        shown: Sequence[Observation] = own.shown()
        revision = known.revision
        if self._asked is not None:
            user = yield from read_reply(state, self._resource_id, self._asked, replies[1], thread_id)
            shown = merged(state, self._resource_id, [own, *user.parts])
            revision, usage = revision + user.revision, user.usage
            if covered and encode(thread_id) not in user.tags:  # Redis has lost the index, or it has expired too early
                yield from add_to_user(state, thread_id, self._resource_id)
        return View(
            state=state,
            thread_id=thread_id,
            observations=shown,
            covered=parse_ranges(own.covered),
            revision=revision,
            pending_tokens=int(pending) if pending else None,
            usage=read_usage(usage),
            version=version,
        )


def note_coverage(state: MemoryState, thread_id: str, version: bytes) -> None:
    """Note the version of what observations cover in a thread, as a script has just replied it."""
    if version:
        note_covered(state.keys.of(thread_id).thread)
    if state.observations is not None:
        state.room(Remembered).coverage.put(thread_id, version)
