"""Rows that a model has made of messages: they cite these, and are shown and deleted with them, as `rows.lua` says."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import Facts, decode, encode
from langchain_workingmem._redis.scripts import READING, Script, check_owner, find_seqs, owner_tag, read_reply
from langchain_workingmem._redis.state import Recent
from langchain_workingmem._text.messages import STRIDE
from langchain_workingmem.errors import ThreadConflictError, ThreadOwnershipError, UserDeletedError, WorkingMemError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import MemoryState

CALL = Script("derived/call", *READING, "derived/rows")
ROW_KINDS = ("observations", "keeping")  # of rows, and the wings that make them
NEWEST = 50  # threads of a user that a turn looks at
ROWS_OF_A_COMMIT = 200  # rows of one commit, when rows are restored
ATTEMPTS = 5  # of a commit that meets others
FIRST_PAUSE, LONGEST_PAUSE = 15_000, 900_000  # ms after a failure, doubled for each further one


@dataclass(frozen=True, slots=True)
class Ranges:
    """Seqs as ranges, rising."""

    pairs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Ranges:
        """Read ranges as they are stored: 1, 5, 9, 9."""
        flat = iter(numbers)  # an empty list is {} to Lua
        return cls(tuple(zip(flat, flat, strict=True)))

    @classmethod
    def joined(cls, pairs: Iterable[tuple[int, int]]) -> Ranges:
        """Join ranges that overlap or touch."""
        merged = list[tuple[int, int]]()
        for low, high in sorted(pairs):
            touches = bool(merged) and low <= merged[-1][1] + 1
            start, end = merged.pop() if touches else (low, high)
            merged.append((start, max(end, high)))
        return cls(tuple(merged))

    def __contains__(self, seq: Any) -> bool:
        index = bisect_right(self.pairs, (seq, inf)) - 1
        return index >= 0 and seq <= self.pairs[index][1]

    def meets(self, other: Ranges) -> bool:
        """Tell whether both have a seq."""
        return any(low in other for low, _ in self.pairs) or any(low in self for low, _ in other.pairs)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a kind that a thread shows, and what a worker has to know of the thread."""

    revision: str = ""  # <epoch>.<id of the last row>: within an epoch rows come only at the end
    covered: Ranges = field(default_factory=Ranges)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)  # bodies by id
    ahead: Ranges = field(default_factory=Ranges)  # what rows cover that wait to be activated
    failures: int = 0  # of workers since rows were written last
    failed: str = ""  # what the last answer among them that could not be used was about
    stamp: str = ""  # of the thread: when it was created, and its count of edits and deletions
    missing_at: int | None = None  # ms: there was no thread then
    expires: int | None = None  # ms: when its time is over at the earliest


class NewRow(NamedTuple):
    """A row to be made."""

    body: dict[str, Any]
    cites: Sequence[int] = ()  # seqs
    covers: Sequence[int] = ()
    replaces: Sequence[int] = ()  # ids of rows, whose messages it cites and covers, too
    cited_rows: Sequence[int] = ()  # ids of rows whose messages it cites, too
    waits: bool = False  # it is not shown before it is activated


@dataclass(slots=True)
class Head:
    """A row that is stored, without its body."""

    id: int
    kind: str
    cites: Ranges
    covers: Ranges
    waits: bool
    by: int | None = None  # the row that replaced it

    @classmethod
    def read(cls, text: bytes | None) -> dict[int, Head]:
        """Read the heads of all rows of a thread, by id."""
        entries = orjson.loads(text or b"[]")
        heads = (cls(**entry | {name: Ranges.of(entry[name]) for name in ("cites", "covers")}) for entry in entries)
        return {head.id: head for head in heads}

    def as_stored(self) -> dict[str, Any]:
        """Return what `rows.lua` knows of it."""
        ranges = {"cites": [*chain(*self.cites.pairs)], "covers": [*chain(*self.covers.pairs)]}
        return {"id": self.id, "kind": self.kind, **ranges, "waits": self.waits, "by": self.by}


@dataclass(slots=True)
class Change:
    """How a worker changes the rows of a kind."""

    kind: str
    heads: dict[int, Head]  # of all rows of the thread
    shown: set[int]  # ids in either view of the kind
    last_id: int
    places: list[int]  # seqs of the messages around those that are covered, rising
    bodies: dict[int, str] = field(default_factory=dict)  # of new rows
    dropped: list[int] = field(default_factory=list)

    def drop(self, id: int) -> None:
        """Delete a row; those that it replaced are shown again."""
        del self.heads[id]
        self.dropped.append(id)

    def add(self, row: NewRow) -> int:
        """Add a row; return its id, or 0 if a row that it needs is gone, or another one covers a message of it."""
        needed_ids = [*row.cited_rows, *row.replaces]
        if not self.heads.keys() >= {*needed_ids}:
            return 0
        drawn, replaced = ([self.heads[id] for id in ids] for ids in (needed_ids, row.replaces))
        cites = Ranges.joined(
            [*((seq, seq) for seq in row.cites), *(pair for head in drawn for pair in head.cites.pairs)]
        )
        pairs = ((seq, self._end(seq)) for seq in row.covers)
        covers = Ranges.joined([*pairs, *(pair for head in replaced for pair in head.covers.pairs)])
        if not (cites.pairs or covers.pairs):
            return 0
        same_kind = [head for head in self.heads.values() if head.kind == self.kind and head.id not in row.replaces]
        # messages are compared, because ranges may overlap in gaps where none is stored
        low, high = min(row.covers, default=0), max(row.covers, default=-1)
        near = (head for head in same_kind if (span := head.covers.pairs) and span[0][0] <= high and low <= span[-1][1])
        rivals = {head.id for head in near if any(seq in head.covers for seq in row.covers)}
        rivals |= {head.id for head in same_kind if head.by in row.replaces}
        if rivals & self.shown:  # also if what is to be replaced is hidden by now
            return 0
        # what is on another branch, and what replaced the replaced rows, is never shown beside it
        rivals |= {head.by for head in replaced if head.by is not None}
        for id in rivals & self.heads.keys():
            self.drop(id)
        self.last_id += 1
        for head in replaced:
            head.by = self.last_id
        self.heads[self.last_id] = Head(self.last_id, self.kind, cites, covers, row.waits)
        self.shown.add(self.last_id)
        self.bodies[self.last_id] = orjson.dumps(row.body).decode()
        return self.last_id

    def _end(self, seq: int) -> int:
        """Return the seq before the next message, so that the ranges of neighbours touch."""
        index = bisect_right(self.places, seq)
        return self.places[index] - 1 if index < len(self.places) else seq


class ShowCall(tuple[Any, ...]):  # noqa: SLOT001 - a tuple cannot have slots
    """The command that reads rows, with what this process knew of them then; `learn` reads its reply."""

    source: ThreadRows
    known: Rows


class _RowsCache(Recent[tuple[str, str], Rows]):
    """The rows that this process has read, by thread and kind."""

    def __init__(self) -> None:
        super().__init__(256)


def learn(call: ShowCall, reply: Any) -> Rows:
    """Take in what the call of `ThreadRows.show` has read; raise what it refuses."""
    source, known = call.source, call.known
    header, bodies, covered = read_reply(reply, source.thread_id, source.user_id), known.rows, known.covered
    if "since" in header:  # else nothing has changed
        ids = (id for low, high in Ranges.of(header["ids"]).pairs for id in range(low, high + 1))
        bodies = {id: body for id, body in bodies.items() if id <= header["since"]}
        bodies |= {id: orjson.loads(body) for id, body in zip(ids, reply[1], strict=True) if body}
        covered = Ranges.of(header["covered"])
    number, _, failed = header["failures"].partition(" ")
    times, ahead = (header.get("missing_at"), header.get("expires")), Ranges.of(header["ahead"])
    rows = Rows(header["revision"], covered, bodies, ahead, int(number or 0), failed, header["stamp"], *times)
    source.state.local(_RowsCache).put((source.thread_id, source.kind), rows)
    return rows


class ThreadRows(NamedTuple):
    """The rows of a kind that a thread has. Each method takes one round trip."""

    state: MemoryState
    thread_id: str
    user_id: str | None  # None: any owner, to read
    kind: str

    def _call(self, what: str, **head: Any) -> Command:
        keys = self.state.keys.of(self.thread_id)
        return CALL.on(keys, what=what, user=owner_tag(self.user_id), kind=self.kind, **head)

    def show(self) -> ShowCall:
        """Return the call that reads what this process does not know yet."""
        known = self.state.local(_RowsCache).get((self.thread_id, self.kind)) or Rows()
        call = ShowCall(self._call("show", revision=known.revision))
        call.source, call.known = self, known
        return call

    def read(self) -> Plan[Rows]:
        """Read the rows."""
        call = self.show()
        return learn(call, (yield from send(call))[0])

    def commit(
        self,
        read: Rows,
        rows: Sequence[NewRow] = (),
        *,
        drop: Sequence[int] = (),
        clear: bool = False,
        activate: bool = False,
    ) -> Plan[list[int] | None]:
        """Write rows; return the id of each, 0 as in `Change.add`. None: messages were deleted since `read`.

        If the first row is refused, nothing is done and [] returned, unless this call wrote it, and the reply was lost.
        `drop`: ids of rows; `clear` drops all; `activate` shows what waits. Two round trips, again if others write.
        """
        keys, tag, user_id = self.state.keys, encode(self.thread_id), self.user_id or ""
        tombstone, threads = keys.of_user(user_id).tombstone, keys.rows_of_user(user_id, self.kind)
        newest = max([row.body.get("at", 0) for row in rows], default=0)
        noting: list[Command] = [("ZADD", threads, "GT", newest, tag)] if rows else []
        ids, sent = list[int](), dict[str, bytes]()
        for _ in range(ATTEMPTS):
            version, stamp, change = yield from self._begin(rows)
            before, ids = ids, [change.add(row) for row in rows]
            if stamp != read.stamp:
                return None
            if ids[:1] == [0]:  # somebody else was faster, or an earlier attempt was written
                [stored] = (yield from send(("HMGET", keys.of(self.thread_id).rows, *sent))) if sent else [[]]
                return before if stored == [*sent.values()] else []
            sent = {f"b:{id}": body.encode() for id, body in change.bodies.items()}
            for head in [head for head in change.heads.values() if head.kind == self.kind]:
                head.waits = head.waits and not activate
                if clear or head.id in drop:
                    change.drop(head.id)
            fields = {
                "rows": [head.as_stored() for head in change.heads.values()],
                "bodies": {str(id): body for id, body in change.bodies.items()},
                "dropped": change.dropped,
                "next": change.last_id,
            }
            call = self._call("commit", stamp=stamp, version=version, **fields)
            *_, reply, deleted = yield from send(*noting, call, ("GET", tombstone), in_order=True)
            try:
                if deleted is not None:  # what was written goes with the thread, which the deletion finds
                    raise UserDeletedError(user_id)
                stale = read_reply(reply, self.thread_id, user_id).get("stale")
            except WorkingMemError:
                if rows:
                    yield from send(("ZREM", threads, tag))
                raise
            if stale != "rows":
                return None if stale else ids
        raise ThreadConflictError(self.thread_id)

    def _begin(self, rows: Sequence[NewRow]) -> Plan[tuple[str, str, Change]]:
        """Read the rows that a change is made of; return their version and the stamp of the thread, too."""
        keys, views = self.state.keys.of(self.thread_id), (f"shown:{self.kind}", f"shown:{self.kind}+")
        seqs = [seq for row in rows for seq in row.covers] or [0]
        span = (min(seqs), max(seqs) + STRIDE, "BYSCORE")
        stored, thread_fields, *members = yield from send(
            ("HMGET", keys.rows, "version", "next", "heads", *views),
            ("HMGET", keys.thread, "created_at", "edits"),
            ("ZRANGE", keys.superseded, *span),  # in front and behind, so that nothing that moves is missed
            ("ZRANGE", keys.order, *span),
            ("ZRANGE", keys.superseded, *span),
        )
        version, last_id, heads, *shown = stored
        ids = (Ranges.of(orjson.loads(text or b"[]")).pairs for text in shown)
        change = Change(
            self.kind,
            Head.read(heads),
            {id for pairs in ids for low, high in pairs for id in range(low, high + 1)},
            int(last_id or 0),
            sorted({int(text.partition(b":")[0]) for texts in members for text in texts}),
        )
        stamp = " ".join((text or b"0").decode() for text in thread_fields)
        return (version or b"0").decode(), stamp, change

    def lease(self, token: str, ms: int, **head: Any) -> Plan[tuple[int, bool]]:
        """Take, prolong or (0) give back a worker's lease; return ms until it is free (0: done), and if all pause."""
        (reply,) = yield from send(self._call("lease", **{"token": token, "holder": token, "ms": ms, **head}))
        header = read_reply(reply, self.thread_id, self.user_id)
        return int(header["wait"]), bool(header.get("pause"))

    def pause(self, token: str, unusable: str | None = None) -> Plan[None]:
        """Let all workers pause after a failure; `unusable`: what the answer was about. One round trip more."""
        before = yield from self.read()
        noted = f"{before.failures + 1} {before.failed if unusable is None else unusable}"
        ms = min(LONGEST_PAUSE, FIRST_PAUSE * 2**before.failures)
        yield from self.lease(token, ms, holder="pause", failures=noted)


# ---------------------------------------------------------------------- the threads of a user


def thread_commands(state: MemoryState, user_id: str, kind: str, thread_ids: Iterable[str]) -> list[Command]:
    """Return the commands that read which threads of a user have rows, the newest first, and those of some threads."""
    listing: Command = ("ZRANGE", state.keys.rows_of_user(user_id, kind), 0, -1, "REV")
    return [listing, *(ThreadRows(state, id, user_id, kind).show() for id in thread_ids)]


def read_threads(
    state: MemoryState,
    user_id: str,
    kind: str,
    commands: Sequence[Any],
    replies: Sequence[Any],
    choose: Callable[[list[str]], list[str]],
) -> Plan[dict[str, Rows]]:
    """Return the rows of those threads of a user that `choose` takes, from the replies to `thread_commands`.

    One round trip for threads that were not asked for. What belongs to another user by now is left out.
    """
    answers = {pair[0].source.thread_id: pair for pair in zip(commands[1:], replies[1:], strict=True)}
    ids = choose([decode(tag) for tag in replies[0]])
    if missing := [ThreadRows(state, id, user_id, kind).show() for id in ids if id not in answers]:
        answers |= {pair[0].source.thread_id: pair for pair in zip(missing, (yield from send(*missing)), strict=True)}
    rows = {}
    for id in ids:
        with suppress(ThreadOwnershipError):
            rows[id] = learn(*answers[id])
    return rows


def note_given(state: MemoryState, thread_id: str, owner: str, to: str) -> Plan[None]:
    """Note at both users that a thread with rows has another owner. At most four round trips."""
    for kind in ROW_KINDS:
        tag, old, new = encode(thread_id), state.keys.rows_of_user(owner, kind), state.keys.rows_of_user(to, kind)
        (score,) = yield from send(("ZSCORE", old, tag))
        if score is not None:
            yield from send(("ZADD", new, float(score), tag), ("ZREM", old, tag))


# ---------------------------------------------------------------------- copies and archives


def export_rows(state: MemoryState, thread_id: str, user_id: str | None) -> Plan[list[dict[str, Any]]]:
    """Return the rows of a thread as they were made, with ids of messages, not seqs. One round trip, two with rows."""
    keys = state.keys.of(thread_id)
    owner, reply = yield from send(("HGET", keys.thread, "user"), ("HGETALL", keys.rows))
    check_owner(owner, thread_id, user_id)
    fields = as_dict(reply)
    heads = Head.read(fields.get(b"heads"))
    if not heads:
        return []
    members = yield from send(("ZRANGE", keys.order, 0, -1), ("ZRANGE", keys.superseded, 0, -1))
    current, superseded = ([Facts.read(text.decode()) for text in texts] for texts in members)
    seq_ids = sorted((facts.seq, facts.id) for facts in (*current, *superseded))
    # a row that is about older words of an id would be taken for one about its words of now
    current_ids = {facts.id for facts in current}
    older = Ranges.joined((facts.seq, facts.seq) for facts in superseded if facts.id in current_ids)
    replaced = defaultdict[int | None, list[int]](list)
    for head in heads.values():
        replaced[head.by].append(head.id)

    def ids(ranges: Ranges) -> list[str]:
        spans = ((bisect_left(seq_ids, (low, "")), bisect_left(seq_ids, (high + 1, ""))) for low, high in ranges.pairs)
        return [id for start, end in spans for _, id in seq_ids[start:end]]

    return [
        {
            "id": head.id,
            "row": head.kind,
            "cites": ids(head.cites),
            "covers": ids(head.covers),
            "replaces": replaced[head.id],
            "waits": head.waits,
            "body": orjson.loads(body),
        }
        for head in heads.values()
        if (body := fields.get(b"b:%d" % head.id)) and not (head.cites.meets(older) or head.covers.meets(older))
    ]


def restore_rows(
    state: MemoryState,
    thread_id: str,
    user_id: str,
    rows: Sequence[Mapping[str, Any]],
    ids: Mapping[str, str] | None = None,
) -> Plan[int]:
    """Make exported rows in a thread that has their messages, perhaps under new `ids`; return how many.

    Rows without their messages are left out, all if the thread has rows. Three round trips, and two per 200 rows.
    """
    keys = state.keys.of(thread_id)
    if not rows or (yield from send(("HEXISTS", keys.rows, "next")))[0]:
        return 0
    current = yield from ThreadRows(state, thread_id, user_id, rows[0]["row"]).read()
    message_ids = {id for row in rows for id in (*row["cites"], *row["covers"])}
    new_ids = {id: id for id in message_ids} if ids is None else {id: ids[id] for id in message_ids if id in ids}
    places = yield from find_seqs(keys, [*new_ids.values()])
    seqs = {id: places[new_id] for id, new_id in new_ids.items() if new_id in places}
    row_ids: dict[int, int] = {}

    def restored(row: Mapping[str, Any]) -> NewRow:
        body = dict(row["body"])
        if "ids" in body:  # of messages, as the thread has them
            body["ids"] = [new_ids[id] for id in body["ids"] if id in new_ids]
        cites, covers = ([seqs[id] for id in row[name]] for name in ("cites", "covers"))
        return NewRow(body, cites, covers, [row_ids[id] for id in row["replaces"] if id in row_ids], waits=row["waits"])

    replaced = {id for row in rows for id in row["replaces"]}
    for kind in dict.fromkeys(row["row"] for row in rows):
        thread_rows = ThreadRows(state, thread_id, user_id, kind)
        kind_rows = [row for row in rows if row["row"] == kind and {*row["cites"], *row["covers"]} <= seqs.keys()]
        for is_replaced in True, False:
            pending = [row for row in kind_rows if (row["id"] in replaced) is is_replaced]
            while pending:
                written = yield from thread_rows.commit(current, [*map(restored, pending[:ROWS_OF_A_COMMIT])])
                if written is None:  # messages were deleted meanwhile
                    return len(row_ids)
                row_ids |= {row["id"]: id for row, id in zip(pending, written, strict=False) if id}
                pending = pending[len(written) or 1 :]
    return len(row_ids)
