"""Changes of a log by a person: delete an observation, begin anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_workingmem._redis.access import continue_sweep
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.ranges import contains, numbers_in, ranges_of
from langchain_workingmem.errors import (
    ObservationConflictError,
    ObservationNotFoundError,
    OptionError,
    ThreadNotFoundError,
    ThreadOwnershipError,
)
from langchain_workingmem.observations.log import COVERAGE, Chunk, parse_manifest, write_manifest, write_observation
from langchain_workingmem.observations.reading import (
    find_log_key,
    of_thread,
    read,
    read_thread_log,
    read_user,
    recount,
    split_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_workingmem._engine.plan import Command, Plan
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
    run: Callable[[Command], Plan[list[Any]]] | None = None,
) -> Plan[tuple[int, int]]:
    """Replace a manifest, or its beginning, unless it has changed since it was read. One round trip.

    Returns 1, or 0 if it has changed; and what `renew_ttl` returns.
    """
    values = [write_observation(one) for one in new]
    call = CHANGE.call(where.keys, where.owner, origin, int(whole), expected, manifest, len(values), *values, *usage)
    ((status, left),) = yield from (run or where.run)(call)
    return int(status), int(left)


def delete(state: MemoryState, observation_id: str, thread_id: str | None, user_id: str | None) -> Plan[ObservationLog]:
    """Plan `Observations.delete`."""
    if not isinstance(observation_id, str):
        seen = f"observation_id is of type {type(observation_id).__name__}"
        raise OptionError(seen, remedy="pass the id of one observation, a str")
    where = yield from find_log_key(state, thread_id, user_id)
    own, id = where, observation_id
    if where.thread_id is None:
        thread, id = split_id(observation_id)
        own = of_thread(state, thread, where.user_id)

    def without(found: Read) -> str:
        number = next((one.number for one in found.log.observations if one.id == id), None)
        if number is None:
            raise ObservationNotFoundError(observation_id)
        return _without(found.known.present, number)

    try:
        log = yield from _changed(state, own, "delete", without)
    except (ThreadNotFoundError, ThreadOwnershipError):
        if where is own:
            raise
        raise ObservationNotFoundError(observation_id) from None
    return log if where is own else (yield from read(state, where))


def clear(state: MemoryState, thread_id: str | None, user_id: str | None) -> Plan[ObservationLog]:
    """Plan `Observations.clear`."""
    where = yield from find_log_key(state, thread_id, user_id)
    if where.thread_id is not None:
        return (yield from _changed(state, where, "clear", lambda _: ""))
    owner = where.user_id or ""
    threads = [part.thread_id for part in (yield from read_user(state, owner)).parts]
    for one in threads:
        yield from _changed(state, of_thread(state, one, owner), "clear", lambda _: "")
    yield from recount(state, where, threads)
    return (yield from read(state, where))


def _changed(state: MemoryState, where: LogKey, origin: str, make: Callable[[Read], str]) -> Plan[ObservationLog]:
    """Give the log of a thread another manifest, again if others change it meanwhile. Three round trips."""
    for attempt in range(ATTEMPTS):
        found = yield from read_thread_log(state, where)
        present = found.known.present
        try:
            manifest = make(found)
        except ObservationNotFoundError:
            if not attempt:
                raise
            manifest = present  # it is deleted: by this call, whose reply was lost, or by another
        if manifest == present:
            return found.log
        status, left = yield from change(where, origin, present, manifest)
        if status:
            yield from continue_sweep(state, where.thread_id or "", left)
            return (yield from read_thread_log(state, where)).log
    raise ObservationConflictError


def _without(present: str, number: int) -> str:
    """Return a manifest without a number; its messages stay covered."""
    chunks: list[Chunk] = []
    for chunk in parse_manifest(present):
        if contains(chunk.numbers, number):
            left = ranges_of(one for one in numbers_in(chunk.numbers) if one != number)
            chunks.append(chunk._replace(numbers=left))
        else:
            chunks.append(chunk)
    return write_manifest(chunks)
