"""Logs that leave Redis and come back: copies of threads, exports and imports.

On the way a message goes by its id, because a copy has other sequence numbers, and perhaps not all messages.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._engine.effects import Later, Plan, attempt, send
from langchain_workingmem._redis.access import run_script
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import decode, encode
from langchain_workingmem._redis.scripts import COVERAGE, Script
from langchain_workingmem._redis.sweeping import continue_sweep
from langchain_workingmem._text.ranges import contains, numbers_in, parse_ranges, ranges_of, write_ranges
from langchain_workingmem.errors import RedisReplyError, ThreadNotFoundError, ThreadOwnershipError
from langchain_workingmem.observations.documents import reindex_documents
from langchain_workingmem.observations.log import (
    Chunk,
    parse_manifest,
    read_observation,
    write_manifest,
    write_observation,
)
from langchain_workingmem.observations.outbox import publish

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from langchain_workingmem._engine.effects import Argument, Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Observation

EXPORT = Script("observations/export", *COVERAGE)
RESTORE = Script("observations/restore", *COVERAGE)
RESTORE_RESOURCE = Script("observations/restore_resource", *COVERAGE)
ATTEMPTS = 3  # to write a log whose messages others change meanwhile

Source = tuple[str, str]  # thread_id, message_id
Position = tuple[str, int]  # thread_id, sequence number


class Part(NamedTuple):
    """A chunk of a log that leaves Redis, or comes back."""

    thread_id: str
    covered: list[str]  # ids of messages
    level: int
    observations: list[Observation]  # without numbers and positions


class Copy(NamedTuple):
    """What observations cover of a thread, and its log."""

    scope: str
    epoch: str
    parts: list[Part]


NO_COPY = Copy("", "0", [])


def copy_command(state: MemoryState, thread_id: str, resource_id: str) -> Command:
    """Return the command that reads what observations cover of a thread, and its log."""
    return EXPORT.call(state.keys.of(thread_id).all, encode(resource_id))


def as_copy(thread_id: str, reply: Any) -> Copy:
    """Read the reply to `copy_command`."""
    if not reply[0]:
        return NO_COPY
    scope, epoch, covered, present, values, pairs = reply
    ids = {int(seq): id.decode() for id, seq in zip(pairs[::2], pairs[1::2], strict=True)}
    found = _observations(zip(values[::2], values[1::2], strict=True))
    parts = _parts(present, found, {thread_id: ids}, {thread_id: parse_ranges(covered.decode())})
    return Copy(scope.decode(), epoch.decode(), parts)


def is_still(state: MemoryState, thread_id: str, copy: Copy) -> Plan[bool]:
    """Tell whether no covered message was edited or deleted since a copy was read. One round trip."""
    (fields,) = yield from send(("HMGET", state.keys.of(thread_id).observations, "scope", "epoch"))
    return [(field or b"").decode() for field in fields] == [copy.scope, copy.epoch]


def read_resource(state: MemoryState, resource_id: str) -> Plan[list[Part]]:
    """Read the log of a resource. Two round trips, one without a log.

    Left out is what cites messages that have gone meanwhile, or that have not been told to the log yet.
    """
    _, key = state.keys.log_of_resource(resource_id)
    (fields,) = yield from send(("HGETALL", key))
    row = as_dict(fields)
    present = row.get(b"present", b"")
    tags = dict.fromkeys(one.thread for one in parse_manifest(present.decode()))
    ids: dict[str, Mapping[int, str]] = {}
    calls = [copy_command(state, decode(tag), resource_id) for tag in tags]
    for tag, reply in zip(tags, (yield from attempt(*calls)) if calls else (), strict=True):
        if isinstance(reply, RedisReplyError):
            if reply.code != "WMOWNER":
                raise reply
        elif reply[0] == b"r":
            pairs = reply[5]
            ids[decode(tag)] = {int(seq): id.decode() for id, seq in zip(pairs[::2], pairs[1::2], strict=True)}
    found = _observations((name[2:], value) for name, value in row.items() if name.startswith(b"o:"))
    return _parts(present, found, ids, {thread: ranges_of(own) for thread, own in ids.items()})


def _observations(rows: Iterable[tuple[bytes, bytes]]) -> dict[int, Observation]:
    return {int(number): read_observation(int(number), value) for number, value in rows if value}


def _parts(
    present: bytes,
    found: Mapping[int, Observation],
    ids: Mapping[str, Mapping[int, str]],
    covered: Mapping[str, Any],
) -> list[Part]:
    """Return the chunks of a manifest, with those observations whose messages are all covered."""
    parts = []
    for chunk in parse_manifest(present.decode()):
        thread = decode(chunk.thread)
        own = [
            found[number]
            for number in numbers_in(chunk.numbers)
            if number in found and all(contains(covered.get(one, ()), seq) for one, seq in found[number].positions)
        ]
        known = ids.get(thread, {})
        messages = [known[seq] for seq in numbers_in(chunk.seqs) if seq in known]
        if messages or own:
            parts.append(Part(thread, messages, chunk.level, own))
    return parts


def renamed(copy: Copy, thread_id: str, new_ids: Mapping[str, str]) -> list[Part]:
    """Return the log of a thread for a copy of it, whose messages have other ids; of one that was not copied it is empty."""
    return [
        Part(
            thread_id,
            [new_ids[id] for id in part.covered if id in new_ids],
            part.level,
            [
                replace(one, sources=[(thread_id, new_ids.get(id, "")) for _, id in one.sources], positions=())
                for one in part.observations
            ],
        )
        for part in copy.parts
    ]


def restore_log(
    state: MemoryState,
    thread_id: str,
    resource_id: str,
    parts: Sequence[Part],
    origin: str,
    without: Collection[Source] = (),
) -> Plan[int]:
    """Write the log of a thread, unless it has one; return how many observations it has. Two round trips.

    An observation is left out if one of its messages is missing, or in `without`. Then the others that it cites are raw.
    """
    keys = state.keys.of(thread_id).all
    for _ in range(ATTEMPTS):
        plan = _Plan(parts, (yield from _positions(state, parts, without)))
        if not plan.observations:
            return 0
        cited = {
            (id, seq) for one in plan.observations for (_, id), (_, seq) in zip(one.sources, one.positions, strict=True)
        }
        pairs = [part for pair in sorted(cited) for part in pair]
        values = [write_observation(one) for one in plan.observations]
        head: list[Argument] = [encode(resource_id), "t", origin, plan.covered(thread_id), plan.groups(thread_id)]
        arguments = [*head, plan.manifest, plan.last_number, len(cited), *pairs, *values]
        ((status, left, *_),) = yield from run_script(thread_id, resource_id, RESTORE.call(keys, *arguments))
        yield from continue_sweep(state, thread_id, left)
        if status > 0:
            yield from _index_later(state, thread_id)
        if status >= 0:
            return len(values) * int(status)
    return 0


def restore_resource_log(
    state: MemoryState, resource_id: str, parts: Sequence[Part], origin: str, without: Collection[Source] = ()
) -> Plan[int]:
    """Write the log of a resource, unless it has one; return how many observations it has.

    Two round trips, and two per thread. First the threads know what the log will cover, so that it learns of messages that are
    edited or deleted meanwhile; then the log is written; then its messages are covered.
    """
    positions = yield from _positions(state, parts, without)
    threads = list(dict.fromkeys(part.thread_id for part in parts))
    plan = _Plan(parts, positions)
    epochs: dict[str, str] = {}
    fresh: list[str] = []
    for thread_id in threads:
        if not (ranges := plan.covered(thread_id)):
            continue
        arguments: list[Argument] = [encode(resource_id), "r", origin, ranges, plan.groups(thread_id), "", 0, 0]
        try:
            call = RESTORE.call(state.keys.of(thread_id).all, *arguments)
            ((_, left, scope, epoch, known, covered),) = yield from run_script(thread_id, resource_id, call)
        except (ThreadNotFoundError, ThreadOwnershipError):
            scope, known = b"", b""
        else:
            yield from continue_sweep(state, thread_id, left)
        if scope != b"r":
            positions = {source: at for source, at in positions.items() if source[0] != thread_id}
            continue
        still = parse_ranges(known.decode())
        positions = {source: at for source, at in positions.items() if source[0] != thread_id or contains(still, at)}
        epochs[thread_id] = epoch.decode()
        if not covered:
            fresh.append(thread_id)
    plan = _Plan(parts, positions)
    if not plan.observations:
        return 0
    pairs = [part for thread, epoch in epochs.items() for part in (encode(thread), epoch)]
    values = [write_observation(one) for one in plan.observations]
    arguments = [origin, plan.manifest, plan.last_number, len(epochs), *pairs, *values]
    log = state.keys.log_of_resource(resource_id)
    ((status, present),) = yield from run_script("", resource_id, RESTORE_RESOURCE.call(log, *arguments))
    for thread_id in fresh if status >= 0 else ():
        tag = encode(thread_id)
        seqs = (seq for one in parse_manifest(present.decode()) if one.thread == tag for seq in numbers_in(one.seqs))
        yield from publish(state, thread_id, "cover", write_ranges(ranges_of(seqs)))
        yield from _index_later(state, thread_id)
    return len(values) * max(0, int(status))


def _index_later(state: MemoryState, thread_id: str) -> Plan[None]:
    """Let recall find the observations of a thread, in the background; `recall.reindex` makes up for what fails."""
    if state.recall is not None:
        yield Later(reindex_documents(state, thread_id))


def _positions(state: MemoryState, parts: Sequence[Part], without: Collection[Source]) -> Plan[dict[Source, int]]:
    """Return the sequence numbers of the messages that are stored. One round trip."""
    wanted: dict[str, dict[str, None]] = defaultdict(dict)
    for part in parts:
        for thread, id in [
            *((part.thread_id, id) for id in part.covered),
            *(source for one in part.observations for source in _told(one)),
        ]:
            if (thread, id) not in without:
                wanted[thread][id] = None
    names = [thread for thread, ids in wanted.items() if ids]
    calls = [
        ("ZMSCORE", key, *wanted[thread])
        for thread in names
        for key in (state.keys.of(thread).order, state.keys.of(thread).superseded)
    ]
    replies = (yield from send(*calls)) if calls else []
    found: dict[Source, int] = {}
    for thread, order, superseded in zip(names, replies[::2], replies[1::2], strict=True):
        for id, *scores in zip(wanted[thread], order, superseded, strict=True):
            seq = next((float(score) for score in scores if score is not None), None)
            if seq is not None and seq.is_integer():
                found[thread, id] = int(seq)
    return found


def _told(one: Observation) -> list[Source]:
    """Return the messages that the text of an observation tells of."""
    return [*one.sources, *((thread, id) for thread, id, _ in one.mentions)]


class _Plan:
    """What can be written of a log: observations whose messages are all there, and messages whose observations all are."""

    def __init__(self, parts: Sequence[Part], positions: Mapping[Source, int]) -> None:
        lost = {
            source for part in parts for one in part.observations for source in _told(one) if source not in positions
        }
        waiting = [one for part in parts for one in part.observations]
        while True:
            kept = [one for one in waiting if lost.isdisjoint(_told(one))]
            if len(kept) == len(waiting):
                break
            whole = {id(one) for one in kept}
            lost |= {source for one in waiting if id(one) not in whole for source in one.sources}
            waiting = kept
        whole = {id(one) for one in waiting}
        self.observations: list[Observation] = []
        self._covered: dict[str, set[int]] = defaultdict(set)
        chunks = []
        for part in parts:
            seqs = [
                positions[part.thread_id, id]
                for id in part.covered
                if (part.thread_id, id) in positions and (part.thread_id, id) not in lost
            ]
            first = len(self.observations) + 1
            self.observations += [
                replace(
                    one,
                    positions=tuple((thread, positions[thread, id]) for thread, id in one.sources),
                    mentions=tuple((thread, id, positions[thread, id]) for thread, id, _ in one.mentions),
                )
                for one in part.observations
                if id(one) in whole
            ]
            numbers = ranges_of(range(first, len(self.observations) + 1))
            self._covered[part.thread_id].update(seqs)
            chunks.append(Chunk(encode(part.thread_id), ranges_of(seqs), numbers, part.level))
        self.manifest = write_manifest(chunks)
        self.last_number = max([len(self.observations), *(int(one.id) for one in self.observations)])

    def covered(self, thread_id: str) -> str:
        """Return which messages of a thread are covered."""
        return write_ranges(ranges_of(self._covered[thread_id]))

    def groups(self, thread_id: str) -> str:
        """Return which of them are cited together."""
        own = ([str(seq) for thread, seq in one.positions if thread == thread_id] for one in self.observations)
        return ";".join(",".join(seqs) for seqs in own if len(seqs) > 1)
