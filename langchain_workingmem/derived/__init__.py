"""Rows that a model has made of messages: they cite these, and are shown and deleted with them, as `rows.lua` says."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import Facts, decode, encode
from langchain_workingmem._redis.scripts import READING, Script, find_seqs, owner_tag, read_reply
from langchain_workingmem._redis.state import Recent
from langchain_workingmem.errors import ThreadOwnershipError, UserDeletedError, WorkingMemError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState

CALL = Script("derived/call", *READING, "derived/rows")
ROW_KINDS = ("observations", "keeping")  # of rows, and the wings that make them
NEWEST = 50  # threads of a user that a turn looks at
STEP = 50  # rows of one commit, when rows are restored


@dataclass(frozen=True, slots=True)
class Ranges:
    """Seqs as ranges, rising."""

    pairs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def read(cls, text: str) -> Ranges:
        """Read ranges as scripts write them: 1-5,9-9."""
        pairs = (part.split("-") for part in text.split(",") if part)
        return cls(tuple(sorted((int(low), int(high)) for low, high in pairs)))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __contains__(self, seq: object) -> bool:
        if not isinstance(seq, int):
            return False
        at = bisect_right(self.pairs, (seq, inf)) - 1
        return at >= 0 and seq <= self.pairs[at][1]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a kind that a thread shows."""

    revision: str = ""  # <epoch>.<id of the last row>: within an epoch rows come only at the end
    missing_at: int | None = None  # ms: there was no thread then
    expires: int | None = None  # ms: when its time is over at the earliest
    covered: Ranges = field(default_factory=Ranges)
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
    cites: Sequence[int] = ()  # seqs
    covers: Sequence[int] = ()
    replaces: Sequence[int] = ()  # ids of rows, whose messages it cites and covers, too
    draws: Sequence[int] = ()  # ids of rows whose messages it cites, too
    waits: bool = False  # it is not shown before it is activated


# ---------------------------------------------------------------------- reading


class Show(tuple[Any, ...]):  # noqa: SLOT001 - a tuple cannot have slots
    """The call that reads the rows of a kind, with what this process knew of them then; `learn` reads its reply."""

    place: tuple[str, str]  # thread and kind
    user_id: str | None
    known: Rows


@dataclass(slots=True)
class _Known:
    """The rows that this process has read, by thread and kind."""

    rows: Recent[tuple[str, str], Rows] = field(default_factory=lambda: Recent(256))


def known_rows(state: MemoryState, thread_id: str, kind: str) -> Rows:
    """Return the rows as this process has read them last."""
    return state.room(_Known).rows.get((thread_id, kind)) or Rows()


def show_command(
    state: MemoryState, thread_id: str, user_id: str | None, kind: str, *, work: bool | None = None
) -> Show:
    """Return the call that reads what `known_rows` does not know yet."""
    known = known_rows(state, thread_id, kind)
    head = {"user": owner_tag(user_id), "kind": kind, "revision": known.revision or None, "work": work}
    call = Show(CALL.on(state.keys.of(thread_id), what="show", **head))
    call.place, call.user_id, call.known = (thread_id, kind), user_id, known
    return call


def state_command(state: MemoryState, thread_id: str) -> Command:
    """Return the call whose reply `Work.is_of` compares."""
    return ("HMGET", state.keys.of(thread_id).thread, "created_at", "edits")


def learn(state: MemoryState, call: Show, reply: Any) -> Rows:
    """Take in what `show_command` has read; raise what it refuses."""
    found, known = read_reply(reply, call.place[0], call.user_id), call.known
    if "since" not in found:
        return known
    rows = {id: body for id, body in known.rows.items() if id <= found["since"]}
    ids = (id for low, high in Ranges.read(found["ids"]) for id in range(low, high + 1))
    rows |= {id: orjson.loads(body) for id, body in zip(ids, reply[1], strict=True) if body}
    covered = Ranges.read(found["covered"])
    read = Rows(found["revision"], found.get("missing_at"), found.get("expires"), covered, rows)
    state.room(_Known).rows.put(call.place, read)
    return read


def read_rows_of(state: MemoryState, thread_id: str, user_id: str | None, kind: str) -> Plan[Rows]:
    """Read the rows of a kind. One round trip."""
    call = show_command(state, thread_id, user_id, kind)
    return learn(state, call, (yield from send(call))[0])


def read_work(state: MemoryState, thread_id: str, user_id: str | None, kind: str) -> Plan[tuple[Rows, Work]]:
    """Read the rows of a kind with what a worker has to know. One round trip."""
    call = show_command(state, thread_id, user_id, kind, work=True)
    (reply,) = yield from send(call)
    found = read_reply(reply, thread_id, user_id)
    work = Work(found["created_at"], found["edits"], Ranges.read(found["ahead"]), found["failures"], found["failed"])
    return learn(state, call, reply), work


# ---------------------------------------------------------------------- writing


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
    """Write rows; return the id of each, "stale", or "covered" by another worker's row. None: the thread has changed.

    `whole`: if the first row is refused, nothing is done, so a call with a lost reply can be repeated. One round trip.
    """
    call = CALL.on(
        state.keys.of(thread_id),
        *(orjson.dumps(row.body) for row in rows),
        what="commit",
        user=owner_tag(user_id),
        kind=kind,
        created_at=work.created_at,
        edits=work.edits,
        rows=[
            {
                "cites": sorted({*row.cites}),
                "covers": sorted({*row.covers}),
                "replaces": _as_ranges(row.replaces),
                "draws": _as_ranges(row.draws),
                "waits": row.waits,
            }
            for row in rows
        ],
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


def lease(
    state: MemoryState, thread_id: str, user_id: str, kind: str, what: str, token: str, **head: Any
) -> Plan[tuple[int, bool]]:
    """Change the lease as `call.lua` says; return ms until it is free (0: ours), and if all pause. One round trip."""
    given = {"user": owner_tag(user_id), "kind": kind, "what": what, "token": token, **head}
    (reply,) = yield from send(CALL.on(state.keys.of(thread_id), **given))
    found = read_reply(reply, thread_id, user_id)
    return int(found["wait"]), bool(found.get("pause"))


# ---------------------------------------------------------------------- the threads of a user


def thread_commands(state: MemoryState, user_id: str, kind: str, thread_ids: Iterable[str]) -> list[Command]:
    """Return the commands that read which threads of a user have rows, the newest first, and those of some threads."""
    listing: Command = ("ZRANGE", state.keys.rows_of_user(user_id, kind), 0, -1, "REV")
    return [listing, *(show_command(state, id, user_id, kind) for id in thread_ids)]


def read_threads(
    state: MemoryState,
    user_id: str,
    kind: str,
    asked: Sequence[Any],
    replies: Sequence[Any],
    choose: Callable[[list[str]], list[str]],
) -> Plan[dict[str, Rows]]:
    """Return the rows of those threads of a user that `choose` takes, from the replies to `thread_commands`.

    One round trip for threads that were not asked for. What belongs to another user by now is left out.
    """
    read = {call.place[0]: (call, reply) for call, reply in zip(asked[1:], replies[1:], strict=True)}
    chosen = choose([decode(tag) for tag in replies[0]])
    if new := [show_command(state, id, user_id, kind) for id in chosen if id not in read]:
        read |= {call.place[0]: (call, reply) for call, reply in zip(new, (yield from send(*new)), strict=True)}
    found = {}
    for id in chosen:
        with suppress(ThreadOwnershipError):
            found[id] = learn(state, *read[id])
    return found


def note_deleted(state: MemoryState, user_id: str, thread_id: str) -> Plan[None]:
    """Note at a user that a thread with rows goes: what is listed and missing has only expired. One round trip."""
    tag = encode(thread_id)
    yield from send(*(("ZREM", state.keys.rows_of_user(user_id, kind), tag) for kind in ROW_KINDS))


def note_given(state: MemoryState, thread_id: str, owner: str, to: str) -> Plan[None]:
    """Note at both users that a thread with rows has another owner. Two round trips."""
    tag, keys = encode(thread_id), state.keys
    scores = yield from send(*(("ZSCORE", keys.rows_of_user(owner, kind), tag) for kind in ROW_KINDS))
    for kind, score in zip(ROW_KINDS, scores, strict=True):
        if score is not None:
            adding: Command = ("ZADD", keys.rows_of_user(to, kind), float(score), tag)
            yield from send(adding, ("ZREM", keys.rows_of_user(owner, kind), tag))


# ---------------------------------------------------------------------- copies and archives


def export_rows(state: MemoryState, thread_id: str) -> Plan[list[dict[str, Any]]]:
    """Return the rows of a thread as they were made, with ids of messages, not seqs. One round trip, two with rows."""
    keys = state.keys.of(thread_id)
    fields = as_dict((yield from send(("HGETALL", keys.rows)))[0])
    heads = [orjson.loads(value) for name, value in fields.items() if name.startswith(b"r:")]
    if not heads:
        return []
    members = yield from send(("ZRANGE", keys.order, 0, -1), ("ZRANGE", keys.superseded, 0, -1))
    facts = sorted((one.seq, one.id) for some in members for one in (Facts.read(text.decode()) for text in some))

    def ids(text: str) -> list[str]:
        spans = ((bisect_left(facts, (low, "")), bisect_left(facts, (high + 1, ""))) for low, high in Ranges.read(text))
        return [id for first, end in spans for _, id in facts[first:end]]

    return [
        {
            "id": head["id"],
            "row": head["kind"],
            "cites": ids(head["cites"]),
            "covers": ids(head["covers"]),
            "replaces": [id for id, _ in Ranges.read(head["replaces"])],
            "waits": not head["active"],
            "body": orjson.loads(body),
        }
        for head in sorted(heads, key=lambda head: head["id"])
        if (body := fields.get(b"b:%d" % head["id"]))
    ]


def restore_rows(
    state: MemoryState,
    thread_id: str,
    user_id: str,
    rows: Sequence[Mapping[str, Any]],
    ids: Mapping[str, str] | None = None,
) -> Plan[int]:
    """Make exported rows in a thread that has their messages, perhaps under new `ids`; return how many.

    Rows without their messages are left out, all if the thread has rows. Three round trips, and one per 50 rows.
    """
    keys = state.keys.of(thread_id)
    if not rows or (yield from send(("HEXISTS", keys.rows, "next")))[0]:
        return 0
    named = {id for row in rows for id in (*row["cites"], *row["covers"])}
    new = {id: id for id in named} if ids is None else {id: ids[id] for id in named if id in ids}
    places = yield from find_seqs(keys, [*new.values()])
    seqs = {id: places[at] for id, at in new.items() if at in places}
    made: dict[int, int] = {}

    def restored(row: Mapping[str, Any]) -> NewRow:
        body = dict(row["body"])
        if "ids" in body:  # of messages, as the thread has them
            body["ids"] = [new[id] for id in body["ids"] if id in new]
        cites, covers = ([seqs[id] for id in row[name]] for name in ("cites", "covers"))
        return NewRow(body, cites, covers, [made[id] for id in row["replaces"] if id in made], waits=row["waits"])

    replaced = {id for row in rows for id in row["replaces"]}
    for kind in dict.fromkeys(row["row"] for row in rows):
        _, work = yield from read_work(state, thread_id, user_id, kind)
        of_kind = [row for row in rows if row["row"] == kind and {*row["cites"], *row["covers"]} <= seqs.keys()]
        for level in True, False:
            some = [row for row in of_kind if (row["id"] in replaced) is level]
            for start in range(0, len(some), STEP):
                step = some[start : start + STEP]
                written = yield from commit(state, thread_id, user_id, kind, work, [*map(restored, step)])
                done = zip(step, written or (), strict=False)
                made |= {row["id"]: id for row, id in done if isinstance(id, int)}
    return len(made)
