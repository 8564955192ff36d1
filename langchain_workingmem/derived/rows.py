"""Rows that a model has made of messages: they cite these, and are shown and deleted with them. `rows.lua` has the rules."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.access import owner_tag, read_reply
from langchain_workingmem._redis.keys import decode, encode
from langchain_workingmem._redis.scripts import READING, Script
from langchain_workingmem._redis.state import Recent
from langchain_workingmem.errors import ThreadNotFoundError, ThreadOwnershipError, UserDeletedError, WorkingMemError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState

SHOW, LEASE = Script("derived/show", *READING), Script("derived/lease", *READING)
COMMIT = Script("derived/commit", *READING, "derived/rows")
ROW_KINDS = ("observations", "keeping")  # of rows, and the wings that make them
NEWEST = 50  # threads of a user that a turn looks at
FIRST_PAUSE, LONGEST_PAUSE = 15_000, 900_000  # ms after a failure, doubled for each further one


@dataclass(frozen=True, slots=True)
class Ranges:
    """Seqs as ranges, rising."""

    pairs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def read(cls, text: str) -> Ranges:
        """Read ranges as scripts write them: 1-5,9-9."""
        pairs = (part.split("-") for part in text.split(",") if part)
        return cls(tuple(sorted((int(low), int(high)) for low, high in pairs)))

    def __contains__(self, seq: object) -> bool:
        if not isinstance(seq, int):
            return False
        at = bisect_right(self.pairs, (seq, inf)) - 1
        return at >= 0 and seq <= self.pairs[at][1]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


NOTHING = Ranges()


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a kind that a thread shows."""

    revision: str = ""  # <epoch>.<id of the last row>: within an epoch rows come only at the end
    missing_at: int | None = None  # ms: there was no thread then
    expires: int | None = None  # ms: when its time is over at the earliest
    covered: Ranges = NOTHING
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)  # bodies by id


class Work(NamedTuple):
    """What a worker has to know of a thread beside the rows."""

    created_at: str
    edits: str
    ahead: Ranges  # what rows cover that wait to be activated
    failures: int  # answers in a row that could not be used
    failed: str  # what the last of these was about

    def is_of(self, state_of_thread: Sequence[bytes | None]) -> bool:
        """Tell whether the thread is as it was, from the reply to `state_command`: no message was deleted or edited."""
        return [(one or b"0").decode() for one in state_of_thread] == [self.created_at, self.edits]


class NewRow(NamedTuple):
    """A row to be made."""

    body: dict[str, Any]
    cites: Sequence[int] = ()  # seqs, rising
    covers: Sequence[int] = ()
    replaces: Sequence[int] = ()  # ids of rows, whose messages it cites and covers, too
    draws: Sequence[int] = ()  # ids of rows whose messages it cites, too
    waits: bool = False  # it is not shown before it is activated


@dataclass(slots=True)
class _Known:
    """The rows that this process has read, by thread and kind."""

    rows: Recent[tuple[str, str], Rows] = field(default_factory=lambda: Recent(256))


def known_rows(state: MemoryState, thread_id: str, kind: str) -> Rows:
    """Return the rows as this process has read them last."""
    return state.room(_Known).rows.get((thread_id, kind)) or Rows()


def show_command(
    state: MemoryState, thread_id: str, user_id: str | None, kind: str, *, work: bool | None = None, whole: bool = False
) -> Command:
    """Return the call that reads what `known_rows` does not know yet; `learn` reads its reply. `whole`: as if nothing were known."""
    known = None if whole else known_rows(state, thread_id, kind).revision or None
    head = {"user": owner_tag(user_id), "kind": kind, "revision": known, "work": work}
    return SHOW.on(state.keys.of(thread_id), **head)


def state_command(state: MemoryState, thread_id: str) -> Command:
    """Return the call whose reply `Work.is_of` compares."""
    return ("HMGET", state.keys.of(thread_id).thread, "created_at", "edits")


def learn(state: MemoryState, thread_id: str, user_id: str | None, kind: str, reply: Any) -> Plan[Rows]:
    """Take in what `show_command` has read; raise what it refuses.

    One round trip where the cache of this process has changed meanwhile, so that the reply does not fit to it.
    """
    found = read_reply(reply, thread_id, user_id)
    rows = _merged(known_rows(state, thread_id, kind), found, reply[1])
    if rows is None:
        (reply,) = yield from send(show_command(state, thread_id, user_id, kind, whole=True))
        found = read_reply(reply, thread_id, user_id)
        rows = _merged(Rows(), found, reply[1]) or Rows()
    state.room(_Known).rows.put((thread_id, kind), rows)
    return rows


def _merged(known: Rows, found: dict[str, Any], bodies: Sequence[bytes]) -> Rows | None:
    """Return what is known with a reply; None where that stands on something else."""
    epoch, _, last = found["revision"].partition(".")
    known_epoch, _, known_last = known.revision.partition(".")
    is_same = known_epoch == epoch
    if "since" not in found:
        return known if is_same and int(known_last or 0) >= int(last) else None
    since = found["since"]
    if since and (not is_same or int(known_last) < since):
        return None
    if is_same and int(known_last or 0) > int(last):  # another reply was faster
        return known
    rows = {id: body for id, body in known.rows.items() if id <= since}
    rows |= {id: orjson.loads(body) for id, body in zip(found.get("ids") or (), bodies, strict=True) if body}
    return Rows(found["revision"], found.get("missing_at"), found.get("expires"), Ranges.read(found["covered"]), rows)


def read_rows_of(state: MemoryState, thread_id: str, user_id: str | None, kind: str) -> Plan[Rows]:
    """Read the rows of a kind. One round trip."""
    (reply,) = yield from send(show_command(state, thread_id, user_id, kind))
    return (yield from learn(state, thread_id, user_id, kind, reply))


def read_work(
    state: MemoryState, thread_id: str, user_id: str | None, kind: str, *beside: Command
) -> Plan[tuple[Rows, Work, list[Any]]]:
    """Read the rows of a kind with what a worker has to know, and the replies to the commands `beside`. One round trip."""
    reply, *others = yield from send(show_command(state, thread_id, user_id, kind, work=True), *beside)
    found = read_reply(reply, thread_id, user_id)
    work = Work(found["created_at"], found["edits"], Ranges.read(found["ahead"]), found["failures"], found["failed"])
    return (yield from learn(state, thread_id, user_id, kind, reply)), work, others


def commit(
    state: MemoryState,
    thread_id: str,
    user_id: str,
    kind: str,
    work: Work,
    rows: Sequence[NewRow] = (),
    *,
    whole: bool = False,
    drop: Iterable[int] = (),
    clear: bool = False,
    activate: bool = False,
) -> Plan[list[int | str] | None]:
    """Write rows; return the id of each, "stale", or "covered" by a row of another worker. None: the thread has changed since `work`.

    `whole`: if the first row is refused, nothing is done, so that a call whose reply was lost can be repeated.

    Nothing is written for messages that were deleted or edited since. One round trip; the thread is noted at its user in it.
    """
    heads = [
        {
            "cites": sorted(row.cites),
            "covers": sorted(row.covers),
            "replaces": _as_ranges(row.replaces),
            "draws": _as_ranges(row.draws),
            "waits": row.waits,
        }
        for row in rows
    ]
    call = COMMIT.on(
        state.keys.of(thread_id),
        *(orjson.dumps(row.body) for row in rows),
        user=owner_tag(user_id),
        kind=kind,
        created_at=work.created_at,
        edits=work.edits,
        rows=heads,
        whole=whole,
        drop=_as_ranges(drop),
        clear=clear,
        activate=activate,
    )
    tombstone, threads, tag = state.keys.of_user(user_id)[0], state.keys.rows_of_user(user_id, kind), encode(thread_id)
    newest = max([row.body.get("at", 0) for row in rows], default=0) or int(work.created_at or 0)
    noting: list[Command] = [("ZADD", threads, "GT", newest, tag)] if rows else []
    *_, reply, deleted = yield from send(*noting, call, ("GET", tombstone), in_order=True)
    try:
        if deleted is not None:  # what was written goes with the thread, which the deletion finds
            raise UserDeletedError(user_id)
        found = read_reply(reply, thread_id, user_id)
    except WorkingMemError:
        if rows:
            yield from send(("ZREM", threads, tag))
        raise
    return None if found.get("stale") else [*(found["rows"] or ())]


def _as_ranges(ids: Iterable[int]) -> str:
    return ",".join(f"{id}-{id}" for id in sorted(ids))


# ---------------------------------------------------------------------- leases


def take(
    state: MemoryState, thread_id: str, user_id: str, kind: str, token: str, ms: int, *, force: bool = False
) -> Plan[tuple[int, bool]]:
    """Take or prolong the lease of a worker; return the ms until it is free, 0 if it is taken now, and whether all pause. One round trip.

    `force` takes it although the workers pause after a failure.
    """
    head = {"what": "take", "token": token, "ms": ms, "force": force or None}
    return (yield from _lease(state, thread_id, user_id, kind, **head))


def give(state: MemoryState, thread_id: str, user_id: str, kind: str, token: str) -> Plan[None]:
    """Give the lease back."""
    yield from _lease(state, thread_id, user_id, kind, what="give", token=token)


def fail(
    state: MemoryState, thread_id: str, user_id: str, kind: str, token: str, *, counts: bool, about: str = ""
) -> Plan[None]:
    """Let all workers pause; a failure that `counts` is one of the answer, not of the model. `about`: what it was about."""
    head = {"what": "fail", "token": token, "ms": FIRST_PAUSE, "most": LONGEST_PAUSE, "counts": counts or None}
    yield from _lease(state, thread_id, user_id, kind, **head, about=about)


def _lease(state: MemoryState, thread_id: str, user_id: str, kind: str, **head: Any) -> Plan[tuple[int, bool]]:
    call = LEASE.on(state.keys.of(thread_id), user=owner_tag(user_id), kind=kind, **head)
    (reply,) = yield from send(call)
    found = read_reply(reply, thread_id, user_id)
    if found["wait"] < 0:
        raise ThreadNotFoundError(thread_id)
    return int(found["wait"]), bool(found.get("pause"))


# ---------------------------------------------------------------------- the threads of a user


def thread_commands(state: MemoryState, user_id: str, kind: str, thread_ids: Iterable[str]) -> list[Command]:
    """Return the commands that read which threads of a user have rows, and those of some threads; `read_threads` reads their replies.

    Threads with the newest rows come first.
    """
    listing: Command = ("ZRANGE", state.keys.rows_of_user(user_id, kind), 0, -1, "REV")
    return [listing, *(show_command(state, id, user_id, kind) for id in thread_ids)]


def read_threads(
    state: MemoryState,
    user_id: str,
    kind: str,
    asked: Sequence[Command],
    replies: Sequence[Any],
    choose: Callable[[list[str]], list[str]],
) -> Plan[dict[str, Rows]]:
    """Return the rows of those threads of a user that `choose` takes, without what belongs to another user by now.

    One round trip where threads are chosen of which nothing was asked.
    """
    read = {
        state.keys.thread_of(str(call[3]).encode()): reply for call, reply in zip(asked[1:], replies[1:], strict=True)
    }
    chosen = choose([decode(tag) for tag in replies[0]])
    if new := [id for id in chosen if id not in read]:
        read |= zip(new, (yield from send(*(show_command(state, id, user_id, kind) for id in new))), strict=True)
    found = {}
    for id in chosen:
        with suppress(ThreadOwnershipError):
            found[id] = yield from learn(state, id, user_id, kind, read[id])
    return found


def note_deleted(state: MemoryState, user_id: str, thread_id: str) -> Plan[None]:
    """Note at a user that a thread with rows goes: what is listed and missing has only expired. One round trip."""
    tag = encode(thread_id)
    yield from send(*(("ZREM", state.keys.rows_of_user(user_id, kind), tag) for kind in ROW_KINDS))


def note_given(state: MemoryState, thread_id: str, owner: str, to: str) -> Plan[None]:
    """Note at both users that a thread with rows has another owner. Two round trips."""
    tag, keys = encode(thread_id), state.keys
    scores = yield from send(*(("ZSCORE", keys.rows_of_user(owner, kind), tag) for kind in ROW_KINDS))
    moving: list[Command] = []
    for kind, score in zip(ROW_KINDS, scores, strict=True):
        if score is not None:
            moving += [
                ("ZADD", keys.rows_of_user(to, kind), float(score), tag),
                ("ZREM", keys.rows_of_user(owner, kind), tag),
            ]
    if moving:
        yield from send(*moving)
