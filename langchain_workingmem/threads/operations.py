"""Plans over threads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal

from langchain_workingmem._engine.effects import Plan, send
from langchain_workingmem._redis.access import check_owner, create_thread_document, guarded_write, owner_tag, run_script
from langchain_workingmem._redis.codec import as_dict, canonical_json, check_key, from_micros
from langchain_workingmem._redis.keys import check_id, decode, encode
from langchain_workingmem._redis.queries import (
    build_filter,
    count_search,
    read_cursor,
    rows_of,
    sorted_search,
    total_of,
)
from langchain_workingmem._redis.scripts import DELETE, Script
from langchain_workingmem._redis.state import search_with_repair
from langchain_workingmem._redis.sweeping import SWEEP_SIZE, continue_sweep, has_sweep_left, sweep_left, sweep_now
from langchain_workingmem._text.nesting import shown
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem.errors import (
    OptionError,
    ThreadNotFoundError,
)
from langchain_workingmem.models import Page, Thread
from langchain_workingmem.options import at_least, at_most, one_of

if TYPE_CHECKING:
    from langchain_workingmem._engine.effects import Command
    from langchain_workingmem._redis.state import MemoryState


CHANGE = Script("threads/change_thread")
TRANSFER = Script("threads/transfer")

OrderBy = Literal["updated_at", "created_at"]
_METADATA = b"metadata:"


def read_thread(thread_id: str, reply: Any) -> Thread | None:
    """Read a thread document, None when there is none."""
    row = as_dict(reply)
    if b"resource" not in row:
        return None
    title, clone_of = row.get(b"title"), row.get(b"clone_of")
    return Thread(
        id=thread_id,
        resource_id=decode(row[b"resource"]),
        title=title.decode() if title is not None else None,
        metadata={
            name.removeprefix(_METADATA).decode(): json.loads(value)
            for name, value in row.items()
            if name.startswith(_METADATA)
        },
        created_at=from_micros(row[b"created_at"]),
        updated_at=from_micros(row[b"updated_at"]),
        message_count=int(row[b"count"]),
        clone_of=decode(clone_of) if clone_of is not None else None,
        unfinished=b"unfinished" in row,
    )


def read_existing_thread(thread_id: str, reply: Any) -> Thread:
    """Read a thread document; `ThreadNotFoundError` when there is none."""
    thread = read_thread(thread_id, reply)
    if thread is None:
        raise ThreadNotFoundError(thread_id)
    return thread


def thread_fields(title: str | None, metadata: Mapping[str, Any] | None) -> list[str]:
    """Write title and metadata as fields of a thread."""
    if title is not None and not is_utf8(title):
        raise OptionError(f"title={shown(title)}", remedy="use a str of valid Unicode, or None")
    fields = [] if title is None else ["title", title]
    for key, value in _checked(metadata).items():
        fields += [f"metadata:{key}", canonical_json(value, key)]
    return fields


def _checked(metadata: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise OptionError(f"metadata={shown(metadata)}", remedy="use a dict")
    for key in metadata or ():
        check_key(key)
    return metadata or {}


_NOT_METADATA = ("workingMemory", "working_memory")  # where Mastra keeps it


def metadata_of(metadata: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Check what a caller says of metadata."""
    return _checked(_without_memory(metadata))


def _without_memory(metadata: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Refuse working memory in metadata, where nothing would read it; None takes a key away, whatever its name."""
    for key in _NOT_METADATA:
        if isinstance(metadata, Mapping) and metadata.get(key) is not None:
            raise OptionError(
                f"metadata[{key!r}] would not be working memory",
                remedy="pass threads.create(working_memory=...), or use working_memory.update(...) for a thread that is "
                "there",
            )
    return metadata


def create_thread(
    state: MemoryState, thread_id: str, resource_id: str, title: str | None, metadata: Mapping[str, Any] | None
) -> Plan[Thread]:
    """Create a thread. One round trip."""
    fields = thread_fields(title, _without_memory(metadata))
    return read_existing_thread(thread_id, (yield from create_thread_document(state, thread_id, resource_id, fields)))


def goes_on(state: MemoryState, thread_id: str, reply: Any) -> Plan[None]:
    """Go on with what is left to be done in a thread that was written to, as HGETALL gives it."""
    yield from continue_sweep(state, thread_id, sweep_left(as_dict(reply)))


def get_thread(state: MemoryState, thread_id: str, resource_id: str | None) -> Plan[Thread | None]:
    """Read a thread. One round trip."""
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    owner_tag(resource_id)
    (reply,) = yield from send(("HGETALL", keys.thread))
    thread = read_thread(thread_id, reply)
    check_owner(as_dict(reply).get(b"resource"), thread_id, resource_id)
    return thread


def list_threads(
    state: MemoryState,
    resource_id: str | None,
    metadata: Mapping[str, Any] | None,
    limit: int,
    cursor: str | None,
    order_by: OrderBy,
    *,
    descending: bool,
    clone_of: str | None = None,
) -> Plan[Page[Thread]]:
    """List threads, sorted and filtered by the server. One round trip.

    The cursor is a place in the order, not a number of rows: a time, and a thread among those of that very time. So a
    thread that stays where it is is given exactly once, whatever others do, and the last page costs as little as the first.
    """
    at_least(limit, 1, "limit")
    at_most(limit, MOST_ROWS, "limit")
    one_of(order_by, ("updated_at", "created_at"), "order_by")
    index = state.keys.threads_index
    where = build_filter(resource_id=resource_id, metadata=_checked(metadata), clone_of=clone_of)
    behind, bound = None, where
    if cursor is not None:
        at, last = read_cursor(cursor, _CURSOR)
        behind = int(at), state.keys.of(decode(last)).thread
        since, until = (None, int(at)) if descending else (int(at), None)
        bound = where & build_filter(time=order_by, since=since, until=until)
    yield from state.ready()
    search = partial(
        send,
        sorted_search(index, bound, order_by, descending=descending, after=behind, limit=limit + 1),
        count_search(index, where),
    )
    reply, count = yield from search_with_repair(search, state.refresh, create=state.create)
    rows = rows_of(reply)
    shown = rows[:limit]
    more = None
    if len(rows) > limit:
        last = encode(state.keys.thread_of(shown[-1][b"__key"]))
        more = f"{int(shown[-1][order_by.encode()])},{last}"
    threads = [read_thread(state.keys.thread_of(row[b"__key"]), row) for row in shown]
    return Page(items=[thread for thread in threads if thread], total=total_of(count), next_cursor=more)


MOST_ROWS = 500_000  # of one page; Search refuses to return more than a million rows at once
_CURSOR = re.compile(r"(\d{1,16}),([\w.~%-]{1,1536})", re.ASCII)


def all_threads(state: MemoryState, resource_id: str | None, clone_of: str | None = None) -> Plan[list[Thread]]:
    """List all threads, oldest first; a round trip per 1,000."""
    found: list[Thread] = []
    cursor = None
    while True:
        page = yield from list_threads(
            state, resource_id, None, 1000, cursor, "created_at", descending=False, clone_of=clone_of
        )
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def update(
    state: MemoryState,
    thread_id: str,
    resource_id: str | None,
    title: str | EllipsisType | None,
    metadata: Mapping[str, Any] | EllipsisType | None,
) -> Plan[Thread]:
    """Change title and metadata; None deletes a key. One round trip."""
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    merged = {} if isinstance(metadata, EllipsisType) else _checked(_without_memory(metadata))
    doomed = [f"metadata:{key}" for key, value in merged.items() if value is None]
    if title is None:
        doomed.append("title")
    kept = {key: value for key, value in merged.items() if value is not None}
    fields = thread_fields(None if isinstance(title, EllipsisType) else title, kept)
    call = CHANGE.call(keys.all, owner_tag(resource_id), len(doomed), *doomed, *fields, *state.ttl_fields)
    yield from state.ready()
    reply = yield from guarded_write(state, thread_id, [resource_id], call)
    yield from goes_on(state, thread_id, reply)
    return read_existing_thread(thread_id, reply)


def delete(state: MemoryState, thread_id: str, resource_id: str | None) -> Plan[bool]:
    """Delete a thread with all that belongs to it. One round trip, and one for each further slice of its vectors."""
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    call = DELETE.call(keys.all, owner_tag(resource_id), SWEEP_SIZE, "thread")
    ((deleted, *_, left),) = yield from run_script(thread_id, resource_id, call, at_most_once=True)
    if left:
        yield from sweep_now(state, thread_id, "the thread is deleted", "call threads.delete() again")
    return int(deleted) >= 0


def transfer(state: MemoryState, thread_id: str, resource_id: str, to: str) -> Plan[Thread]:
    """Hand a thread over. One round trip, and one for each further slice of its vectors.

    While `to` is being deleted the thread is given back, unless the deletion was faster.
    """
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    owner, heir = encode(check_id(resource_id, "resource_id")), encode(check_id(to, "to"))

    def undo(_: Any, deleted: str) -> Command:
        # it was about to be deleted, and the deletion does not look for it under another owner
        if deleted == resource_id:
            return DELETE.call(keys.all, heir, SWEEP_SIZE, "thread")
        return TRANSFER.call(keys.all, heir, owner, SWEEP_SIZE)

    call = TRANSFER.call(keys.all, owner, heir, SWEEP_SIZE)
    reply = yield from guarded_write(state, thread_id, [resource_id, to], call, undo, at_most_once=True)
    thread = read_existing_thread(thread_id, reply)
    if has_sweep_left(as_dict(reply)):
        remedy = f"recall.reindex(thread_id={thread_id!r}) goes on, and the next write to the thread"
        yield from sweep_now(state, thread_id, f"the thread belongs to {to!r} now", remedy)
    return thread


def lineage(state: MemoryState, thread_id: str, resource_id: str | None) -> Plan[list[Thread]]:
    """Follow clones back to their source, oldest first. A round trip per generation."""
    thread: Thread | None = yield from get_existing_thread(state, thread_id, resource_id)
    found: dict[str, Thread] = {}
    while thread is not None and thread.id not in found:
        found[thread.id] = thread
        thread = yield from _before(state, thread)
    return list(found.values())[::-1]


def source(state: MemoryState, thread_id: str, resource_id: str | None) -> Plan[Thread | None]:
    """Read the thread that this one was cloned from. Two round trips, one when it is no clone."""
    thread = yield from get_existing_thread(state, thread_id, resource_id)
    return (yield from _before(state, thread))


def get_existing_thread(state: MemoryState, thread_id: str, resource_id: str | None) -> Plan[Thread]:
    """Read a thread that must be there. One round trip."""
    thread = yield from get_thread(state, thread_id, resource_id)
    if thread is None:
        raise ThreadNotFoundError(thread_id)
    return thread


def _before(state: MemoryState, thread: Thread) -> Plan[Thread | None]:
    """Read the source of a clone; None when it is gone, or somebody else's by now, or a thread that took its id."""
    if thread.clone_of is None or thread.clone_of == thread.id:
        return None
    before = yield from get_thread(state, thread.clone_of, None)
    if before is None or before.resource_id != thread.resource_id or before.created_at > thread.created_at:
        return None
    return before


def clones(state: MemoryState, thread_id: str, resource_id: str | None) -> Plan[list[Thread]]:
    """List the clones of a thread that belong to its owner, oldest first. Two round trips per 1,000."""
    thread = yield from get_thread(state, thread_id, resource_id)
    owner = resource_id if thread is None else thread.resource_id
    return (yield from all_threads(state, owner, clone_of=thread_id))
