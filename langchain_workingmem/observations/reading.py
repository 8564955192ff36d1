"""Plans that find and read a log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._engine.plan import attempt, send
from langchain_workingmem._redis.access import check_owner, owner_tag, run_script
from langchain_workingmem._redis.codec import decode_message, from_micros
from langchain_workingmem._redis.keys import FROM_WHERE, check_id, decode, encode
from langchain_workingmem._redis.scripts import COMMON, Script
from langchain_workingmem._text.observed import Kept, tokens_of
from langchain_workingmem._text.ranges import parse_ranges
from langchain_workingmem.checks import check_range
from langchain_workingmem.errors import IdError, ObservationNotFoundError, OptionError, RedisReplyError
from langchain_workingmem.models import ObservationLog, RecallHit, RecallResult, StoredMessage
from langchain_workingmem.observations.log import (
    COVERAGE,
    READS_LOG,
    KnownLog,
    Remembered,
    known_log,
    learn,
    read_usage,
    remove_from_user,
)
from langchain_workingmem.recall import result_with_media

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langchain_workingmem._engine.plan import Command, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Observation
    from langchain_workingmem.options import ObservationOptions, Scope

READ = Script("observations/read", *COVERAGE)
SOURCES = Script("observations/sources", "header")
WAITING = Script("observations/waiting", *COMMON)
READ_USER = Script("observations/read_user", *READS_LOG)
READ_PART = Script("observations/read_part", *READS_LOG)
MOST_THREADS = 1000  # of a user, with the newest lines, whose logs are read


class LogKey(NamedTuple):
    """Where a log is: that of a thread, or without a `thread_id` that of a user, which consists of the logs of the threads."""

    keys: tuple[str, ...]  # of a script
    thread_id: str | None
    user_id: str | None

    @property
    def name(self) -> str:
        """Return the key that holds the lease of the observer: of a thread it is the log, too."""
        return self.keys[1] if self.thread_id is None else self.keys[11]

    @property
    def owner(self) -> str:
        """Return the user as scripts take it."""
        return owner_tag(self.user_id)

    def told(self, name: str) -> dict[str, Any]:
        """Return what callbacks are told of a call of a model."""
        ids = {"thread_id": self.thread_id, "user_id": self.user_id}
        return {"run_name": name, "metadata": {key: id for key, id in ids.items() if id is not None}}

    def run(self, *calls: Command) -> Plan[list[Any]]:
        """Send calls of scripts for this log. One round trip."""
        return run_script(self.thread_id or "", self.user_id, *calls)


class Read(NamedTuple):
    """The log of a thread as it was read."""

    known: KnownLog
    log: ObservationLog


def of_thread(state: MemoryState, thread_id: str, user_id: str | None) -> LogKey:
    """Return the log of a thread."""
    return LogKey(state.keys.of(thread_id), thread_id, user_id)


def observing(state: MemoryState) -> ObservationOptions:
    """Return the options; `OptionError` if observations are off."""
    if state.observations is None:
        raise OptionError("observations are off", remedy="pass observations=ObservationOptions(model=...) to Memory")
    return state.observations


def scope_of(state: MemoryState) -> str:
    """Return the scope as scripts take it."""
    return "u" if state.observations is not None and state.observations.scope == "user" else "t"


def log_key(state: MemoryState, thread_id: str, user_id: str | None) -> LogKey:
    """Return the log that a thread writes into."""
    if scope_of(state) == "t":
        return of_thread(state, thread_id, user_id)
    return LogKey(state.keys.log_of_user(user_id or ""), None, user_id)


def find_log_key(state: MemoryState, thread_id: str | None, user_id: str | None) -> Plan[LogKey]:
    """Find the log that the ids mean. One round trip where the owner of a thread is looked up, else none.

    Without options, which reading does not need, a thread_id means the log of the thread.
    """
    if thread_id is not None:
        check_id(thread_id, "thread_id")
    if user_id is not None:
        check_id(user_id, "user_id")
    options = state.observations
    scope: Scope = options.scope if options else "user" if thread_id is None else "thread"
    if scope == "thread":
        if thread_id is None:
            raise IdError("the log of a thread needs a thread_id", remedy=FROM_WHERE.format("thread_id"))
        return of_thread(state, thread_id, user_id)
    if thread_id is not None:
        (tag,) = yield from send(("HGET", state.keys.of(thread_id).thread, "user"))
        check_owner(tag, thread_id, user_id)
        user_id = user_id or (thread_id if tag is None else decode(tag))
    if user_id is None:
        raise IdError("the log of a user needs a user_id", remedy=FROM_WHERE.format("user_id"))
    return LogKey(state.keys.log_of_user(user_id), None, user_id)


def read_thread_log(state: MemoryState, where: LogKey) -> Plan[Read]:
    """Read the log of a thread. One round trip, and one more for each 2,000 messages that are not covered."""
    known = known_log(state, where.name)
    (reply,) = yield from where.run(READ.call(where.keys, where.owner, known.version, known.next_number, 0))
    pending = yield from _counted(where, reply)
    log, covered, _, usage, made, _ = reply
    known = yield from learn(state, where.name, log, known)
    found = known.shown(covered.decode())
    until = covered_until({where.thread_id or "": covered.decode()})
    return Read(known, as_log(found, known.revision, pending, until, usage, made))


def _counted(where: LogKey, reply: Sequence[Any]) -> Plan[int]:
    """Return the tokens that are not covered, given the first reply of `read.lua`. A round trip for each further reply."""
    tokens = int(reply[2])
    while begin := reply[5]:
        (reply,) = yield from where.run(READ.call(where.keys, where.owner, reply[0][0], 0, begin))
        tokens += int(reply[2])
    return tokens


def read(state: MemoryState, where: LogKey) -> Plan[ObservationLog]:
    """Read the log of a thread or a user. One round trip; for a user two in a cluster."""
    if where.thread_id is not None:
        return (yield from read_thread_log(state, where)).log
    return log_of_user(state, where.user_id or "", (yield from read_user(state, where.user_id or "")))


def log_of_user(state: MemoryState, user_id: str, user: UserLog) -> ObservationLog:
    """Return the log of a user as it was read."""
    found = merged(state, user_id, user.parts)
    until = covered_until({part.thread_id: part.covered for part in user.parts})
    made = max((part.made for part in user.parts), key=lambda one: int(one[0] or 0), default=(b"", b""))
    return as_log(found, user.revision, user.waiting, until, user.usage, made)


def covered_until(covered: Mapping[str, str]) -> dict[str, int]:
    """Return the last position of each thread that its log covers."""
    return {thread: ranges[-1][1] for thread, text in covered.items() if (ranges := parse_ranges(text))}


def as_log(
    found: Sequence[Observation],
    revision: int,
    pending: int,
    until: dict[str, int],
    usage: Sequence[bytes],
    made: Sequence[bytes] = (b"", b""),
) -> ObservationLog:
    """Return the record that callers see."""
    return ObservationLog(
        observations=[*found],
        tokens=tokens_of(found),
        revision=revision,
        pending_tokens=max(0, pending),
        covered_until=until,
        usage=read_usage(usage),
        updated_at=from_micros(made[0]) if made[0] else None,
        origin=made[1].decode() or None,
    )


def recount(state: MemoryState, where: LogKey, thread_ids: Iterable[str]) -> Plan[None]:
    """Count anew what waits in threads of a user. Two round trips, none without threads; more where much is not covered."""
    ids = [*thread_ids]
    calls = [READ.call(state.keys.of(id), where.owner, "", 0, 0) for id in ids]
    replies = (yield from attempt(*calls)) if calls else []
    counted = dict.fromkeys(ids, 0)
    for id, reply in zip(ids, replies, strict=True):
        if not isinstance(reply, RedisReplyError):
            counted[id] = yield from _counted(of_thread(state, id, where.user_id), reply)
    if counted:
        yield from where.run(
            *(WAITING.call(where.keys, encode(id), tokens, "set", 0, "") for id, tokens in counted.items())
        )


def read_log(state: MemoryState, thread_id: str | None, user_id: str | None) -> Plan[ObservationLog]:
    """Plan `Observations.get`."""
    return (yield from read(state, (yield from find_log_key(state, thread_id, user_id))))


def sources(
    state: MemoryState,
    observation_id: str,
    thread_id: str | None,
    user_id: str | None,
    message_range: int | tuple[int, int],
) -> Plan[RecallResult]:
    """Plan `Observations.sources`."""
    window = check_range(message_range)
    where = yield from find_log_key(state, thread_id, user_id)
    log = yield from read(state, where)
    found = next((one for one in log.observations if one.id == observation_id), None)
    if found is None:
        raise ObservationNotFoundError(observation_id)
    return (yield from read_sources(state, found, where.owner, window))


def read_sources(
    state: MemoryState, observation: Observation, owner: str, window: tuple[int, int]
) -> Plan[RecallResult]:
    """Read the messages behind an observation, with those around them. One round trip."""
    id = observation.positions[0][0]
    seqs = sorted(seq for _, seq in observation.positions)
    (reply,) = yield from send(SOURCES.call(state.keys.of(id).all, owner, *window, *seqs))
    hits: list[RecallHit] = []
    rows: dict[int, StoredMessage] = {}
    title, parts = (reply[0].decode() or None, reply[1:]) if reply else (None, [])
    for front, own, back in zip(parts[1::4], parts[2::4], parts[3::4], strict=True):
        before, (row,), after = (_rows(some, id) for some in (front, own, back))
        rows |= {one.seq: one for one in (*before, row, *after)}
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
    result = RecallResult(hits=hits, rows=[rows[seq] for seq in sorted(rows)])
    return (yield from result_with_media(state, result))


def _rows(reply: list[Any], thread_id: str) -> list[StoredMessage]:
    columns = (reply[start::3] for start in range(3))
    return [decode_message(id, seq, value, thread_id) for id, seq, value in zip(*columns, strict=True)]


# ---------------------------------------------------------------------- the log of a user
# It consists of the logs of the user's threads, merged by time; no copy of them is kept. An index in the slot of the user names the
# threads that an observer has worked on; what a thread's own log does not hold any more, nobody sees. Observations are named
# <thread as a tag>:<id in the log of the thread> here.


class Part(NamedTuple):
    """The log of one thread of a user."""

    thread_id: str
    known: KnownLog
    hidden: str  # what is covered on other branches only
    covered: str  # on the current branch
    made: Sequence[bytes] = (b"", b"")  # time (us) and origin of the present revision
    title: str = ""
    digest: str = ""  # of the title, as scripts write it

    def shown(self) -> Sequence[Observation]:
        """Return the observations that are shown."""
        return self.known.shown(self.covered)

    def as_read(self) -> tuple[str, int, str, str]:
        """Return what scripts are told of it."""
        return self.known.version, self.known.next_number, self.hidden, self.digest


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
    known: Mapping[str, Part]  # by thread as a tag


def ask_user(state: MemoryState, user_id: str, without: str = "") -> Asked:
    """Return the question for all logs of a user, or those of other threads than one."""
    known = state.room(Remembered).users.get(user_id) or {}
    told = "".join(f"{tag}/{'/'.join(map(str, one.as_read()))};" for tag, one in known.items())
    owner, own = encode(user_id), encode(without)
    keys = state.keys.log_of_user(user_id)
    return Asked(READ_USER.call(keys, state.keys.prefix, owner, own, MOST_THREADS, told), known)


def read_reply(
    state: MemoryState, user_id: str, asked: Asked, reply: Sequence[Any], without: str = ""
) -> Plan[UserLog]:
    """Read the reply to a question. No round trip; one in a cluster."""
    usage, waiting, is_spread, tags, rows = reply
    names = [tag.decode() for tag in tags]
    owner, own = encode(user_id), encode(without)
    found = dict(asked.known)
    if is_spread:
        parts = {tag: found.get(tag) or Part(decode(tag), KnownLog(), "", "") for tag in names if tag != own}
        calls = [READ_PART.call(state.keys.of(one.thread_id), tag, owner, *one.as_read()) for tag, one in parts.items()]
        rows = (yield from send(*calls)) if calls else []
    for row in rows:
        if isinstance(row, bytes):  # it has not changed
            continue
        tag, *read = row
        name, id = tag.decode(), decode(tag)
        before = found.pop(name, None)
        if read:
            hidden, covered, log, made, title, digest = read
            known = yield from learn(state, state.keys.of(id).observations, log, before.known if before else KnownLog())
            found[name] = Part(id, known, hidden.decode(), covered.decode(), made, title.decode(), digest.decode())
    found = {tag: found[tag] for tag in names if tag in found}
    state.room(Remembered).users.put(user_id, found)
    return UserLog([part for tag, part in found.items() if tag != own], names, usage, int(waiting))


def read_user(state: MemoryState, user_id: str) -> Plan[UserLog]:
    """Read the logs of a user. One round trip, two in a cluster; one more where threads of the index are gone."""
    asked = ask_user(state, user_id)
    (reply,) = yield from send(asked.command)
    found = yield from read_reply(state, user_id, asked, reply)
    if gone := sorted({*map(decode, found.tags)} - {part.thread_id for part in found.parts}):
        threads = yield from send(*(("EXISTS", state.keys.of(id).thread) for id in gone))
        if lost := [id for id, is_there in zip(gone, threads, strict=True) if not is_there]:
            yield from remove_from_user(state, user_id, *lost)
    return found


def merged(state: MemoryState, user_id: str, parts: Sequence[Part]) -> Kept[Observation]:
    """Return the observations of logs in the order of what was said; the same object as long as nothing changes."""
    parts = sorted(parts, key=attrgetter("thread_id"))  # which decides where two were said at the same time
    key = tuple((part.thread_id, part.known.version, part.covered, part.title) for part in parts)
    before = state.room(Remembered).merged.get(user_id)
    if before is None or before[0] != key:
        rows = [named(part.thread_id, one) for part in parts for one in part.shown()]
        before = key, Kept(sorted(rows, key=attrgetter("said_at")))
        before[1].titles = {part.thread_id: part.title for part in parts}
        state.room(Remembered).merged.put(user_id, before)
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
