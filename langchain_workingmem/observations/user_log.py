"""The log of a user: the logs of the user's threads, merged by time. No copy of them is kept.

An index in the slot of the user names the threads that an observer has worked on; what a thread's own log does not hold any
more, nobody sees. Observations are named <thread as a tag>:<id in the log of the thread> here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._engine.effects import send
from langchain_workingmem._redis.keys import decode, encode
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.observed import Kept
from langchain_workingmem.errors import ObservationNotFoundError
from langchain_workingmem.observations.log import KnownLog, Remembered, known_log, learn
from langchain_workingmem.observations.scripts import READS_LOG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.effects import Command, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Observation

READ_USER = Script("observations/read_user", *READS_LOG)
READ_PART = Script("observations/read_part", *READS_LOG)
MOST_THREADS = 1000  # with the newest lines, whose logs are read


class Part(NamedTuple):
    """The log of one thread of a user."""

    thread_id: str
    known: KnownLog
    covered: str  # on the current branch
    made: Sequence[bytes] = (b"", b"")  # time (us) and origin of the present revision

    def shown(self) -> Sequence[Observation]:
        """Return the observations that are shown."""
        return self.known.shown(self.covered)


@dataclass(frozen=True, slots=True)
class UserLog:
    """The logs of a user's threads as they were read, those with the newest lines first."""

    parts: Sequence[Part]
    tags: Sequence[str]  # of the index
    usage: Sequence[bytes]
    waiting: int

    @property
    def revision(self) -> int:
        """Return how many revisions the logs have had."""
        return sum(part.known.revision for part in self.parts)


class Asked(NamedTuple):
    """A question for the log of a user, and what was known when it was asked."""

    command: Command
    known: dict[str, KnownLog]  # by thread as a tag


def ask_user(state: MemoryState, resource_id: str, without: str = "") -> Asked:
    """Return the question for all logs of a user, or those of other threads than one."""
    known = {
        tag: known_log(state, state.keys.of(decode(tag)).observations)
        for tag in state.room(Remembered).users.get(resource_id) or ()
    }
    told = ";".join(f"{tag}/{one.version}/{one.next_number}" for tag, one in known.items())
    owner, own = encode(resource_id), encode(without)
    keys = state.keys.log_of_resource(resource_id)
    return Asked(READ_USER.call(keys, state.keys.prefix, owner, own, MOST_THREADS, told), known)


def read_reply(
    state: MemoryState, resource_id: str, asked: Asked, reply: Sequence[Any], without: str = ""
) -> Plan[UserLog]:
    """Read the reply to a question. No round trip; one in a cluster, or where this process knows too little of a log."""
    usage, waiting, is_spread, tags, rows = reply
    names = [tag.decode() for tag in tags]
    owner = encode(resource_id)
    if is_spread:
        own = encode(without)
        wanted = {tag: asked.known.get(tag, KnownLog()) for tag in names if tag != own}
        rows = yield from _read_parts(state, owner, wanted)
    parts, unknown = [], {}
    for tag, *row in rows:
        thread_id = decode(tag)
        key = state.keys.of(thread_id).observations
        if not row:
            state.room(Remembered).logs.pop(key)
            continue
        known = learn(state, key, row[1], asked.known.get(tag.decode(), KnownLog()))
        if known.is_whole:
            parts.append(Part(thread_id, known, row[0].decode(), row[2]))
        else:
            unknown[tag.decode()] = KnownLog()
    for tag, *row in (yield from _read_parts(state, owner, unknown)) if unknown else ():
        if row:
            key = state.keys.of(decode(tag)).observations
            parts.append(Part(decode(tag), learn(state, key, row[1], KnownLog()), row[0].decode(), row[2]))
    state.room(Remembered).users.put(resource_id, names)
    return UserLog(parts, names, usage, int(waiting))


def _read_parts(state: MemoryState, owner: str, known: dict[str, KnownLog]) -> Plan[list[Any]]:
    calls = [
        READ_PART.call(state.keys.of(decode(tag)), tag, owner, one.version, one.next_number)
        for tag, one in known.items()
    ]
    return (yield from send(*calls)) if calls else []


def read_user(state: MemoryState, resource_id: str) -> Plan[UserLog]:
    """Read the logs of a user. One round trip, two in a cluster; one more where threads of the index are gone."""
    asked = ask_user(state, resource_id)
    (reply,) = yield from send(asked.command)
    found = yield from read_reply(state, resource_id, asked, reply)
    gone = {*found.tags} - {encode(part.thread_id) for part in found.parts}
    if gone:
        _, _, index = state.keys.log_of_resource(resource_id)
        threads = yield from send(*(("EXISTS", state.keys.of(decode(tag)).thread) for tag in sorted(gone)))
        if lost := [tag for tag, is_there in zip(sorted(gone), threads, strict=True) if not is_there]:
            yield from send(("ZREM", index, *lost))
    return found


def merged(state: MemoryState, resource_id: str, parts: Sequence[Part]) -> Kept[Observation]:
    """Return the observations of logs in the order of what was said; the same object as long as nothing changes."""
    parts = sorted(parts, key=attrgetter("thread_id"))  # which decides where two were said at the same time
    key = tuple((part.thread_id, part.known.version, part.covered) for part in parts)
    before = state.room(Remembered).merged.get(resource_id)
    if before is None or before[0] != key:
        rows = [named(part.thread_id, one) for part in parts for one in part.shown()]
        before = key, Kept(sorted(rows, key=attrgetter("said_at")))
        state.room(Remembered).merged.put(resource_id, before)
    return before[1]


def named(thread_id: str, observation: Observation) -> Observation:
    """Return an observation of a thread as the log of the user names it."""
    return replace(observation, id=f"{encode(thread_id)}:{observation.id}")


def split_id(observation_id: str) -> tuple[str, str]:
    """Return the thread of an observation in the log of a user, and its id in the log of the thread."""
    tag, colon, id = observation_id.rpartition(":")
    if not colon:
        raise ObservationNotFoundError(observation_id)
    return decode(tag), id
