"""Changes of a log by a person: correct or delete an observation, begin anew, go back to an earlier revision."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._engine.effects import Plan, send
from langchain_workingmem._redis.access import continue_sweep
from langchain_workingmem._redis.codec import as_dict, from_micros
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.observed import tokens_of
from langchain_workingmem._text.ranges import contains, numbers_in, ranges_of, write_ranges
from langchain_workingmem._text.unicode import visible
from langchain_workingmem.checks import at_least
from langchain_workingmem.errors import (
    ObservationConflictError,
    ObservationNotFoundError,
    OptionError,
    Remedy,
    RevisionNotFoundError,
    ThreadNotFoundError,
    ThreadOwnershipError,
)
from langchain_workingmem.models import ObservationUsage
from langchain_workingmem.observations.documents import index_documents, reindex_documents
from langchain_workingmem.observations.log import (
    COVERAGE,
    Chunk,
    KnownLog,
    parse_manifest,
    read_observation,
    without_replaced,
    write_manifest,
    write_observation,
)
from langchain_workingmem.observations.reading import (
    find_log_key,
    log_of_user,
    named,
    of_thread,
    read,
    read_thread_log,
    read_user,
    recount,
    split_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from langchain_workingmem._engine.effects import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Observation, ObservationLog
    from langchain_workingmem.observations.reading import LogKey, Read

CHANGE = Script("observations/change", *COVERAGE)
DROP = Script("observations/drop", *COVERAGE)
KEPT = 20  # revisions that are kept, as in log.lua
ATTEMPTS = 100  # of a change that meets others
FEW = 50  # lines whose documents of recall go in the step that takes the lines out of the log
NEW = "@"  # in a manifest: the numbers of new observations


def change(
    where: LogKey,
    origin: str,
    expected: str,
    manifest: str,
    new: Sequence[Observation] = (),
    usage: Sequence[Any] = (),
    *,
    whole: bool = True,
    run: Callable[[Command], Plan[list[Any]]] | None = None,
) -> Plan[tuple[int, int]]:
    """Replace a manifest, or its beginning, unless it has changed since it was read. One round trip.

    Returns 1, 0 if it has changed, or -1 if a revision is not kept; and what `renew_ttl` returns.
    """
    values = [write_observation(one) for one in new]
    call = CHANGE.call(where.keys, where.owner, origin, int(whole), expected, manifest, len(values), *values, *usage)
    ((status, left),) = yield from (run or where.run)(call)
    return int(status), int(left)


def update(
    state: MemoryState, observation_id: str, text: str, thread_id: str | None, resource_id: str | None
) -> Plan[ObservationLog]:
    """Plan `Observations.update`."""
    if not isinstance(text, str) or not (line := " ".join(visible(text).split())):
        raise OptionError(f"text={text!r}", remedy=Remedy("pass one line of text, or {delete}"))

    def make(found: Read, id: str) -> tuple[str, list[Observation]]:
        old = _found(found.log, id)
        if old.text == line:
            return found.known.present, []
        return _split(found.known.present, old.number, NEW), [replace(old, text=line)]

    return (yield from _corrected(state, thread_id, resource_id, observation_id, "update", make))


def delete(
    state: MemoryState, observation_id: str, thread_id: str | None, resource_id: str | None
) -> Plan[ObservationLog]:
    """Plan `Observations.delete`."""

    def make(found: Read, id: str) -> tuple[str, list[Observation]]:
        return _split(found.known.present, _found(found.log, id).number, ""), []

    return (yield from _corrected(state, thread_id, resource_id, observation_id, "delete", make))


def _corrected(
    state: MemoryState,
    thread_id: str | None,
    resource_id: str | None,
    observation_id: str,
    origin: str,
    make: Callable[[Read, str], tuple[str, list[Observation]]],
) -> Plan[ObservationLog]:
    """Change one observation in the log of its thread, and return the log that the caller means."""
    if not isinstance(observation_id, str):
        seen = f"observation_id is of type {type(observation_id).__name__}"
        raise OptionError(seen, remedy="pass the id of one observation, a str")
    where = yield from find_log_key(state, thread_id, resource_id)
    own, id = where, observation_id
    if where.thread_id is None:
        thread, id = split_id(observation_id)
        own = of_thread(state, thread, where.resource_id)
    try:
        log = yield from _changed(state, own, origin, lambda found: make(found, id))
    except (ObservationNotFoundError, ThreadNotFoundError, ThreadOwnershipError):
        if where is own:
            raise
        raise ObservationNotFoundError(observation_id) from None
    return log if where is own else (yield from read(state, where))


def clear(state: MemoryState, thread_id: str | None, resource_id: str | None) -> Plan[ObservationLog]:
    """Plan `Observations.clear`."""
    where = yield from find_log_key(state, thread_id, resource_id)
    threads = [where] if where.thread_id is not None else (yield from _read(state, where))[1]
    return (yield from _change_each(state, where, "clear", [(own, 0, "") for own in threads]))


def _read(state: MemoryState, where: LogKey) -> Plan[tuple[ObservationLog, list[LogKey]]]:
    """Read a log, and return also the logs of the threads that it consists of. The round trips of `read`."""
    if where.thread_id is not None:
        return (yield from read(state, where)), [where]
    owner = where.resource_id or ""
    user = yield from read_user(state, owner)
    return log_of_user(state, owner, user), [of_thread(state, part.thread_id, owner) for part in user.parts]


class Revision(NamedTuple):
    """A revision of a log: for each of its threads, the revision of the log of the thread and its manifest."""

    number: int
    origin: str
    at: int  # us since the epoch
    threads: Mapping[str, tuple[int, str]]


def _revisions(threads: Sequence[LogKey]) -> Plan[tuple[list[Revision], dict[str, KnownLog]]]:
    """Return the kept revisions of a log, the newest first, and what is stored of each of its threads. One round trip."""
    replies = (yield from send(*(("HGETALL", own.name) for own in threads))) if threads else []
    found: dict[str, KnownLog] = {}
    changes: list[tuple[int, str, int, str, str]] = []  # time, thread, number, origin, manifest
    present: dict[str, tuple[int, str]] = {}
    for own, reply in zip(threads, replies, strict=True):
        row, thread = as_dict(reply), own.thread_id or ""
        found[thread] = KnownLog(
            observations={
                int(name[2:]): read_observation(int(name[2:]), row[name]) for name in row if name.startswith(b"o:")
            },
            gone={int(name[2:]): row[name].decode() for name in row if name.startswith(b"x:")},
        )
        for name in row:
            if name.startswith(b"rev:"):
                origin, at, manifest = row[name].decode().split("|")
                changes.append((int(at), thread, int(name[4:]), origin, manifest))
        present[thread] = int(row.get(b"revision", 0)), row.get(b"present", b"").decode()
    number = sum(revision for revision, _ in present.values())
    kept = {(thread, own): manifest for _, thread, own, _, manifest in changes}
    revisions = []
    for at, thread, changed, origin, _ in sorted(changes, reverse=True)[:KEPT]:
        revisions.append(Revision(number, origin, at, dict(present)))
        number -= 1
        present[thread] = changed - 1, kept.get((thread, changed - 1), "")
    return revisions, found


def history(
    state: MemoryState, thread_id: str | None, resource_id: str | None, limit: int
) -> Plan[list[ObservationLog]]:
    """Plan `Observations.history`. Two round trips, and one more where the owner of a thread is looked up."""
    at_least(limit, 1, "limit")
    where = yield from find_log_key(state, thread_id, resource_id)
    now, threads = yield from _read(state, where)
    revisions, found = yield from _revisions(threads)
    logs = []
    for one in revisions[:limit]:
        shown: list[Observation] = []
        until = {}
        for thread, (_, manifest) in sorted(one.threads.items()):
            chunks = parse_manifest(manifest)
            own = without_replaced(found[thread].listed(manifest))
            shown += own if where.thread_id is not None else [named(thread, each) for each in own]
            if last := max((chunk.seqs[-1][1] for chunk in chunks if chunk.seqs), default=0):
                until[thread] = last
        if where.thread_id is None:
            shown.sort(key=attrgetter("said_at"))
        logs.append(
            replace(
                now,
                observations=shown,
                tokens=tokens_of(shown),
                revision=one.number,
                updated_at=from_micros(one.at),
                origin=one.origin,
                covered_until=until,
                usage=ObservationUsage() if one.number != now.revision else now.usage,
            )
        )
    return logs


def revert(state: MemoryState, revision: int, thread_id: str | None, resource_id: str | None) -> Plan[ObservationLog]:
    """Plan `Observations.revert`."""
    where = yield from find_log_key(state, thread_id, resource_id)
    _, threads = yield from _read(state, where)  # which checks the owner
    revisions, _ = yield from _revisions(threads)
    wanted = next((one for one in revisions if one.number == revision), None)
    if wanted is None:
        raise RevisionNotFoundError(revision, "history")
    # messages may be deleted meanwhile, so the script looks up what an older revision holds
    return (
        yield from _change_each(
            state, where, "revert", [(own, *wanted.threads[own.thread_id or ""]) for own in threads]
        )
    )


def _change_each(
    state: MemoryState, where: LogKey, origin: str, threads: Sequence[tuple[LogKey, int, str]]
) -> Plan[ObservationLog]:
    """Give each thread of a log a manifest, that of a revision (0: none), and return the log."""
    for own, revision, manifest in threads:
        log = yield from _changed(state, own, origin, partial(_whole, manifest), revision)
    if where.thread_id is not None:
        return log
    yield from recount(state, where, [own.thread_id or "" for own, _, _ in threads])
    return (yield from read(state, where))


def _whole(manifest: str, _: Read) -> tuple[str, list[Observation]]:
    return manifest, []


def _changed(
    state: MemoryState,
    where: LogKey,
    origin: str,
    make: Callable[[Read], tuple[str, list[Observation]]],
    revision: int = 0,
) -> Plan[ObservationLog]:
    """Change the log of a thread, again if others change it meanwhile. Three round trips; more where many lines go.

    With recall one more, and two for each 100 observations that are new in the log.
    """
    is_one = origin in {"update", "delete"}
    for attempt in range(ATTEMPTS):
        found = yield from read_thread_log(state, where)
        present = found.known.present
        try:
            manifest, new = make(found)
        except ObservationNotFoundError:
            if not attempt or origin != "delete":
                raise
            manifest = present  # it is deleted: by this call, whose reply was lost, or by another
        if manifest != present:
            if not is_one:
                yield from _drop_documents(where, present, manifest)
            wanted = f"#{revision}" if revision else manifest
            status, left = yield from change(where, origin, present, wanted, new)
            if status < 0:
                raise RevisionNotFoundError(revision, "history")
            if not status:
                continue
            yield from continue_sweep(state, where.thread_id or "", left)
            found = yield from read_thread_log(state, where)
        elif not attempt:
            return found.log
        if state.recall is not None and found.log.observations:
            if is_one:
                made = {(one.text, *one.positions) for one in new}
                some = [one for one in found.log.observations if (one.text, *one.positions) in made]
                yield from index_documents(state, where.thread_id or "", some)
            else:
                yield from reindex_documents(state, where.thread_id or "", log=found.log)
        return found.log
    raise ObservationConflictError


def _drop_documents(where: LogKey, before: str, after: str) -> Plan[None]:
    """Delete the documents of recall of many lines that a log is about to lose. A round trip for each 200, none for a few."""
    listed, kept = (
        {number for chunk in parse_manifest(one) for number in numbers_in(chunk.numbers)} for one in (before, after)
    )
    rest = write_ranges(ranges_of(listed - kept)) if len(listed - kept) > FEW else ""
    while rest:
        (left,) = yield from where.run(DROP.call(where.keys, where.owner, after, rest))
        rest = left.decode()


def _found(log: ObservationLog, observation_id: str) -> Observation:
    for one in log.observations:
        if one.id == observation_id:
            return one
    raise ObservationNotFoundError(observation_id)


def _split(present: str, number: int, instead: str) -> str:
    """Return a manifest in which something else stands instead of a number."""
    chunks: list[str] = []
    for chunk in parse_manifest(present):
        if not contains(chunk.numbers, number):
            chunks.append(write_manifest([chunk]))
            continue
        own = [*numbers_in(chunk.numbers)]
        at = own.index(number)
        front = chunk._replace(numbers=ranges_of(own[:at]))
        back = Chunk(chunk.thread, (), ranges_of(own[at + 1 :]), chunk.level)
        middle = [f"{chunk.thread}//{instead}/{chunk.level}"] if instead else []
        chunks += [write_manifest([front]), *middle, write_manifest([back])]
    return ";".join(filter(None, chunks))
