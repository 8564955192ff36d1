"""The plan that writes everything of a resource as records; `intake` reads them back.

A record is a dict of JSON values with a `kind`. The header comes first, then the working memory of the resource, then one
thread after the other: itself, its working memory, its messages in order. Times are ISO 8601.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.effects import Emit, Plan, send
from langchain_workingmem._redis.access import run_script
from langchain_workingmem._redis.codec import as_dict, decode_message, from_micros, index_digest_of
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem.errors import ThreadOwnershipError
from langchain_workingmem.history import READ, MessageSelection
from langchain_workingmem.threads import list_threads, read_thread
from langchain_workingmem.users import store_items as belongings
from langchain_workingmem.users.format import Record, header

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_workingmem._engine.effects import Command
    from langchain_workingmem._redis.state import MemoryState

BATCH = 200  # messages of one round trip


def export(state: MemoryState, resource_id: str, namespaces: Sequence[tuple[str, ...]], *, vectors: bool) -> Plan[None]:
    """Emit everything of a resource. A round trip per 100 threads, one per thread and 200 messages of it, and those of its items."""
    _, memory, revisions = state.keys.of_resource(check_id(resource_id, "resource_id"))
    yield from state.ready()
    found = yield from send(*_reading(memory, revisions))
    yield Emit([header(resource_id), *_memory(None, *found)])
    cursor = None
    while True:
        page = yield from list_threads(state, resource_id, None, 100, cursor, "created_at", descending=False)
        for thread in page:
            try:
                yield from _thread(state, thread.id, resource_id, vectors=vectors)
            except ThreadOwnershipError:  # handed over since it was listed
                continue
        cursor = page.next_cursor
        if cursor is None:
            break
    yield from belongings.export(state, namespaces)


def _thread(state: MemoryState, thread_id: str, resource_id: str, *, vectors: bool) -> Plan[None]:
    keys = state.keys.of(thread_id)
    wanted = MessageSelection(limit=BATCH)
    behind = READ.call(keys.all, encode(resource_id), "superseded", 1)
    beside: list[Command] = [behind, ("HGETALL", keys.thread), *_reading(keys.memory, keys.revisions)]
    left: list[tuple[float, Record]] = []  # what the conversation has left behind, by sequence number
    while True:
        extra = ("vectors", 1) if vectors else ()
        call = READ.call(keys.all, encode(resource_id), *wanted.arguments(), *extra)
        reply, *others = yield from run_script(thread_id, resource_id, call, *beside)
        records: list[Record] = []
        if others:
            left = [
                (float(seq), {**_message(thread_id, id, seq, value), **_behind(seq)})
                for id, seq, value in zip(*(others[0][start::3] for start in range(1, 4)), strict=True)
            ]
            thread = read_thread(thread_id, others[1])
            if thread is None:  # deleted since it was listed
                return
            records = [
                {
                    "kind": "thread",
                    "id": thread.id,
                    "title": thread.title,
                    "metadata": thread.metadata,
                    "created_at": thread.created_at.isoformat(),
                    "updated_at": thread.updated_at.isoformat(),
                    "clone_of": thread.clone_of,
                },
                *_memory(thread_id, *others[2:]),
            ]
            beside = []
        width = 4 if vectors else 3
        rows = list(zip(*(reply[start::width] for start in range(1, width + 1)), strict=True))
        is_last = len(rows) < BATCH
        present = [(float(row[1]), _message(thread_id, *row)) for row in rows]
        due = [one for one in left if is_last or one[0] <= present[-1][0]]
        left = left[len(due) :]
        yield Emit([*records, *(record for _, record in sorted([*present, *due], key=itemgetter(0)))])
        if is_last:
            return
        wanted = replace(wanted, above=int(rows[-1][1]))


def _behind(seq: bytes) -> Record:
    """Say of a superseded message whether it is only an older version of the message behind it."""
    return {"superseded": True, "version": True} if b"." in seq else {"superseded": True}


def _message(thread_id: str, id: bytes, seq: bytes, value: bytes, vectors: list[Any] | None = None) -> Record:
    row = decode_message(id, seq, value, thread_id)
    body = json.loads(value, parse_constant=lambda _: None)  # NaN is kept, but is no JSON to hand out
    body["data"]["id"] = row.message.id  # a copy keeps the body of its source
    record: Record = {
        "kind": "message",
        "thread_id": thread_id,
        "stored_at": row.stored_at.isoformat(),
        "message": {"type": body["type"], "data": body["data"]},
    }
    if body["state"]:
        record["turn"] = True  # a turn saved it, not some program: a client's list may leave it behind
    if row.refused:
        record["refused"] = True
    stored = [as_dict(vector) for vector in vectors or ()]
    if vectors is not None and index_digest_of(value) and all(stored):
        data = [b64encode(vector[b"vector"]).decode() for vector in stored]
        record["vectors"] = {"settings": index_digest_of(value).decode(), "data": data}
    return record


def _reading(memory: str, revisions: str) -> list[Command]:
    return [("HGETALL", memory), ("XRANGE", revisions, "-", "+")]


def _memory(thread_id: str | None, memory: Any, entries: list[Any]) -> list[Record]:
    row = as_dict(memory)
    if not row:
        return []
    revisions = [_state(as_dict(fields)) for _, fields in entries]
    return [{"kind": "working_memory", "thread_id": thread_id, **_state(row), "revisions": revisions}]


def _state(row: Mapping[bytes, bytes]) -> Record:
    return {
        "document": row[b"document"].decode(),
        "revision": int(row[b"revision"]),
        "updated_at": from_micros(row[b"updated_at"]).isoformat(),
        "origin": row[b"origin"].decode(),
    }
