"""Changes of a log by a person: correct or delete an observation, begin anew, go back to an earlier revision."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.effects import Plan, send
from langchain_workingmem._redis.keys import decode
from langchain_workingmem._redis.scripts import COVERAGE, Script
from langchain_workingmem._redis.sweeping import continue_sweep
from langchain_workingmem._text.ranges import contains, numbers_in, parse_ranges, ranges_of, write_ranges
from langchain_workingmem._text.unicode import visible
from langchain_workingmem.errors import (
    ObservationConflictError,
    ObservationNotFoundError,
    OptionError,
    Remedy,
    RevisionNotFoundError,
)
from langchain_workingmem.observations.documents import change_documents
from langchain_workingmem.observations.log import Chunk, parse_manifest, write_manifest, write_observation
from langchain_workingmem.observations.outbox import OUTBOX
from langchain_workingmem.observations.reading import find_log_key, read, recount

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Observation, ObservationLog
    from langchain_workingmem.observations.reading import LogKey, Read

CHANGE = Script("observations/change", *COVERAGE)
ATTEMPTS = 100  # of a change that meets others
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
) -> Plan[tuple[int, int]]:
    """Replace a manifest, or its beginning, unless it has changed since it was read. One round trip.

    Returns 1, 0 if it has changed, or -1 if a revision is not kept; and what `renew_ttl` returns.
    """
    values = [write_observation(one) for one in new]
    call = CHANGE.call(where.keys, where.owner, origin, int(whole), expected, manifest, len(values), *values, *usage)
    ((status, left),) = yield from where.run(call)
    return int(status), int(left)


def update(
    state: MemoryState, observation_id: str, text: str, thread_id: str | None, resource_id: str | None
) -> Plan[ObservationLog]:
    """Plan `Observations.update`."""
    if not isinstance(text, str) or not (line := " ".join(visible(text).split())):
        raise OptionError(f"text={text!r}", remedy=Remedy("pass one line of text, or {delete}"))

    def make(found: Read) -> tuple[str, list[Observation]]:
        old = _found(found.log, observation_id)
        if old.text == line:
            return found.known.present, []
        return _split(found.known.present, old.number, NEW), [replace(old, text=line)]

    return (yield from _changed(state, thread_id, resource_id, "update", make))


def delete(
    state: MemoryState, observation_id: str, thread_id: str | None, resource_id: str | None
) -> Plan[ObservationLog]:
    """Plan `Observations.delete`."""

    def make(found: Read) -> tuple[str, list[Observation]]:
        return _split(found.known.present, _found(found.log, observation_id).number, ""), []

    return (yield from _changed(state, thread_id, resource_id, "delete", make))


def clear(state: MemoryState, thread_id: str | None, resource_id: str | None) -> Plan[ObservationLog]:
    """Plan `Observations.clear`."""
    return (yield from _changed(state, thread_id, resource_id, "clear", lambda _: ("", [])))


def revert(state: MemoryState, revision: int, thread_id: str | None, resource_id: str | None) -> Plan[ObservationLog]:
    """Plan `Observations.revert`."""
    where = yield from find_log_key(state, thread_id, resource_id)
    yield from read(state, where)  # which checks the owner
    (kept,) = yield from send(("HGET", where.name, f"rev:{revision}"))
    if kept is None:
        raise RevisionNotFoundError(revision, "history")
    manifest = kept.decode().rpartition("|")[2]
    return (yield from _changed(state, thread_id, resource_id, "revert", lambda _: (manifest, []), revision))


def _changed(
    state: MemoryState,
    thread_id: str | None,
    resource_id: str | None,
    origin: str,
    make: Callable[[Read], tuple[str, list[Observation]]],
    revision: int | None = None,
) -> Plan[ObservationLog]:
    """Change a log, again if others change it meanwhile. Four round trips; for a resource two more for each thread.

    With recall one more for each 100 observations that are new in the log.
    """
    where = yield from find_log_key(state, thread_id, resource_id)
    before: list[Observation] | None = None
    for _ in range(ATTEMPTS):
        found = yield from read(state, where)
        present, is_first = found.known.present, before is None
        before = found.known.ordered() if before is None else before
        try:
            manifest, new = make(found)
        except ObservationNotFoundError:
            if is_first or origin != "delete":
                raise
            manifest = present  # it is deleted: by this call, whose reply was lost, or by another
        if manifest == present:
            if not is_first:
                yield from change_documents(state, before, found.known.ordered())
            return found.log
        yield from _cover(state, where, present, manifest, shrink=True)
        # messages may be deleted meanwhile, so the script looks up what an older revision holds
        status, left = yield from change(where, origin, present, manifest if revision is None else f"#{revision}", new)
        if status < 0 and revision is not None:
            raise RevisionNotFoundError(revision, "history")
        if status:
            if where.thread_id is not None:
                yield from continue_sweep(state, where.thread_id, left)
            yield from _cover(state, where, present, manifest, shrink=False)
            if where.thread_id is None:
                yield from recount(state, where, map(decode, _covered(present) | _covered(manifest)))
            after = yield from read(state, where)
            if manifest:  # else nothing is covered, and all documents are gone
                yield from change_documents(state, before, after.known.ordered())
            return after.log
    raise ObservationConflictError


def _cover(state: MemoryState, where: LogKey, present: str, manifest: str, *, shrink: bool) -> Plan[None]:
    """Tell the threads of a resource what its log covers now. One round trip, or none where that stays the same.

    What is covered shrinks before the log changes and grows after it: meanwhile messages are shown as they are.
    """
    if where.thread_id is not None:
        return
    before, after = _covered(present), _covered(manifest)
    calls = []
    for tag in before.keys() | after.keys():
        old, new = before[tag], after[tag]
        wanted = old & new if shrink else new
        if wanted != (old if shrink else old & new):
            calls.append(OUTBOX.call(state.keys.of(decode(tag)).all, "cover", write_ranges(ranges_of(wanted))))
    if calls:
        yield from send(*calls)


def _covered(manifest: str) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for chunk in filter(None, manifest.split(";")):  # the numbers of new observations are not known yet
        tag, seqs, *_ = chunk.split("/")
        found[tag].update(numbers_in(parse_ranges(seqs)))
    return found


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
