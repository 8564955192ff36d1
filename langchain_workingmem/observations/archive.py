"""Logs that leave Redis and come back: copies of threads, exports and imports.

On the way a message goes by its id, because a copy has other sequence numbers, and perhaps not all messages.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.access import continue_sweep, run_script
from langchain_workingmem._redis.codec import from_micros
from langchain_workingmem._redis.keys import encode
from langchain_workingmem._redis.scripts import STEP_BYTES, Script
from langchain_workingmem._text.ranges import numbers_in, parse_ranges, ranges_of, write_ranges
from langchain_workingmem._text.unicode import visible
from langchain_workingmem.errors import OptionError, ThreadNotFoundError, ThreadOwnershipError
from langchain_workingmem.models import Observation, Priority
from langchain_workingmem.observations.log import (
    COVERAGE,
    MOST_SOURCES,
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
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from langchain_workingmem._engine.plan import Argument, Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Thread

EXPORT = Script("observations/export", *COVERAGE)
RESTORE = Script("observations/restore", *COVERAGE)
_log = logging.getLogger("langchain_workingmem")

ATTEMPTS = 3  # to write a log whose messages others change meanwhile
MOST_LINES, MOST_CITED = 200, 600  # that one step writes: lines, and messages that they cite
MOST_READ, MOST_SEQS = 500, 2000  # that one step reads: lines, and sequence numbers


class Part(NamedTuple):
    """A chunk of the log of a thread that leaves Redis, or comes back."""

    covered: list[str]  # ids of messages
    level: int
    observations: list[Observation]  # without positions
    finer: list[Observation] = []  # noqa: RUF012 - a NamedTuple; those that the others stand for


class Copy(NamedTuple):
    """What observations cover of a thread, and its log."""

    scope: str  # as scripts take it; "" without a log
    parts: list[Part]


def copy_command(state: MemoryState, thread_id: str, user_id: str) -> Command:
    """Return the command that begins to read what observations cover of a thread, and its log."""
    return _export(state, thread_id, user_id)


def _export(
    state: MemoryState,
    thread_id: str,
    user_id: str,
    version: bytes = b"",
    numbers: Iterable[int] = (),
    begin: int = 0,
) -> Command:
    wanted = write_ranges(ranges_of(numbers))
    last = -1 if wanted else begin + MOST_SEQS - 1
    return EXPORT.call(state.keys.of(thread_id), encode(user_id), version, wanted, begin, last)


def read_copy(state: MemoryState, thread_id: str, user_id: str, begun: Any) -> Plan[Copy | None]:
    """Read what the reply to `copy_command` has begun; None if the log has changed since.

    A round trip, and one more for each time that the lines were condensed.
    """
    if not begun[0]:
        return Copy("", [])
    scope, version, present, covered = begun
    chunks, ranges = parse_manifest(present.decode()), parse_ranges(covered.decode())
    found, ids = dict[int, Observation](), dict[int, str]()
    waiting = sorted({number for chunk in chunks for number in numbers_in(chunk.numbers)})
    begins = range(ranges[0][0], ranges[-1][1] + 1, MOST_SEQS) if ranges else range(0)
    export = partial(_export, state, thread_id, user_id, version)
    while waiting or begins:
        calls = [export(waiting[at : at + MOST_READ]) for at in range(0, len(waiting), MOST_READ)]
        replies = yield from run_script(thread_id, user_id, *calls, *(export(begin=at) for at in begins))
        for reply in replies:
            if not reply[0]:
                return None
            _, values, pairs = reply
            for number, value in zip(map(int, values[::2]), values[1::2], strict=True):
                found[number] = read_observation(number, value)
            ids |= {int(seq): id.decode() for id, seq in zip(pairs[::2], pairs[1::2], strict=True)}
        parts = {part for number in waiting if number in found for part in _parts(found[number])}
        waiting, begins = sorted(parts - found.keys()), range(0)
    parts_found, known = [], set[int]()
    for chunk in chunks:
        messages = [ids[seq] for seq in numbers_in(chunk.seqs) if seq in ids]
        own = [found[number] for number in numbers_in(chunk.numbers) if number in found]
        if messages or own:
            parts_found.append(Part(messages, chunk.level, own, [*_behind(own, found, known)]))
    return Copy(scope.decode(), parts_found)


def _behind(
    observations: Iterable[Observation], found: Mapping[int, Observation], known: set[int]
) -> Iterator[Observation]:
    """Return the finer lines that some stand for, each one time."""
    for one in observations:
        finer = [found[number] for number in _parts(one) if number in found and number not in known]
        known.update(each.number for each in finer)
        yield from finer
        yield from _behind(finer, found, known)


def _parts(one: Observation) -> Iterator[int]:
    return numbers_in(parse_ranges(one.parts))


def copy_log(
    state: MemoryState, source: str, owner: str, begun: Any, copy: Thread, new_ids: Mapping[str, str]
) -> Plan[None]:
    """Write the log of a copied thread. Round trips of `read_copy` and `restore_log`, none where the thread has none.

    It is left out if it has changed since the messages were read, and if it is that of a user: then all messages are shown as
    they are.
    """
    if begun[0] != b"t":
        return
    log = yield from read_copy(state, source, owner, begun)
    if log is None or not log.parts:
        return
    parts = []
    for part in log.parts:
        own, finer = (
            [replace(one, sources=[(copy.id, new_ids.get(id, "")) for _, id in one.sources]) for one in some]
            for some in (part.observations, part.finer)
        )
        parts.append(Part([new_ids[id] for id in part.covered if id in new_ids], part.level, own, finer))
    yield from restore_log(state, copy.id, copy.user_id, parts, "clone")


def restore_log(
    state: MemoryState,
    thread_id: str,
    user_id: str,
    parts: Sequence[Part],
    origin: str,
    differs: Callable[[tuple[str, str]], bool] = lambda _: False,
    scope: str = "t",
) -> Plan[int]:
    """Write the log of a thread, unless it has one; return how many observations it has.

    Two round trips; three in scope "u", where the log of the user shows it. One more for each further 200 observations.

    An observation is left out if one of its messages is missing or differs. Then finer ones take its place, or the others that it
    cites are raw.
    """
    keys = state.keys.of(thread_id)
    for _ in range(ATTEMPTS):
        positions = yield from _positions(state, thread_id, parts, differs)
        chunks, lines = _storable(thread_id, parts, positions)
        if not lines:
            return 0
        last_number = max(len(lines), *(int(one.id) for one in lines))
        number, version = 1, b""
        for some in _steps(lines):
            cited = {(id, positions[id]) for one in some if _is_leaf(one) for _, id in one.sources}
            pairs = [part for pair in sorted(cited) for part in pair]
            manifest = write_manifest(chunks) if some[-1] is lines[-1] else ""
            head: list[Argument] = [
                encode(user_id),
                scope,
                origin,
                manifest,
                last_number,
                number,
                version,
                len(cited),
            ]
            call = RESTORE.call(keys, *head, *pairs, *map(write_observation, some))
            ((status, left, version),) = yield from run_script(thread_id, user_id, call)
            if status <= 0:
                break
            number += len(some)
        yield from continue_sweep(state, thread_id, left)
        if status > 0 and scope == "u":
            yield from add_to_user(state, thread_id, user_id)
        if status >= 0:
            return len(lines) * int(status)
    return 0


def _positions(
    state: MemoryState, thread_id: str, parts: Sequence[Part], differs: Callable[[tuple[str, str]], bool]
) -> Plan[dict[str, int]]:
    """Return the sequence numbers of the messages that are stored, by id. One round trip."""
    sources = (id for part in parts for one in (*part.observations, *part.finer) for _, id in one.sources)
    covered = (id for part in parts for id in part.covered)
    ids = [id for id in dict.fromkeys(chain(covered, sources)) if not differs((thread_id, id))]
    if not ids:
        return {}
    keys = state.keys.of(thread_id)
    columns = yield from send(*(("ZMSCORE", key, *ids) for key in (keys.superseded, keys.order)))
    rows = zip(ids, *columns, strict=True)
    found = {id: float(score) for id, *scores in rows for score in scores if score is not None}
    return {
        id: int(seq) for id, seq in found.items() if seq.is_integer()
    }  # an older version of a message has a fraction


def _steps(lines: Sequence[Observation]) -> Iterator[Sequence[Observation]]:
    """Cut lines into those that are written at a time: as many as the server takes about 10 ms for."""
    start, sources = 0, 0
    for at, one in enumerate(lines):
        if at - start == MOST_LINES or sources > MOST_CITED:
            yield lines[start:at]
            start, sources = at, 0
        sources += len(one.positions)
    yield lines[start:]


def _is_leaf(one: Observation) -> bool:
    return not one.parts


def _storable(
    thread_id: str, parts: Sequence[Part], positions: Mapping[str, int]
) -> tuple[list[Chunk], list[Observation]]:
    """Return what can be written of a log: observations whose messages are all there, and messages whose observations all are.

    They are numbered from 1. Finer ones take the place of those that are left out.
    """
    known = {one.number: one for part in parts for one in (*part.observations, *part.finer)}
    whole = dict[int, bool]()

    def is_whole(number: int) -> bool:
        if number not in whole:
            one = known.get(number)
            whole[number] = False  # also where an archive says that a line stands for itself
            whole[number] = (
                one is not None and all(id in positions for _, id in one.sources) and all(map(is_whole, [*_parts(one)]))
            )
        return whole[number]

    new, tried = dict[int, int](), set[int]()

    def take(number: int) -> int:
        """Number a line and those that it stands for."""
        if number not in new:
            new[number] = len(new) + 1
            for part in _parts(known[number]):
                take(part)
        return new[number]

    def expanded(numbers: Iterable[int]) -> Iterator[int]:
        for number in numbers:
            if is_whole(number):
                yield take(number)
            elif number in known and number not in tried:
                tried.add(number)
                yield from expanded(_parts(known[number]))

    listed = [ranges_of(expanded(one.number for one in part.observations)) for part in parts]
    kept = {id for number in new if _is_leaf(known[number]) for _, id in known[number].sources}
    lost = {id for number, one in known.items() if _is_leaf(one) and number not in new for _, id in one.sources} - kept
    chunks = [
        Chunk(
            encode(thread_id),
            ranges_of(positions[id] for id in part.covered if id in positions and id not in lost),
            numbers,
            part.level,
        )
        for part, numbers in zip(parts, listed, strict=True)
    ]
    lines = [
        replace(
            (one := known[number]),
            positions=tuple((thread_id, positions[id]) for _, id in one.sources),
            parts=one.parts if _is_leaf(one) else write_ranges(ranges_of(new[part] for part in _parts(one))),
        )
        for number in new
    ]
    return chunks, lines


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
    sources: Annotated[sections.Listed[_Source], Field(min_length=1, max_length=MOST_SOURCES)]
    number: Annotated[int, Field(ge=0, le=2**48)] = 0  # by which others name it as a part; 0: its id
    parts: Annotated[str, Field(pattern=r"^[0-9,-]*$")] = ""  # numbers of the finer observations that it stands for
    mentions: sections.Listed[_Source] = Field(default=[])  # in archives of version 2 and before

    def observation(self, thread_id: str) -> Observation:
        """Return it without positions. What tells of other threads, too, gets a source that is nowhere: it is left out."""
        sources = [(thread, id) for thread, id in dict.fromkeys(map(tuple, self.sources))]
        if self.mentions or any(thread != thread_id for thread, _ in sources):
            sources.append((thread_id, ""))
        fields = {name: getattr(self, name) for name in ("id", "text", "priority", "level", "parts")}
        return Observation(
            **fields, number=self.number or int(self.id), sources=sources, said_at=from_micros(self.said_at)
        )


class ChunkRecord(sections.Record):
    """A part of a log."""

    thread_id: sections.Id
    covered: sections.Listed[sections.Id]
    level: _Level
    observations: sections.Listed[LineRecord]
    finer: sections.Listed[LineRecord] = Field(default=[])  # those that the others stand for


class LogRecord(sections.Record, kind="observations"):
    """A log to write, unless there is one."""

    cites = True
    thread_id: sections.ThreadId | None = None  # None in archives of version 2 and before: the log of the user
    scope: Scope = "thread"
    chunks: sections.Listed[ChunkRecord]

    def model_post_init(self, _: Any, /) -> None:
        """Check that the ids differ, and that a log of a thread is about this one."""
        lines = [line for chunk in self.chunks for line in (*chunk.observations, *chunk.finer)]
        if len({line.id for line in lines}) < len(lines) or len({line.number or int(line.id) for line in lines}) < len(
            lines
        ):
            raise OptionError("an id of an observation occurs twice", remedy="use each number once")
        sources = (thread for line in lines for thread, _ in line.sources)
        others = {*(chunk.thread_id for chunk in self.chunks), *sources} - {self.thread_id}
        if self.thread_id is not None and others:
            seen = f"the log of thread {self.thread_id!r} is about {others.pop()!r}, too"
            raise OptionError(seen, remedy="leave that out")
        sections.check_size([line.text for line in lines], STEP_BYTES)

    def write(self, load: Any) -> Plan[None]:
        """Write it, unless this memory keeps its logs in another scope: then the messages are raw."""
        state, scope = load.state, "user" if self.thread_id is None else self.scope
        if state.observations is not None and state.observations.scope != scope:
            return
        threads: dict[str, list[Part]] = {}
        for one in self.chunks:
            own, finer = ([line.observation(one.thread_id) for line in some] for some in (one.observations, one.finer))
            threads.setdefault(one.thread_id, []).append(Part(one.covered, one.level, own, finer))
        for thread_id, parts in threads.items():
            plan = restore_log(state, thread_id, load.owner, parts, "import", load.differs, scope[0])
            try:
                load.counts["observations"] += yield from plan
            except (ThreadNotFoundError, ThreadOwnershipError) as error:  # deleted or transferred meanwhile
                _log.warning("%s; its observations are left out", error)
