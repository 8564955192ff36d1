"""The plans of `memory.threads`: create, read, list, change, delete and transfer threads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from langchain_workingmem._engine.effects import Plan, send
from langchain_workingmem._redis.access import (
    SWEEP_SIZE,
    check_owner,
    owner_tag,
    run_script,
    sweep_now,
)
from langchain_workingmem._redis.codec import as_dict, canonical_json, check_key, from_micros
from langchain_workingmem._redis.indexes import search_with_repair
from langchain_workingmem._redis.keys import check_id, decode, encode
from langchain_workingmem._redis.queries import (
    build_filter,
    count_search,
    read_cursor,
    rows_of,
    sorted_search,
    total_of,
)
from langchain_workingmem._redis.rooms import tell_deleted
from langchain_workingmem._redis.scripts import DELETE
from langchain_workingmem._text.nesting import shown
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem.checks import at_least, at_most, check_filter, one_of
from langchain_workingmem.errors import OptionError, ThreadNotFoundError
from langchain_workingmem.models import Page, Thread

if TYPE_CHECKING:
    from langchain_workingmem._redis.state import MemoryState


OrderBy = Literal["updated_at", "created_at"]
MOST_ROWS = 500_000  # threads per page; Search refuses to return more than a million rows
_CURSOR = re.compile(r"(\d{1,16}),([\w.~%-]{1,1536})", re.ASCII)
_METADATA = b"metadata:"


def read_thread(thread_id: str, reply: Any) -> Thread | None:
    """Convert a reply of HGETALL; None if it is empty."""
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
    """Convert a reply of HGETALL; `ThreadNotFoundError` if it is empty."""
    thread = read_thread(thread_id, reply)
    if thread is None:
        raise ThreadNotFoundError(thread_id)
    return thread


def thread_fields(title: str | None, metadata: Mapping[str, Any] | None) -> list[str]:
    """Return title and metadata as fields of the thread hash."""
    if title is not None and not is_utf8(title):
        raise OptionError(f"title={shown(title)}", remedy="use a str of valid Unicode, or None")
    fields = [] if title is None else ["title", title]
    for key, value in check_metadata(metadata).items():
        fields += [f"metadata:{key}", canonical_json(value, key)]
    return fields


def check_metadata(metadata: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return metadata with valid keys; None becomes empty."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise OptionError(f"metadata={shown(metadata)}", remedy="use a dict")
    for key in metadata or ():
        check_key(key)
    return metadata or {}


def check_new_metadata(metadata: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Check metadata that a caller sets: working memory in it is an error, because nothing would read it there."""
    checked = check_metadata(metadata)
    for key in ("workingMemory", "working_memory"):  # where Mastra keeps it
        if checked.get(key) is not None:  # None deletes a key that an import has brought
            raise OptionError(
                f"metadata[{key!r}] would not be working memory",
                remedy="pass threads.create(working_memory=...), or use working_memory.update(...) for an existing thread",
            )
    return checked


def get_thread(state: MemoryState, thread_id: str, resource_id: str | None) -> Plan[Thread | None]:
    """Read a thread, None if it does not exist. One round trip."""
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

    The cursor is the time and the id of the last thread of a page, not a number of rows. So a thread whose time stays is
    listed exactly once, whatever others write, and the last page costs as little as the first.
    """
    at_least(limit, 1, "limit")
    at_most(limit, MOST_ROWS, "limit")
    one_of(order_by, ("updated_at", "created_at"), "order_by")
    index = state.keys.threads_index
    where = build_filter(resource_id=resource_id, metadata=check_metadata(check_filter(metadata)), clone_of=clone_of)
    after, page = None, where
    if cursor is not None:
        time, last = read_cursor(cursor, _CURSOR)
        after = int(time), state.keys.of(decode(last)).thread
        since, until = (None, int(time)) if descending else (int(time), None)
        page = where & build_filter(time=order_by, since=since, until=until)
    yield from state.indexes.ready()
    search = partial(
        send,
        sorted_search(index, page, order_by, descending=descending, after=after, limit=limit + 1),
        count_search(index, where),
    )
    reply, count = yield from search_with_repair(search, state.indexes.refresh, create=state.indexes.create)
    rows = rows_of(reply)
    threads = [read_thread(state.keys.thread_of(row[b"__key"]), row) for row in rows[:limit]]
    next_cursor = None
    if len(rows) > limit:
        row = rows[limit - 1]
        next_cursor = f"{int(row[order_by.encode()])},{encode(state.keys.thread_of(row[b'__key']))}"
    return Page(items=[thread for thread in threads if thread], total=total_of(count), next_cursor=next_cursor)


def all_threads(state: MemoryState, resource_id: str | None, clone_of: str | None = None) -> Plan[list[Thread]]:
    """List all threads, oldest first. A round trip per 1,000."""
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


def delete(state: MemoryState, thread_id: str, resource_id: str | None) -> Plan[bool]:
    """Delete a thread with all of its data. One round trip, and one for each further slice of its vectors."""
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    call = DELETE.call(keys.all, owner_tag(resource_id), SWEEP_SIZE, "thread")
    ((deleted, *_, more, left),) = yield from run_script(thread_id, resource_id, call, at_most_once=True)
    yield from tell_deleted(state, thread_id, more)
    if left:
        yield from sweep_now(state, thread_id, "the thread is deleted", "call threads.delete() again")
    return int(deleted) >= 0


def get_existing_thread(state: MemoryState, thread_id: str, resource_id: str | None) -> Plan[Thread]:
    """Read a thread; `ThreadNotFoundError` if it does not exist. One round trip."""
    thread = yield from get_thread(state, thread_id, resource_id)
    if thread is None:
        raise ThreadNotFoundError(thread_id)
    return thread
