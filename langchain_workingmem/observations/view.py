"""What a turn is shown of a log, and which messages that stands for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_workingmem._text.observed import tokens_of
from langchain_workingmem._text.ranges import contains, join_ranges, parse_ranges, ranges_of, write_ranges
from langchain_workingmem.models import Observation, ObservationLog, ObservationUsage
from langchain_workingmem.observations.log import KnownLog, hidden_ranges, known_log, learn, read_usage
from langchain_workingmem.observations.outbox import is_lost, unpublished, waiting_ranges
from langchain_workingmem.observations.reading import log_key, read_command, scope_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_workingmem._engine.effects import Argument, Command, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem._text.ranges import Ranges

NO_LOG: Sequence[Argument] = ("", "", 0, "")  # the arguments of a turn without observations


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The observations of a turn in a thread, and the messages that they stand for."""

    observations: Sequence[Observation] = ()
    covered: Ranges = ()  # of the thread
    revision: int = 0
    pending_tokens: int | None = None  # None: they were not counted
    usage: ObservationUsage = field(default_factory=ObservationUsage)
    version: bytes = b""  # of what is covered
    is_stale: bool = False  # the log has forgotten messages since the thread was read

    def covers(self, seq: float | None) -> bool:
        """Tell whether the observations stand for the message at a position."""
        return seq is not None and contains(self.covered, int(seq))

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


def known_for(state: MemoryState, thread_id: str, resource_id: str) -> KnownLog:
    """Return what this process knows of the log that a thread writes into."""
    if state.observations is None:
        return KnownLog()
    return known_log(state, log_key(state, thread_id, resource_id).name)


def view_arguments(state: MemoryState, known: KnownLog, removed: str) -> Sequence[Argument]:
    """Return the arguments of `turn.lua` about observations; `removed` is what `removed_positions` returns."""
    if state.observations is None:
        return (*NO_LOG[:-1], removed)
    return scope_of(state), known.version, known.next_number, removed


def removed_positions(before: Iterable[str], more: Iterable[int] = ()) -> str:
    """Write the positions of messages that memory has taken out of a state because a log covers them, with further ones."""
    return write_ranges(join_ranges([*(one for text in before for one in parse_ranges(text)), *ranges_of(more)]))


def view_commands(state: MemoryState, thread_id: str, resource_id: str, known: KnownLog) -> list[Command]:
    """Return what a turn sends besides: the log of a resource is in another slot than the thread."""
    if state.observations is None or scope_of(state) == "t":
        return []
    where = log_key(state, thread_id, resource_id)
    return [read_command(where, known.version, known.next_number, thread_id)]


def read_view(
    state: MemoryState, thread_id: str, resource_id: str, replies: list[Any], known: KnownLog
) -> Plan[View | None]:
    """Read what `turn.lua` replies about observations, and the replies to `view_commands`; None if observations are off.

    `known` is what was known of the log when these were sent.

    No round trip, but one where this process knows too little of the log, as after a revert.
    """
    if state.observations is None:
        return None
    (covered_reply, epoch, reply, waiting, usage, pending, version), *logs = replies
    note_coverage(state, thread_id, version)
    where, covered = log_key(state, thread_id, resource_id), covered_reply.decode()
    hidden: dict[str, Ranges] = {}
    more: list[Observation] = []
    if where.thread_id is None:
        ((reply, batch, log_epoch, hidden_reply, usage, *_),) = logs
    known = learn(state, where.name, reply, known)
    if not known.is_whole:
        (found,) = yield from where.run(read_command(where, "", 0, thread_id))
        known = learn(state, where.name, found[0], KnownLog())
        if where.thread_id is None:
            _, batch, log_epoch, hidden_reply, usage, *_ = found
    ranges, is_stale = parse_ranges(covered), False
    if where.thread_id is None:
        if ranges and known.version == "0" and (yield from is_lost(state, where.name, thread_id, waiting)):
            return View(is_stale=True)
        # where nothing is covered, nothing can be missing
        is_stale = bool(ranges) and (
            int(log_epoch) > int(epoch) or not known.covers(thread_id, ranges, waiting_ranges(waiting))
        )
        hidden = hidden_ranges(hidden_reply)
        more = [
            one for one in unpublished(waiting, int(batch)) if all(contains(ranges, seq) for _, seq in one.positions)
        ]
    shown = known.shown(thread_id, covered, hidden)
    return View(
        observations=[*shown, *more] if more else shown,
        covered=ranges,
        revision=known.revision,
        pending_tokens=int(pending) if pending else None,
        usage=read_usage(usage),
        version=version,
        is_stale=is_stale,
    )


def note_coverage(state: MemoryState, thread_id: str, version: bytes) -> None:
    """Note the version of what observations cover in a thread, as a script has just replied it."""
    if state.observations is not None:
        state.coverage.put(thread_id, version)


def has_new_coverage(state: MemoryState, thread_id: str, view: View | None) -> bool:
    """Tell whether the coverage of a thread has changed since a view was read, as far as this process knows."""
    known = state.coverage.get(thread_id)
    return view is not None and known is not None and known != view.version


def covered_of(replies: Sequence[Any]) -> Ranges:
    """Return what observations cover, from the replies that `read_view` takes."""
    return parse_ranges(replies[0][0].decode()) if replies and replies[0] else ()
