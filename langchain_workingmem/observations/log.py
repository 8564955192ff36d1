"""Logs as a process knows them: what it has read of one stays until the version of the log changes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._engine.plan import compute, send
from langchain_workingmem._redis.access import ERRORS
from langchain_workingmem._redis.codec import from_micros, to_micros
from langchain_workingmem._redis.keys import encode
from langchain_workingmem._redis.scripts import COMMON, TELLING, note_covered
from langchain_workingmem._redis.state import Recent
from langchain_workingmem._text.observed import Kept
from langchain_workingmem._text.ranges import contains, numbers_in, parse_ranges, write_ranges
from langchain_workingmem.errors import OptionError, Remedy
from langchain_workingmem.models import Observation, ObservationUsage
from langchain_workingmem.turn import TURN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem._text.ranges import Ranges
    from langchain_workingmem.errors import RedisReplyError

_READS = ("ranges", "observations/reading")
_VIEW = (*_READS, "observations/lines", "observations/view")
_COVERAGE = (*_VIEW, "observations/log", "observations/coverage", "observations/ahead")

READS_LOG = ("header", *_READS)
COVERAGE = (*COMMON, *_COVERAGE)
TELLING[:] = (*_COVERAGE, "keeping/kept", "observations/hooks")
OBSERVED_TURN = TURN.with_parts(*_VIEW, "observations/turn", after="header")
MOST_SOURCES = 64  # messages that a line names
_SLOW = 10  # a byte of a log takes as long to read as so many of messages
_LOGS = 1000  # that a process remembers: one of 40,000 tokens takes about a megabyte


def _other_scope(error: RedisReplyError, thread_id: str) -> OptionError:
    other = "user" if str(error).endswith("u") else "thread"
    return OptionError(
        f"the observations of thread {thread_id!r} have the scope {other!r}",
        remedy=Remedy(f"pass {{{other}}}"),
    )


ERRORS["WMSCOPE"] = _other_scope


class Chunk(NamedTuple):
    """A part of a manifest: which messages of a thread a few observations stand for."""

    thread: str  # as a tag
    seqs: Ranges
    numbers: Ranges
    level: int


def parse_manifest(text: str) -> list[Chunk]:
    """Read the manifest of a revision."""
    parts = (chunk.split("/") for chunk in text.split(";") if chunk)
    return [Chunk(tag, parse_ranges(seqs), parse_ranges(numbers), int(level)) for tag, seqs, numbers, level in parts]


def write_manifest(chunks: Iterable[Chunk]) -> str:
    """Write a manifest."""
    return ";".join(
        f"{one.thread}/{write_ranges(one.seqs)}/{write_ranges(one.numbers)}/{one.level}"
        for one in chunks
        if one.seqs or one.numbers
    )


def write_observation(observation: Observation) -> str:
    """Write an observation as scripts store it; without an id it gets its number as id.

    What it cites or stands for stands before the record.
    """
    seqs = ",".join(str(seq) for _, seq in observation.positions)
    head = f"{encode(observation.positions[0][0])}:{seqs}" + (f"/{observation.parts}" if observation.parts else "")
    body: dict[str, Any] = {
        "at": to_micros(observation.said_at),
        "priority": observation.priority,
        "text": observation.text,
        "level": observation.level,
        "sources": [[thread, id] for thread, id in observation.sources],
        "seqs": [seq for _, seq in observation.positions],
    }
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return f"{observation.id}|{head}|{text}"


def sources_in(observation: Observation, thread_id: str) -> str:
    """Return the sequence numbers of the sources in a thread, as scripts take them."""
    return ",".join(str(seq) for thread, seq in observation.positions if thread == thread_id)


def read_observation(number: int, value: bytes) -> Observation:
    """Read an observation that `write_observation` wrote."""
    id, head, body = value.split(b"|", 2)
    row = json.loads(body)
    sources = [(thread, message) for thread, message in row["sources"]]
    return Observation(
        id=id.decode(),
        text=row["text"],
        said_at=from_micros(row["at"]),
        priority=row["priority"],
        sources=sources,
        level=row["level"],
        number=number,
        parts=head.partition(b"/")[2].decode(),
        positions=tuple((thread, seq) for (thread, _), seq in zip(sources, row["seqs"], strict=True)),
    )


def read_usage(reply: Sequence[bytes]) -> ObservationUsage:
    """Read the counters of a log: name, value, ..."""
    row = {name.decode(): value.decode(errors="replace") for name, value in zip(reply[::2], reply[1::2], strict=True)}
    last_error = row.pop("last_error") or None
    return ObservationUsage(**{name: int(value or 0) for name, value in row.items()}, last_error=last_error)


@dataclass
class KnownLog:
    """What a process has read of a log. Observations never change under their number, so they are read once."""

    version: str = "0"
    revision: int = 0
    present: str = ""
    observations: dict[int, Observation] = field(default_factory=dict)
    _shown: tuple[str, Kept[Observation]] | None = None

    @cached_property  # each turn asks for it
    def next_number(self) -> int:
        """Return the number from which on observations are not known."""
        return max(self.observations, default=0) + 1

    def ordered(self) -> list[Observation]:
        """Return the observations of the manifest in the order of what was said.

        The manifest has that of the commits: messages that a deletion made readable again are observed anew after later ones.
        """
        chunks = parse_manifest(self.present)
        listed = {number for chunk in chunks for number in numbers_in(chunk.numbers) if number in self.observations}
        found = [self.observations[number] for number in sorted(listed)]
        return sorted(found, key=lambda one: (one.said_at, min(seq for _, seq in one.positions)))

    def shown(self, covered: str) -> Kept[Observation]:
        """Return the observations whose sources are all covered on the branch that is shown.

        They stay the same object as long as nothing changes, so that they are rendered once.
        """
        if self._shown is None or self._shown[0] != covered:
            ranges = parse_ranges(covered)
            found = (one for one in self.ordered() if all(contains(ranges, seq) for _, seq in one.positions))
            self._shown = covered, Kept(found)
        return self._shown[1]

    def finer(self, view: Sequence[bytes]) -> KnownLog:
        """Return the log as one turn is shown it: its manifest, then number and value of each of its lines; none: as it is."""
        if not view:
            return self
        found = {
            int(number): read_observation(int(number), value)
            for number, value in zip(view[1::2], view[2::2], strict=True)
        }
        return KnownLog(self.version, self.revision, view[0].decode(), found)


def add_to_user(state: MemoryState, thread_id: str, user_id: str) -> Plan[None]:
    """Let the log of a user show that of a thread. One round trip."""
    _, _, index = state.keys.log_of_user(user_id)
    yield from send(("ZADD", index, 0, encode(thread_id)))


def remove_from_user(state: MemoryState, user_id: str, *thread_ids: str) -> Plan[None]:
    """Take threads out of the log of a user. One round trip."""
    _, _, index = state.keys.log_of_user(user_id)
    yield from send(("ZREM", index, *map(encode, thread_ids)))


@dataclass(slots=True)
class Remembered:
    """What observations keep in this process for one memory."""

    observing: set[str] = field(default_factory=set)  # logs whose observer runs in the background
    logs: Recent[str, KnownLog] = field(default_factory=lambda: Recent(_LOGS))  # as they were read last, by key
    users: Recent[str, dict[str, Any]] = field(
        default_factory=Recent
    )  # the threads, as tags, that the log of a user consists of
    merged: Recent[str, tuple[object, Kept[Observation]]] = field(
        default_factory=Recent
    )  # that log, and what it was made of
    coverage: Recent[str, bytes] = field(
        default_factory=Recent
    )  # the version of each thread's log, as a script has replied it
    runs: Iterator[int] = field(default_factory=count)  # of observers, numbered


def known_log(state: MemoryState, key: str) -> KnownLog:
    """Return what the process knows of the log under a key of Redis."""
    return state.room(Remembered).logs.get(key) or KnownLog()


def learn(state: MemoryState, key: str, reply: list[Any], known: KnownLog) -> Plan[KnownLog]:
    """Take in the reply of `read_log`, and return what is known now; a long one does not hold up an event loop.

    `known` is what was known when the log was asked for: other callers may have learned more since.
    """
    return compute(partial(_learned, state, key, reply, known), _SLOW * sum(map(len, filter(None, reply[4::2]))))


def _learned(state: MemoryState, key: str, reply: list[Any], known: KnownLog) -> KnownLog:
    version = reply[0].decode()
    if len(reply) == 1:
        if version == known.version:
            return known
        state.room(Remembered).logs.pop(key)  # there is no log any more
        return KnownLog()
    _, revision, present, *rows = reply
    is_same = known.version.partition("-")[0] == version.partition("-")[0]  # else the log was made anew
    found = dict(known.observations) if is_same else {}
    for number, value in zip(rows[::2], rows[1::2], strict=True):
        if value:
            found[int(number)] = read_observation(int(number), value)
    learned = KnownLog(version, int(revision), present.decode(), found)
    learned.observations = {one.number: one for one in learned.ordered()}  # the others are not listed any more
    state.room(Remembered).logs.put(key, learned)
    return learned


def note_coverage(state: MemoryState, thread_id: str, version: bytes) -> None:
    """Note the version of what observations cover in a thread, as a script has just replied it."""
    if version:
        note_covered(state.keys.of(thread_id).thread)
    if state.observations is not None:
        state.room(Remembered).coverage.put(thread_id, version)
