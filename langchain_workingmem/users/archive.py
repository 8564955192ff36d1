"""The plan that exports all data of a resource as records: dicts of JSON values with a `kind`."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.effects import Emit, Plan, send
from langchain_workingmem._redis.access import run_script
from langchain_workingmem._redis.codec import as_dict, decode_message, from_micros, index_digest_of
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem.errors import ThreadOwnershipError
from langchain_workingmem.history import READ, MessageSelection
from langchain_workingmem.observations import as_copy, copy_command, read_resource
from langchain_workingmem.threads import list_threads, read_thread
from langchain_workingmem.users import store_items
from langchain_workingmem.users.format import Record, header, paths_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langchain_workingmem._engine.effects import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Observation
    from langchain_workingmem.observations import Part

BATCH = 200  # messages of one round trip


def export(state: MemoryState, resource_id: str, namespaces: Iterable[Sequence[str]], *, vectors: bool) -> Plan[None]:
    """Emit all data of a resource. A round trip per 100 threads, one per thread and 200 messages, and those of its items."""
    _, *memory = state.keys.of_resource(check_id(resource_id, "resource_id"))
    paths = paths_of(namespaces, resource_id)
    yield from state.indexes.ready()
    replies = yield from send(*_memory_commands(*memory))
    yield Emit([header(resource_id), *_memory_records(None, *replies)])
    cursor = None
    while True:
        page = yield from list_threads(state, resource_id, None, 100, cursor, "created_at", descending=False)
        for thread in page:
            # a transfer after the listing
            with suppress(ThreadOwnershipError):
                yield from _export_thread(state, thread.id, resource_id, vectors=vectors)
        cursor = page.next_cursor
        if cursor is None:
            break
    yield Emit(_log_records(None, (yield from read_resource(state, resource_id))))
    yield from store_items.export(state, paths)


def _export_thread(state: MemoryState, thread_id: str, resource_id: str, *, vectors: bool) -> Plan[None]:
    """Emit a thread, its working memory, its messages with the superseded ones where they were, and its log.

    Nothing if it is deleted. The log is read after the messages, so it never cites what is deleted while they are read.
    """
    keys, owner = state.keys.of(thread_id), encode(resource_id)
    others: tuple[Command, ...] = (
        READ.call(keys.all, owner, "superseded", 1),
        ("HEXISTS", keys.observations, "present"),
        ("HGETALL", keys.thread),
        *_memory_commands(keys.memory, keys.revisions),
    )
    wanted = MessageSelection(limit=BATCH)
    options = ("vectors", 1) if vectors else ()
    call = READ.call(keys.all, owner, *wanted.arguments(), *options)
    reply, superseded, has_log, fields, *memory = yield from run_script(thread_id, resource_id, call, *others)
    thread = read_thread(thread_id, fields)
    if thread is None:
        return
    record = {
        "kind": "thread",
        "id": thread_id,
        "title": thread.title,
        "metadata": thread.metadata,
        "created_at": thread.created_at.isoformat(),
        "updated_at": thread.updated_at.isoformat(),
        "clone_of": thread.clone_of,
    }
    if title_from := as_dict(fields).get(b"title_from"):
        record["title_from"] = title_from.decode()
    records = [record, *_memory_records(thread_id, *memory)]
    waiting = [(float(row[1]), _message(thread_id, *row) | _flags(row[1])) for row in _rows(superseded, 3)]
    while True:
        rows = _rows(reply, 4 if vectors else 3)
        is_last = len(rows) < BATCH
        due = [one for one in waiting if is_last or one[0] <= float(rows[-1][1])]
        waiting = waiting[len(due) :]
        due += [(float(row[1]), _message(thread_id, *row)) for row in rows]
        yield Emit([*records, *(message for _, message in sorted(due, key=itemgetter(0)))])
        if is_last:
            break
        records = []
        wanted = replace(wanted, above=int(rows[-1][1]))
        call = READ.call(keys.all, owner, *wanted.arguments(), *options)
        (reply,) = yield from run_script(thread_id, resource_id, call)
    if has_log:
        (reply,) = yield from run_script(thread_id, resource_id, copy_command(state, thread_id, resource_id))
        yield Emit(_log_records(thread_id, as_copy(thread_id, reply).parts))


def _log_records(thread_id: str | None, parts: Sequence[Part]) -> list[Record]:
    chunks = [
        {
            "thread_id": part.thread_id,
            "covered": part.covered,
            "level": part.level,
            "observations": [_observation(one) for one in part.observations],
        }
        for part in parts
    ]
    return [{"kind": "observations", "thread_id": thread_id, "chunks": chunks}] if chunks else []


def _observation(one: Observation) -> Record:
    names = ("id", "text", "priority", "level")
    record: Record = {name: getattr(one, name) for name in names} | {"said_at": one.said_at.isoformat()}
    mentions = [[thread, message] for thread, message, _ in one.mentions]
    return record | {"sources": [list(source) for source in one.sources]} | ({"mentions": mentions} if mentions else {})


def _rows(reply: list[Any], width: int) -> list[tuple[Any, ...]]:
    """Return the messages of a reply of `read.lua`: id, sequence number, value, and vectors if they were read."""
    return list(zip(*(reply[start::width] for start in range(1, width + 1)), strict=True))


def _flags(seq: bytes) -> Record:
    """Return the flags of a superseded message. An older version of the next message has a fraction as sequence number."""
    return {"superseded": True, "version": True} if b"." in seq else {"superseded": True}


def _message(thread_id: str, id: bytes, seq: bytes, value: bytes, vectors: list[Any] | None = None) -> Record:
    row = decode_message(id, seq, value, thread_id)
    body = json.loads(value, parse_constant=lambda _: None)  # stored messages may hold NaN, which is not JSON
    body["data"]["id"] = row.message.id  # a copy keeps the body of its source
    record: Record = {
        "kind": "message",
        "thread_id": thread_id,
        "stored_at": row.stored_at.isoformat(),
        "message": {"type": body["type"], "data": body["data"]},
    }
    if body["state"]:
        record["turn"] = True  # saved by a turn: a client that resends the conversation may supersede it
    if row.refused:
        record["refused"] = True
    if row.upto and getattr(row.message, "tool_calls", None):
        record["structured"] = True
    stored = [as_dict(vector) for vector in vectors or ()]
    digest = index_digest_of(value)
    if vectors is not None and digest and all(stored):  # an evicted vector is empty
        data = [b64encode(vector[b"vector"]).decode() for vector in stored]
        record["vectors"] = {"settings": digest.decode(), "data": data}
    return record


def _memory_commands(memory: str, revisions: str) -> list[Command]:
    return [("HGETALL", memory), ("XRANGE", revisions, "-", "+")]


def _memory_records(thread_id: str | None, memory: Any, entries: list[Any]) -> list[Record]:
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
