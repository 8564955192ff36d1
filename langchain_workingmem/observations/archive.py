"""Logs that leave Redis and come back: copies of threads, exports and imports.

On the way a message goes by its id, because a copy has other sequence numbers, and perhaps not all messages.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field

from langchain_workingmem._engine.effects import Later, Plan, send
from langchain_workingmem._redis.access import continue_sweep, run_script
from langchain_workingmem._redis.codec import from_micros
from langchain_workingmem._redis.keys import encode
from langchain_workingmem._redis.scripts import STEP_BYTES, Script
from langchain_workingmem._text.ranges import numbers_in, ranges_of, write_ranges
from langchain_workingmem._text.unicode import visible
from langchain_workingmem.errors import OptionError, ThreadNotFoundError, ThreadOwnershipError
from langchain_workingmem.models import Observation, Priority
from langchain_workingmem.observations.documents import reindex_documents
from langchain_workingmem.observations.log import (
    COVERAGE,
    Chunk,
    add_to_user,
    parse_manifest,
    read_observation,
    write_manifest,
    write_observation,
)
from langchain_workingmem.options import Scope  # noqa: TC001 - pydantic reads the annotations
from langchain_workingmem.users import sections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from langchain_workingmem._engine.effects import Argument, Command
    from langchain_workingmem._redis.state import MemoryState

EXPORT = Script("observations/export", *COVERAGE)
RESTORE = Script("observations/restore", *COVERAGE)
_log = logging.getLogger("langchain_workingmem")

ATTEMPTS = 3  # to write a log whose messages others change meanwhile

Source = tuple[str, str]  # thread_id, message_id


class Part(NamedTuple):
    """A chunk of a log that leaves Redis, or comes back."""

    thread_id: str
    covered: list[str]  # ids of messages
    level: int
    observations: list[Observation]  # without numbers and positions


class Copy(NamedTuple):
    """What observations cover of a thread, and its log."""

    scope: str  # as scripts take it; "" without a log
    version: str  # of the log
    parts: list[Part]


def copy_command(state: MemoryState, thread_id: str, resource_id: str) -> Command:
    """Return the command that reads what observations cover of a thread, and its log."""
    return EXPORT.call(state.keys.of(thread_id), encode(resource_id))


def as_copy(thread_id: str, reply: Any) -> Copy:
    """Read the reply to `copy_command`."""
    if not reply[0]:
        return Copy("", "0", [])
    scope, version, present, values, pairs = reply
    ids = {int(seq): id.decode() for id, seq in zip(pairs[::2], pairs[1::2], strict=True)}
    rows = zip(values[::2], values[1::2], strict=True)
    return Copy(scope.decode(), version.decode(), _parts(thread_id, present, rows, ids))


def is_still(state: MemoryState, thread_id: str, copy: Copy) -> Plan[bool]:
    """Tell whether no covered message was edited or deleted since a copy was read. One round trip."""
    (fields,) = yield from send(("HMGET", state.keys.of(thread_id).observations, "scope", "version"))
    return [(field or b"").decode() for field in fields] == [copy.scope, copy.version]


def _parts(thread_id: str, present: bytes, rows: Iterable[tuple[bytes, bytes]], ids: Mapping[int, str]) -> list[Part]:
    """Return the chunks of a manifest, with those observations whose messages are all covered."""
    found = {int(number): read_observation(int(number), value) for number, value in rows if value}
    whole = {at for at, one in found.items() if all(seq in ids for _, seq in one.positions)}
    parts = []
    for chunk in parse_manifest(present.decode()):
        messages = [ids[seq] for seq in numbers_in(chunk.seqs) if seq in ids]
        own = [found[number] for number in numbers_in(chunk.numbers) if number in whole]
        if messages or own:
            parts.append(Part(thread_id, messages, chunk.level, own))
    return parts


def renamed(copy: Copy, thread_id: str, new_ids: Mapping[str, str]) -> list[Part]:
    """Return the log of a thread for a copy of it, whose messages have other ids; of one that was not copied it is empty."""
    parts = []
    for part in copy.parts:
        covered = [new_ids[id] for id in part.covered if id in new_ids]
        own = [
            replace(one, sources=[(thread_id, new_ids.get(id, "")) for _, id in one.sources], positions=())
            for one in part.observations
        ]
        parts.append(Part(thread_id, covered, part.level, own))
    return parts


def restore_log(
    state: MemoryState,
    thread_id: str,
    resource_id: str,
    parts: Sequence[Part],
    origin: str,
    differs: Callable[[Source], bool] = lambda _: False,
    scope: str = "t",
) -> Plan[int]:
    """Write the log of a thread, unless it has one; return how many observations it has.

    Two round trips; three in scope "r", where the log of the user shows it.

    An observation is left out if one of its messages is missing or differs. Then the others that it cites are raw.
    """
    keys = state.keys.of(thread_id)
    for _ in range(ATTEMPTS):
        plan = _Plan(parts, (yield from _positions(state, parts, differs)))
        if not plan.observations:
            return 0
        ids = (id for one in plan.observations for _, id in one.sources)
        seqs = (seq for one in plan.observations for _, seq in one.positions)
        cited = {*zip(ids, seqs, strict=True)}
        pairs = [part for pair in sorted(cited) for part in pair]
        head = [encode(resource_id), scope, origin, *plan.covered(thread_id), *plan.log, len(cited)]
        call = RESTORE.call(keys, *head, *pairs, *plan.values)
        ((status, left),) = yield from run_script(thread_id, resource_id, call)
        yield from continue_sweep(state, thread_id, left)
        if status > 0 and scope == "r":
            yield from add_to_user(state, thread_id, resource_id)
        if status > 0 and state.recall is not None:  # `recall.reindex` makes up for what fails
            yield Later(reindex_documents(state, thread_id))
        if status >= 0:
            return len(plan.values) * int(status)
    return 0


def _positions(state: MemoryState, parts: Sequence[Part], differs: Callable[[Source], bool]) -> Plan[dict[Source, int]]:
    """Return the sequence numbers of the messages that are stored. One round trip."""
    wanted: dict[str, dict[str, None]] = defaultdict(dict)
    for part in parts:
        told = (source for one in part.observations for source in one.sources)
        for thread, id in (*((part.thread_id, id) for id in part.covered), *told):
            if not differs((thread, id)):
                wanted[thread][id] = None
    calls: list[Command] = []
    for thread, ids in wanted.items():
        keys = state.keys.of(thread)
        calls += [("ZMSCORE", key, *ids) for key in (keys.order, keys.superseded)]
    replies = (yield from send(*calls)) if calls else []
    found: dict[Source, int] = {}
    for (thread, ids), order, superseded in zip(wanted.items(), replies[::2], replies[1::2], strict=True):
        for id, *scores in zip(ids, order, superseded, strict=True):
            seq = next((float(score) for score in scores if score is not None), 0.5)
            if seq.is_integer():  # an older version of a message has a fraction
                found[thread, id] = int(seq)
    return found


class _Plan:
    """What can be written of a log: observations whose messages are all there, and messages whose observations all are."""

    def __init__(self, parts: Sequence[Part], positions: Mapping[Source, int]) -> None:
        told = {id(one): {*one.sources} for part in parts for one in part.observations}
        lost = {source for sources in told.values() for source in sources if source not in positions}
        given = [one for part in parts for one in part.observations]
        while more := {source for one in given if told[id(one)] & lost for source in one.sources} - lost:
            lost |= more
        self.observations: list[Observation] = []
        self._covered: dict[str, set[int]] = defaultdict(set)
        chunks = []
        for part in parts:
            sources = [(part.thread_id, id) for id in part.covered]
            seqs = [positions[source] for source in sources if source in positions and source not in lost]
            first = len(self.observations) + 1
            self.observations += [
                replace(one, positions=tuple((thread, positions[thread, id]) for thread, id in one.sources))
                for one in part.observations
                if not told[id(one)] & lost
            ]
            numbers = ranges_of(range(first, len(self.observations) + 1))
            self._covered[part.thread_id].update(seqs)
            chunks.append(Chunk(encode(part.thread_id), ranges_of(seqs), numbers, part.level))
        last_number = max([len(self.observations), *(int(one.id) for one in self.observations)])
        self.log: list[Argument] = [write_manifest(chunks), last_number]
        self.values = [write_observation(one) for one in self.observations]

    def covered(self, thread_id: str) -> list[Argument]:
        """Return which messages of a thread are covered, and which of them are cited together."""
        own = ([str(seq) for thread, seq in one.positions if thread == thread_id] for one in self.observations)
        groups = ";".join(",".join(seqs) for seqs in own if len(seqs) > 1)
        return [write_ranges(ranges_of(self._covered[thread_id])), groups]


# ---------------------------------------------------------------------- records of archives


def _one_line(text: str) -> str:
    text.encode()  # an error unless it is valid Unicode
    if not (line := " ".join(visible(text).split())):
        raise OptionError("it is empty", remedy="leave the observation out")
    return line


_Level = Annotated[int, Field(ge=0, le=2**48)]  # how often it was condensed
_Source = Annotated[sections.Listed[sections.Id], Field(min_length=2, max_length=2), AfterValidator(tuple)]


class LineRecord(sections.Record):
    """An observation."""

    id: Annotated[str, Field(pattern="^[1-9][0-9]{0,14}$")]
    text: Annotated[str, AfterValidator(_one_line)]
    said_at: sections.Micros
    priority: Priority
    level: _Level
    sources: Annotated[sections.Listed[_Source], Field(min_length=1)]
    mentions: sections.Listed[_Source] = Field(default=[])  # in archives of version 2 and before

    def observation(self, thread_id: str) -> Observation:
        """Return it without positions. What tells of other threads, too, gets a source that is nowhere: it is left out."""
        sources = [(thread, id) for thread, id in dict.fromkeys(map(tuple, self.sources))]
        if self.mentions or any(thread != thread_id for thread, _ in sources):
            sources.append((thread_id, ""))
        fields = {name: getattr(self, name) for name in ("id", "text", "priority", "level")}
        return Observation(**fields, sources=sources, said_at=from_micros(self.said_at))


class ChunkRecord(sections.Record):
    """A part of a log."""

    thread_id: sections.Id
    covered: sections.Listed[sections.Id]
    level: _Level
    observations: sections.Listed[LineRecord]


class LogRecord(sections.Record, kind="observations"):
    """A log to write, unless there is one."""

    cites = True
    thread_id: sections.ThreadId | None = None  # None in archives of version 2 and before: the log of the user
    scope: Scope = "thread"
    chunks: sections.Listed[ChunkRecord]

    def model_post_init(self, _: Any, /) -> None:
        """Check that the ids differ, and that a log of a thread is about this one."""
        lines = [line for chunk in self.chunks for line in chunk.observations]
        if len({line.id for line in lines}) < len(lines):
            raise OptionError("an id of an observation occurs twice", remedy="use each number once")
        sources = (thread for line in lines for thread, _ in line.sources)
        others = {*(chunk.thread_id for chunk in self.chunks), *sources} - {self.thread_id}
        if self.thread_id is not None and others:
            seen = f"the log of thread {self.thread_id!r} is about {others.pop()!r}, too"
            raise OptionError(seen, remedy="leave that out")
        sections.check_size([line.text for line in lines], STEP_BYTES)

    def write(self, load: Any) -> Plan[None]:
        """Write it, unless this memory keeps its logs in another scope: then the messages are raw."""
        state, scope = load.state, "resource" if self.thread_id is None else self.scope
        if state.observations is not None and state.observations.scope != scope:
            return
        threads: dict[str, list[Part]] = {}
        for one in self.chunks:
            lines = [line.observation(one.thread_id) for line in one.observations]
            threads.setdefault(one.thread_id, []).append(Part(one.thread_id, one.covered, one.level, lines))
        for thread_id, parts in threads.items():
            plan = restore_log(state, thread_id, load.owner, parts, "import", load.differs, scope[0])
            try:
                load.counts["observations"] += yield from plan
            except (ThreadNotFoundError, ThreadOwnershipError) as error:  # deleted or transferred meanwhile
                _log.warning("%s; its observations are left out", error)


def export_log(state: MemoryState, thread_id: str, resource_id: str) -> Plan[list[dict[str, Any]]]:
    """Return the record of the log of a thread, if there is one. One round trip."""
    (reply,) = yield from run_script(thread_id, resource_id, copy_command(state, thread_id, resource_id))
    log = as_copy(thread_id, reply)
    chunks = [part._asdict() | {"observations": [_line(one) for one in part.observations]} for part in log.parts]
    record = {"kind": "observations", "thread_id": thread_id, "scope": "resource" if log.scope == "r" else "thread"}
    return [record | {"chunks": chunks}] if chunks else []


def _line(one: Observation) -> dict[str, Any]:
    record: dict[str, Any] = {name: getattr(one, name) for name in ("id", "text", "priority", "level")}
    return record | {"said_at": one.said_at.isoformat(), "sources": [list(source) for source in one.sources]}


def delete_index(state: MemoryState, resource_id: str) -> Plan[dict[str, int]]:
    """Delete what a user has beside the logs of the threads. One round trip."""
    _, *keys = state.keys.log_of_resource(resource_id)
    yield from send(("DEL", *keys))
    return {}
