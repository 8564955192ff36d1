"""What a turn is shown of a log, and which messages that stands for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_workingmem._text.observed import tokens_of
from langchain_workingmem._text.ranges import contains, parse_ranges
from langchain_workingmem.models import Observation, ObservationLog, ObservationUsage
from langchain_workingmem.observations.log import hidden_ranges, known_log, learn, read_usage
from langchain_workingmem.observations.outbox import is_lost, unpublished
from langchain_workingmem.observations.reading import log_key, read_command, scope_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.effects import Argument, Command, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem._text.ranges import Ranges

NO_LOG: Sequence[Argument] = ("", "", 0)  # the arguments of a turn without observations


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The observations of a turn in a thread, and the messages that they stand for."""

    observations: Sequence[Observation] = ()
    covered: Ranges = ()  # of the thread
    revision: int = 0
    pending_tokens: int | None = None  # None: they were not counted
    usage: ObservationUsage = field(default_factory=ObservationUsage)
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


def view_arguments(state: MemoryState, thread_id: str, resource_id: str) -> Sequence[Argument]:
    """Return the arguments of `turn.lua` about observations."""
    if state.observations is None:
        return NO_LOG
    known = known_log(state, log_key(state, thread_id, resource_id).name)
    return scope_of(state), known.version, known.next_number


def view_commands(state: MemoryState, thread_id: str, resource_id: str) -> list[Command]:
    """Return what a turn sends besides: the log of a resource is in another slot than the thread."""
    if state.observations is None or scope_of(state) == "t":
        return []
    where = log_key(state, thread_id, resource_id)
    known = known_log(state, where.name)
    return [read_command(where, known.version, known.next_number, thread_id)]


def read_view(state: MemoryState, thread_id: str, resource_id: str, replies: list[Any]) -> Plan[View | None]:
    """Read what `turn.lua` replies about observations, and the replies to `view_commands`; None if observations are off.

    No round trip, but one where this process knows too little of the log, as after a revert.
    """
    if state.observations is None:
        return None
    (covered_reply, epoch, reply, waiting, usage, pending), *logs = replies
    where, covered = log_key(state, thread_id, resource_id), covered_reply.decode()
    hidden: dict[str, Ranges] = {}
    more: list[Observation] = []
    if where.thread_id is None:
        ((reply, batch, log_epoch, hidden_reply, usage, *_),) = logs
    known = learn(state, where.name, reply)
    if not known.is_whole():
        (found,) = yield from where.run(read_command(where, "", 0, thread_id))
        known = learn(state, where.name, found[0])
        if where.thread_id is None:
            _, batch, log_epoch, hidden_reply, usage, *_ = found
    ranges, is_stale = parse_ranges(covered), False
    if where.thread_id is None:
        if ranges and known.version == "0" and (yield from is_lost(state, where.name, thread_id, waiting)):
            return View(is_stale=True)
        is_stale = bool(ranges) and int(log_epoch) > int(epoch)  # where nothing is covered, nothing can be missing
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
        is_stale=is_stale,
    )


def covered_of(replies: Sequence[Any]) -> Ranges:
    """Return what observations cover, from the replies that `read_view` takes."""
    return parse_ranges(replies[0][0].decode()) if replies and replies[0] else ()
