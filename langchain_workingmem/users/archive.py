"""The plan that exports all data of a user as records: dicts of JSON values with a `kind`."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from dataclasses import replace
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.messages import message_to_dict

from langchain_workingmem._documents.media import digests_in
from langchain_workingmem._engine.plan import Plan, compute, send
from langchain_workingmem._redis.access import run_script
from langchain_workingmem._redis.codec import as_dict, count_characters, decode_message, index_digest_of
from langchain_workingmem._text.clock import from_micros
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.rooms import load_files
from langchain_workingmem.errors import ThreadOwnershipError
from langchain_workingmem.history import READ, MessageSelection, with_media
from langchain_workingmem.threads import list_threads, read_thread
from langchain_workingmem.users.sections import END, header

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from langchain_workingmem._engine.plan import Command, Step
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage

BATCH = 200  # messages of one round trip


Records: TypeAlias = "Step[dict[str, Any]]"
Then: TypeAlias = "Callable[[], Records] | None"


def export(state: MemoryState, user_id: str, *, vectors: bool) -> Records:
    """Return all data of a user, step by step. A round trip per 100 threads, and one per thread and 200 messages."""
    yield from state.indexes.ready()
    # `ends`: an archive without its last record is not whole
    head = {**header(check_id(user_id, "user_id")), "ends": True}
    return [head], _counted(_export_user(state, user_id, vectors=vectors), Counter())


def _counted(step: Records, counts: Counter[str]) -> Records:
    records, rest = yield from step
    counts.update(record["kind"] for record in records)
    if rest is None:
        return [*records, {"kind": END, "records": {**counts}}], None
    return records, _counted(rest, counts)


def _export_user(state: MemoryState, user_id: str, *, vectors: bool) -> Records:
    _, *memory = state.keys.of_user(user_id)
    notes_of_files = state.keys.files_of_user(user_id)[3]
    row, revisions, has_files = yield from send(*_memory_commands(*memory), ("EXISTS", notes_of_files))
    files = partial(load_files().exported, state, user_id) if has_files else None
    values = partial(_export_values, state, user_id, files) if b"kept" in as_dict(row) else files
    return _memory_records(None, row, revisions), _export_page(state, user_id, None, values, vectors=vectors)


def _export_values(state: MemoryState, user_id: str, then: Then) -> Records:
    return (yield from load_keeping().exported(state, None, user_id)), then and then()


def _export_page(state: MemoryState, user_id: str, cursor: str | None, then: Then, *, vectors: bool) -> Records:
    page = yield from list_threads(state, user_id, None, 100, cursor, "created_at", descending=False)
    if page.next_cursor is not None:
        then = partial(_export_page, state, user_id, page.next_cursor, then, vectors=vectors)
    return [], _export_threads(state, user_id, [thread.id for thread in page], then, vectors=vectors)


def _export_threads(state: MemoryState, user_id: str, ids: Sequence[str], then: Then, *, vectors: bool) -> Records:
    if not ids:
        return [], then and then()
    rest = partial(_export_threads, state, user_id, ids[1:], then, vectors=vectors)
    return (yield from _within(_export_thread(state, ids[0], user_id, vectors=vectors), rest))


def _within(step: Records, rest: Callable[[], Records]) -> Records:
    """Export a thread to its end, or until it has another owner: a transfer after the listing."""
    try:
        records, more = yield from step
    except ThreadOwnershipError:
        return [], rest()
    return records, rest() if more is None else _within(more, rest)


def _export_thread(state: MemoryState, thread_id: str, user_id: str, *, vectors: bool) -> Records:
    """Return a thread, its working memory, its messages with the superseded ones where they were, and its log.

    Nothing if it is deleted.
    """
    keys, owner = state.keys.of(thread_id), encode(user_id)
    others: tuple[Command, ...] = (
        READ.call(keys.all, owner, "superseded", 1),
        ("HGETALL", keys.thread),
        ("ZRANGE", keys.aliases, -2, -1, "BYSCORE"),
        *_memory_commands(keys.memory, keys.revisions),
    )
    wanted = MessageSelection(limit=BATCH)
    options = ("vectors", 1) if vectors else ()
    call = READ.call(keys.all, owner, *wanted.arguments(), *options)
    reply, superseded, fields, deleted, *memory = yield from run_script(thread_id, user_id, call, *others)
    thread = read_thread(thread_id, fields)
    if thread is None:
        return [], None
    row = as_dict(fields)
    title = row.get(b"title_source"), thread.title
    names = ("id", "metadata", "created_at", "updated_at", "source_id")
    record = {"kind": "thread", **{name: _plain(getattr(thread, name)) for name in names}}
    record |= {"title": thread.title if title[0] is None else None}
    record |= {"deleted": [id.decode() for id in deleted]} if deleted else {}
    records = [record, *_memory_records(thread_id, *memory)]
    waiting = yield from _messages(state, thread_id, _rows(superseded, 3), superseded=True)

    def messages(reply: list[Any], waiting: list[Any]) -> Plan[tuple[list[dict[str, Any]], Records | None]]:
        rows = _rows(reply, 4 if vectors else 3)
        is_last = len(rows) < BATCH
        due = [one for one in waiting if is_last or one[0] <= float(rows[-1][1])]
        waiting = waiting[len(due) :]
        due += yield from _messages(state, thread_id, rows, title)
        found = [message for _, message in sorted(due, key=itemgetter(0))]
        return found, end() if is_last else more(int(rows[-1][1]), waiting)

    def more(above: int, waiting: list[Any]) -> Records:
        call = READ.call(keys.all, owner, *replace(wanted, above=above).arguments(), *options)
        (reply,) = yield from run_script(thread_id, user_id, call)
        return (yield from messages(reply, waiting))

    def end() -> Records:
        found: list[dict[str, Any]] = []
        if has_log:
            found += yield from load("observations").exported(state, thread_id, user_id)
        if b"kept" in as_dict(memory[0]):
            found += yield from load_keeping().exported(state, thread_id, user_id)
        return found, None

    found, step = yield from messages(reply, waiting)
    return [*records, *found], step


def _rows(reply: list[Any], width: int) -> list[tuple[Any, ...]]:
    """Return the messages of a reply of `read.lua`: id, sequence number, value, and vectors if they were read."""
    return list(zip(*(reply[start::width] for start in range(1, width + 1)), strict=True))


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _messages(
    state: MemoryState,
    thread_id: str,
    rows: list[tuple[Any, ...]],
    title: tuple[bytes | None, str | None] = (None, None),
    *,
    superseded: bool = False,
) -> Plan[list[tuple[float, dict[str, Any]]]]:
    """Return positions and records of messages, with media; without those deleted meanwhile. One round trip if they have any."""
    read = [(decode_message(row[0], row[1], row[2], thread_id), row) for row in rows]
    gone: set[int] = set()
    whole = [found.message for found, row in read if digests_in(row[2])]
    if whole:
        gone = yield from with_media(state, whole, thread_id)

    def records() -> list[tuple[float, dict[str, Any]]]:
        return [
            (
                float(row[1]),
                _message(found, *row[2:], title=title[1] if row[1] == title[0] else None, superseded=superseded),
            )
            for found, row in read
            if id(found.message) not in gone
        ]

    return (yield from compute(records, count_characters(whole)))


def _message(
    row: StoredMessage, value: bytes, vectors: list[Any] | None = None, *, title: str | None, superseded: bool
) -> dict[str, Any]:
    # stored messages may hold NaN, which is not JSON
    message = json.loads(json.dumps(message_to_dict(row.message)), parse_constant=lambda _: None)
    flags = {
        "turn": json.loads(value)["state"],  # saved by a turn: a client that resends the conversation may supersede it
        "refused": row.refused,
        "structured": row.upto and getattr(row.message, "tool_calls", None),
        "superseded": superseded,
    }
    record: dict[str, Any] = {
        "kind": "message",
        "thread_id": row.thread_id,
        "stored_at": _plain(row.stored_at),
        "message": message,
    }
    record |= {name: True for name, is_set in flags.items() if is_set}
    record |= {"title": title} if title is not None else {}
    stored = [as_dict(vector) for vector in vectors or ()]
    digest = index_digest_of(value)
    if vectors is not None and digest and all(stored):  # an evicted vector is empty
        data = [b64encode(vector[b"vector"]).decode() for vector in stored]
        record["vectors"] = {"settings": digest.decode(), "data": data}
    return record


def _memory_commands(memory: str, revisions: str) -> list[Command]:
    return [("HGETALL", memory), ("XRANGE", revisions, "-", "+")]


def _memory_records(thread_id: str | None, memory: Any, entries: list[Any]) -> list[dict[str, Any]]:
    row = as_dict(memory)
    if not row:
        return []
    revisions = [_state(as_dict(fields)) for _, fields in entries]
    return [{"kind": "working_memory", "thread_id": thread_id, **_state(row), "revisions": revisions}]


def _state(row: Mapping[bytes, bytes]) -> dict[str, Any]:
    return {
        "document": row[b"document"].decode(),
        "revision": int(row[b"revision"]),
        "updated_at": from_micros(row[b"updated_at"]).isoformat(),
        "origin": row[b"origin"].decode(),
        **({"forgotten": True} if b"forgotten" in row else {}),
    }
