"""Rows on their way: into a copy of their thread, into an archive, and back."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

import orjson

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.access import find_seqs
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import Facts
from langchain_workingmem.derived.rows import NewRow, Ranges, commit, read_work

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_workingmem._redis.state import MemoryState

STEP = 50  # rows of one commit


def export_rows(state: MemoryState, thread_id: str) -> Plan[list[dict[str, Any]]]:
    """Return the rows of a thread with ids of messages instead of seqs, as they were made. One round trip, two if it has rows."""
    keys = state.keys.of(thread_id)
    (stored,) = yield from send(("HGETALL", keys.rows))
    fields = as_dict(stored)
    heads = [orjson.loads(value) for name, value in fields.items() if name.startswith(b"r:")]
    if not heads:
        return []
    members = yield from send(("ZRANGE", keys.order, 0, -1), ("ZRANGE", keys.superseded, 0, -1))
    facts = sorted((one.seq, one.id) for some in members for one in (Facts.read(text.decode()) for text in some))
    seqs = [seq for seq, _ in facts]

    def ids(text: str) -> list[str]:
        spans = ((bisect_left(seqs, low), bisect_right(seqs, high)) for low, high in Ranges.read(text))
        return [id for first, end in spans for _, id in facts[first:end]]

    found = []
    for head in sorted(heads, key=lambda head: head["id"]):
        body = fields.get(b"b:%d" % head["id"])
        if body:
            replaces = [id for id, _ in Ranges.read(head["replaces"])]
            found.append(
                {
                    "id": head["id"],
                    "row": head["kind"],
                    "cites": ids(head["cites"]),
                    "covers": ids(head["covers"]),
                    "replaces": replaces,
                    "waits": not head["active"],
                    "body": orjson.loads(body),
                }
            )
    return found


def restore_rows(
    state: MemoryState,
    thread_id: str,
    user_id: str,
    rows: Sequence[Mapping[str, Any]],
    ids: Mapping[str, str] | None = None,
) -> Plan[int]:
    """Make exported rows in a thread that has their messages, perhaps under new `ids`; return how many.

    Rows of messages that are not there are left out, and all of them where the thread has rows already. What was replaced is made
    first. Three round trips, and one for each 50 rows.
    """
    keys = state.keys.of(thread_id)
    if not rows or (yield from send(("HEXISTS", keys.rows, "next")))[0]:
        return 0
    named = dict.fromkeys(id for row in rows for id in (*row["cites"], *row["covers"]))
    new = {id: id for id in named} if ids is None else {id: ids[id] for id in named if id in ids}
    places = yield from find_seqs(keys, [*new.values()])
    seqs = {id: places[at] for id, at in new.items() if at in places}
    made: dict[int, int] = {}
    replacing = {id for row in rows for id in row["replaces"]}
    for kind in dict.fromkeys(row["row"] for row in rows):
        _, work, _ = yield from read_work(state, thread_id, user_id, kind)
        of_kind = [row for row in rows if row["row"] == kind and {*row["cites"], *row["covers"]} <= seqs.keys()]
        for level in (
            [row for row in of_kind if row["id"] in replacing],
            [row for row in of_kind if row["id"] not in replacing],
        ):
            for start in range(0, len(level), STEP):
                some = level[start : start + STEP]
                written = yield from commit(
                    state, thread_id, user_id, kind, work, [_restored(row, seqs, new, made) for row in some]
                )
                done = zip(some, written or (), strict=False)
                made |= {row["id"]: id for row, id in done if isinstance(id, int)}
    return len(made)


def _restored(
    row: Mapping[str, Any], seqs: Mapping[str, int], new: Mapping[str, str], made: Mapping[int, int]
) -> NewRow:
    body = dict(row["body"])
    if "ids" in body:  # of messages, as the thread has them
        body["ids"] = [new[id] for id in body["ids"] if id in new]
    cites, covers = ([seqs[id] for id in row[name]] for name in ("cites", "covers"))
    return NewRow(body, cites, covers, [made[id] for id in row["replaces"] if id in made], waits=row["waits"])
