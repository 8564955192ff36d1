"""Plans that find and read a log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._engine.effects import attempt, send
from langchain_workingmem._redis.access import check_owner, owner_tag, run_script
from langchain_workingmem._redis.codec import as_dict, decode_message, from_micros
from langchain_workingmem._redis.keys import FROM_WHERE, check_id, decode, encode
from langchain_workingmem._redis.scripts import COVERAGE, READS_LOG, Script
from langchain_workingmem._text.observed import tokens_of
from langchain_workingmem._text.ranges import numbers_in, parse_ranges
from langchain_workingmem.checks import at_least, check_range
from langchain_workingmem.errors import IdError, ObservationNotFoundError, OptionError, RedisReplyError
from langchain_workingmem.models import ObservationLog, ObservationUsage, RecallHit, RecallResult, StoredMessage
from langchain_workingmem.observations.log import (
    KnownLog,
    hidden_ranges,
    known_log,
    learn,
    parse_manifest,
    read_observation,
    read_usage,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from langchain_workingmem._engine.effects import Command, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem._text.ranges import Ranges
    from langchain_workingmem.models import Observation
    from langchain_workingmem.options import ObservationOptions, Scope

READ = Script("observations/read", *COVERAGE)
READ_RESOURCE = Script("observations/read_resource", "header", *READS_LOG)
SOURCES = Script("observations/sources", "header")
WAITING = Script("observations/waiting", "header", "prelude", "observations/expiry")


class LogKey(NamedTuple):
    """Where a log is: that of a thread, or without a `thread_id` that of a resource."""

    keys: tuple[str, ...]  # of a script
    thread_id: str | None
    resource_id: str | None

    @property
    def name(self) -> str:
        """Return the key of the log."""
        return self.keys[1] if self.thread_id is None else self.keys[9]

    @property
    def owner(self) -> str:
        """Return the resource as scripts take it."""
        return owner_tag(self.resource_id)

    def run(self, *calls: Command) -> Plan[list[Any]]:
        """Send calls of scripts for this log. One round trip."""
        return run_script(self.thread_id or "", self.resource_id, *calls)


class Read(NamedTuple):
    """A log as it was read."""

    known: KnownLog
    log: ObservationLog
    hidden: Mapping[str, Ranges]  # in the threads of a resource


def observing(state: MemoryState) -> ObservationOptions:
    """Return the options; `OptionError` if observations are off."""
    if state.observations is None:
        raise OptionError("observations are off", remedy="pass observations=ObservationOptions(model=...) to Memory")
    return state.observations


def scope_of(state: MemoryState) -> str:
    """Return the scope as scripts take it."""
    return "r" if state.observations is not None and state.observations.scope == "resource" else "t"


def log_key(state: MemoryState, thread_id: str, resource_id: str | None) -> LogKey:
    """Return the log that a thread writes into."""
    if scope_of(state) == "t":
        return LogKey(state.keys.of(thread_id).all, thread_id, resource_id)
    return LogKey(state.keys.log_of_resource(resource_id or ""), None, resource_id)


def find_log_key(state: MemoryState, thread_id: str | None, resource_id: str | None) -> Plan[LogKey]:
    """Find the log that the ids mean. One round trip where the owner of a thread is looked up, else none.

    Without options, which reading does not need, a thread_id means the log of the thread.
    """
    if thread_id is not None:
        check_id(thread_id, "thread_id")
    if resource_id is not None:
        check_id(resource_id, "resource_id")
    options = state.observations
    scope: Scope = options.scope if options else "resource" if thread_id is None else "thread"
    if scope == "thread":
        if thread_id is None:
            raise IdError("the log of a thread needs a thread_id", remedy=FROM_WHERE.format("thread_id"))
        return LogKey(state.keys.of(thread_id).all, thread_id, resource_id)
    if thread_id is not None:
        (tag,) = yield from send(("HGET", state.keys.of(thread_id).thread, "resource"))
        check_owner(tag, thread_id, resource_id)
        resource_id = resource_id or (thread_id if tag is None else decode(tag))
    if resource_id is None:
        raise IdError("the log of a resource needs a resource_id", remedy=FROM_WHERE.format("resource_id"))
    return LogKey(state.keys.log_of_resource(resource_id), None, resource_id)


def read_command(where: LogKey, version: str, next_number: int, thread_id: str = "") -> Command:
    """Return the command that reads a log whose version and next number are known; that of a resource for a thread."""
    if where.thread_id is not None:
        return READ.call(where.keys, where.owner, version, next_number)
    return READ_RESOURCE.call(where.keys, encode(thread_id), version, next_number)


def read(state: MemoryState, where: LogKey) -> Plan[Read]:
    """Read a log. One round trip; two where this process knows too little of it, as after a revert."""
    known = known_log(state, where.name)
    (reply,) = yield from where.run(read_command(where, known.version, known.next_number))
    known = learn(state, where.name, reply[0], known)
    if not known.is_whole:
        (reply,) = yield from where.run(read_command(where, "", 0))
        known = learn(state, where.name, reply[0], KnownLog())
    if where.thread_id is None:
        _, _, _, hidden_reply, usage, pending, made = reply
        hidden, covered = hidden_ranges(hidden_reply), ""
        until: dict[str, int] = {}
        for chunk in parse_manifest(known.present):
            if chunk.seqs:
                until[decode(chunk.thread)] = max(until.get(decode(chunk.thread), 0), chunk.seqs[-1][1])
    else:
        _, covered_reply, pending, usage, made = reply
        hidden, covered = {}, covered_reply.decode()
        until = {where.thread_id: parse_ranges(covered)[-1][1]} if covered else {}
    found = known.shown(where.thread_id, covered, hidden)
    log = ObservationLog(
        observations=[*found],
        tokens=tokens_of(found),
        revision=known.revision,
        pending_tokens=max(0, int(pending)),
        covered_until=until,
        usage=read_usage(usage),
        updated_at=from_micros(made[0]) if made[0] else None,
        origin=made[1].decode() or None,
    )
    return Read(known, log, hidden)


def recount(state: MemoryState, where: LogKey, thread_ids: Iterable[str]) -> Plan[None]:
    """Count anew what waits in threads of a resource. Two round trips, none without threads."""
    ids = [*thread_ids]
    calls = [READ.call(state.keys.of(id).all, where.owner, "", 0) for id in ids]
    replies = (yield from attempt(*calls)) if calls else []
    counted = {
        id: 0 if isinstance(reply, RedisReplyError) else int(reply[2]) for id, reply in zip(ids, replies, strict=True)
    }
    if counted:
        yield from where.run(
            *(WAITING.call(where.keys, encode(id), tokens, "set", 0, "") for id, tokens in counted.items())
        )


def read_log(state: MemoryState, thread_id: str | None, resource_id: str | None) -> Plan[ObservationLog]:
    """Plan `Observations.get`."""
    where = yield from find_log_key(state, thread_id, resource_id)
    return (yield from read(state, where)).log


def history(
    state: MemoryState, thread_id: str | None, resource_id: str | None, limit: int
) -> Plan[list[ObservationLog]]:
    """Plan `Observations.history`. One round trip, and one more where the owner of a thread is looked up."""
    at_least(limit, 1, "limit")
    where = yield from find_log_key(state, thread_id, resource_id)
    present = (yield from read(state, where)).log
    (fields,) = yield from send(("HGETALL", where.name))
    row = as_dict(fields)
    found = {
        int(name[2:]): read_observation(int(name[2:]), value) for name, value in row.items() if name.startswith(b"o:")
    }
    revisions = sorted((int(name[4:]) for name in row if name.startswith(b"rev:")), reverse=True)
    logs = []
    for revision in revisions[:limit]:
        origin, at, manifest = row[b"rev:%d" % revision].decode().split("|")
        observations = observations_of(manifest, found)
        logs.append(
            replace(
                present,
                observations=observations,
                tokens=tokens_of(observations),
                revision=revision,
                updated_at=from_micros(int(at)),
                origin=origin,
                covered_until={decode(one.thread): one.seqs[-1][1] for one in parse_manifest(manifest) if one.seqs},
                usage=ObservationUsage() if revision != present.revision else present.usage,
            )
        )
    return logs


def observations_of(manifest: str, found: Mapping[int, Observation]) -> list[Observation]:
    """Return the observations that a manifest lists, without those that were deleted since."""
    numbers = (number for chunk in parse_manifest(manifest) for number in numbers_in(chunk.numbers))
    return [found[number] for number in numbers if number in found]


def sources(
    state: MemoryState,
    observation_id: str,
    thread_id: str | None,
    resource_id: str | None,
    message_range: int | tuple[int, int],
) -> Plan[RecallResult]:
    """Plan `Observations.sources`."""
    window = check_range(message_range)
    where = yield from find_log_key(state, thread_id, resource_id)
    log = (yield from read(state, where)).log
    found = next((one for one in log.observations if one.id == observation_id), None)
    if found is None:
        raise ObservationNotFoundError(observation_id)
    return (yield from read_sources(state, found, where.owner, window))


def read_sources(
    state: MemoryState, observation: Observation, owner: str, window: tuple[int, int]
) -> Plan[RecallResult]:
    """Read the messages behind an observation, with those around them. One round trip."""
    seqs: dict[str, list[int]] = {}
    for thread, seq in observation.positions:
        seqs.setdefault(thread, []).append(seq)
    calls = [SOURCES.call(state.keys.of(id).all, owner, *window, *sorted(own)) for id, own in seqs.items()]
    hits: list[RecallHit] = []
    rows: dict[tuple[str, int], StoredMessage] = {}
    for id, reply in zip(seqs, (yield from send(*calls)), strict=True):
        title, parts = (reply[0].decode() or None, reply[1:]) if reply else (None, [])
        for front, own, back in zip(parts[1::4], parts[2::4], parts[3::4], strict=True):
            before, (row,), after = (_rows(some, id) for some in (front, own, back))
            rows |= {(id, one.seq): one for one in (*before, row, *after)}
            hits.append(
                RecallHit(
                    message=row.message,
                    thread_id=id,
                    score=1.0,
                    similarity=1.0,
                    before=[one.message for one in reversed(before)],
                    after=[one.message for one in after],
                    stored_at=row.stored_at,
                    thread_title=title,
                )
            )
    hits.sort(key=lambda hit: hit.stored_at)
    return RecallResult(hits=hits, rows=sorted(rows.values(), key=lambda row: (row.stored_at, row.thread_id)))


def _rows(reply: list[Any], thread_id: str) -> list[StoredMessage]:
    columns = (reply[start::3] for start in range(3))
    return [decode_message(id, seq, value, thread_id) for id, seq, value in zip(*columns, strict=True)]
