"""Logs that leave Redis and come back: copies of threads, exports and imports.

On the way a message goes by its id, because a copy has other sequence numbers, and perhaps not all messages.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._engine.effects import Later, Plan, send
from langchain_workingmem._redis.access import run_script
from langchain_workingmem._redis.keys import encode
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._redis.sweeping import continue_sweep
from langchain_workingmem._text.ranges import contains, numbers_in, parse_ranges, ranges_of, write_ranges
from langchain_workingmem.observations.documents import reindex_documents
from langchain_workingmem.observations.log import (
    Chunk,
    parse_manifest,
    read_observation,
    write_manifest,
    write_observation,
)
from langchain_workingmem.observations.scripts import COVERAGE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from langchain_workingmem._engine.effects import Argument, Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Observation

EXPORT = Script("observations/export", *COVERAGE)
RESTORE = Script("observations/restore", *COVERAGE)
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
    version: str  # of the log
    parts: list[Part]


NO_COPY = Copy("", "0", [])


def copy_command(state: MemoryState, thread_id: str, resource_id: str) -> Command:
    """Return the command that reads what observations cover of a thread, and its log."""
    return EXPORT.call(state.keys.of(thread_id), encode(resource_id))


def as_copy(thread_id: str, reply: Any) -> Copy:
    """Read the reply to `copy_command`."""
    if not reply[0]:
        return NO_COPY
    scope, version, covered, present, values, pairs = reply
    ids = {int(seq): id.decode() for id, seq in zip(pairs[::2], pairs[1::2], strict=True)}
    found = {int(number): read_observation(int(number), value) for number, value in zip(values[::2], values[1::2], strict=True)}
    parts = _parts(thread_id, present, found, ids, parse_ranges(covered.decode()))
    return Copy(scope.decode(), version.decode(), parts)


def is_still(state: MemoryState, thread_id: str, copy: Copy) -> Plan[bool]:
    """Tell whether no covered message was edited or deleted since a copy was read. One round trip."""
    (fields,) = yield from send(("HMGET", state.keys.of(thread_id).observations, "scope", "version"))
    return [(field or b"").decode() for field in fields] == [copy.scope, copy.version]


def _parts(
    thread_id: str, present: bytes, found: Mapping[int, Observation], ids: Mapping[int, str], covered: Ranges
) -> list[Part]:
    """Return the chunks of a manifest, with those observations whose messages are all covered."""
    parts = []
    for chunk in parse_manifest(present.decode()):
        numbers = (number for number in numbers_in(chunk.numbers) if number in found)
        own = [found[number] for number in numbers if all(contains(covered, seq) for _, seq in found[number].positions)]
        messages = [ids[seq] for seq in numbers_in(chunk.seqs) if seq in ids]
        if messages or own:
            parts.append(Part(thread_id, messages, chunk.level, own))
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
    scope: str = "t",
) -> Plan[int]:
    """Write the log of a thread, unless it has one; return how many observations it has. Two round trips, three in scope "r".

    An observation is left out if one of its messages is missing, or in `without`. Then the others that it cites are raw.
    """
    keys = state.keys.of(thread_id)
    for _ in range(ATTEMPTS):
        plan = _Plan(parts, (yield from _positions(state, parts, without)))
        if not plan.observations:
            return 0
        cited = {
            (id, seq) for one in plan.observations for (_, id), (_, seq) in zip(one.sources, one.positions, strict=True)
        }
        pairs = [part for pair in sorted(cited) for part in pair]
        values = [write_observation(one) for one in plan.observations]
        head: list[Argument] = [encode(resource_id), scope, origin, plan.covered(thread_id), plan.groups(thread_id)]
        arguments = [*head, plan.manifest, plan.last_number, len(cited), *pairs, *values]
        ((status, left),) = yield from run_script(thread_id, resource_id, RESTORE.call(keys, *arguments))
        yield from continue_sweep(state, thread_id, left)
        if status > 0:
            if scope == "r":
                yield from add_to_user(state, thread_id, resource_id)
            if state.recall is not None:  # `recall.reindex` makes up for what fails
                yield Later(reindex_documents(state, thread_id))
        if status >= 0:
            return len(values) * int(status)
    return 0


def add_to_user(state: MemoryState, thread_id: str, resource_id: str) -> Plan[None]:
    """Let the log of a user show that of a thread. One round trip."""
    _, _, index = state.keys.log_of_resource(resource_id)
    yield from send(("ZADD", index, 0, encode(thread_id)))


def _positions(state: MemoryState, parts: Sequence[Part], without: Collection[Source]) -> Plan[dict[Source, int]]:
    """Return the sequence numbers of the messages that are stored. One round trip."""
    wanted: dict[str, dict[str, None]] = defaultdict(dict)
    for part in parts:
        for thread, id in [
            *((part.thread_id, id) for id in part.covered),
            *(source for one in part.observations for source in one.sources),
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


class _Plan:
    """What can be written of a log: observations whose messages are all there, and messages whose observations all are."""

    def __init__(self, parts: Sequence[Part], positions: Mapping[Source, int]) -> None:
        lost = {
            source for part in parts for one in part.observations for source in one.sources if source not in positions
        }
        waiting = [one for part in parts for one in part.observations]
        while True:
            kept = [one for one in waiting if lost.isdisjoint(one.sources)]
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
