"""The plans of `memory.threads`: create, read, list, change, delete and transfer threads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from langchain_workingmem._engine.plan import Plan, compute, send
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.filters import (
    Filter,
    canonical_json,
    check_declared,
    check_key,
    labels_of,
    metadata_filter,
    metadata_in,
)
from langchain_workingmem._redis.keys import check_id, decode, encode
from langchain_workingmem._redis.queries import (
    build_filter,
    count_search,
    read_cursor,
    rows_of,
    sorted_search,
    total_of,
)
from langchain_workingmem._redis.scripts import (
    SWEEP,
    THREAD,
    change_thread,
    check_owner,
    delete_from,
    guarded_write,
    owner_tag,
)
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem._text.values import from_micros, shown
from langchain_workingmem.checks import at_least, one_of
from langchain_workingmem.derived.rows import note_deleted, note_given
from langchain_workingmem.errors import OptionError, ThreadNotFoundError, ThreadOwnershipError, UserDeletedError
from langchain_workingmem.models import Page, Thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._redis.state import MemoryState

OrderBy = Literal["updated_at", "created_at"]
MOST_ROWS = 500_000  # threads of a page, and threads whose metadata is compared: Search returns no more than a million
MOST_METADATA = 1_000  # keys of a thread: a script passes them on one by one
CURSOR = re.compile(r"(\d{1,16}),([\w.~%-]{1,1536})", re.ASCII)  # of a time and an id


# ---------------------------------------------------------------------- one thread


def read_thread(thread_id: str, reply: Any) -> Thread | None:
    """Convert a reply of HGETALL; None if there is no thread."""
    row = as_dict(reply)
    return _read(thread_id, row) if b"user" in row else None


def _read(thread_id: str, row: Mapping[bytes, Any]) -> Thread:
    title, source = row.get(b"title"), row.get(b"source_id")
    return Thread(
        id=thread_id,
        user_id=decode(row[b"user"]),
        title=title.decode() if title is not None else None,
        metadata=metadata_in(row),
        created_at=from_micros(row[b"created_at"]),
        updated_at=from_micros(row[b"updated_at"]),
        message_count=int(row[b"count"]),
        source_id=decode(source) if source is not None else None,
    )


def get_thread(state: MemoryState, thread_id: str, user_id: str | None) -> Plan[Thread | None]:
    """Read a thread, None if it does not exist. One round trip."""
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    owner_tag(user_id)
    (reply,) = yield from send(("HGETALL", keys.thread))
    check_owner(as_dict(reply).get(b"user"), thread_id, user_id)
    return read_thread(thread_id, reply)


def get_existing_thread(state: MemoryState, thread_id: str, user_id: str | None) -> Plan[Thread]:
    """Read a thread; `ThreadNotFoundError` if it does not exist. One round trip."""
    thread = yield from get_thread(state, thread_id, user_id)
    if thread is None:
        raise ThreadNotFoundError(thread_id)
    return thread


def changed(state: MemoryState, thread_id: str, user_id: str | None, what: str, **head: Any) -> Plan[Thread]:
    """Change a thread as `change_thread` does, and return it. One round trip."""
    return _read(thread_id, (yield from change_thread(state, thread_id, user_id, what, **head)))


def thread_fields(title: str | None, metadata: Mapping[str, Any] | None) -> dict[str, str]:
    """Return title and metadata as fields of the thread hash."""
    if title is not None and not is_utf8(title):
        raise OptionError(f"title={shown(title)}", remedy="use a str of valid Unicode, or None")
    values = check_metadata(metadata).items()
    fields = {f"metadata:{key}": canonical_json(value, key) for key, value in values}
    return fields if title is None else {"title": title, **fields}


def in_pairs(fields: Mapping[str, str]) -> list[str]:
    """Return names and values in turn, as `thread.lua` takes them."""
    return [part for pair in fields.items() for part in pair]


def check_metadata(metadata: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return metadata with valid keys; None becomes empty."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise OptionError(f"metadata={shown(metadata)}", remedy="use a dict")
    for key in metadata or ():
        check_key(key)
    if len(metadata or ()) > MOST_METADATA:
        raise OptionError(f"metadata has {len(metadata or ()):,} keys", remedy=f"use at most {MOST_METADATA:,}")
    return metadata or {}


def delete(state: MemoryState, thread_id: str, user_id: str | None) -> Plan[bool]:
    """Delete a thread and all of its data. One round trip, four where it has rows, one for each further 500 vectors."""
    found = yield from delete_from(state, thread_id, user_id, what="thread")
    if owner := found.get("rows"):  # its user's document may hold what was made of them
        yield from note_deleted(state, decode(owner), thread_id)
        found = yield from delete_from(state, thread_id, user_id, what="thread", noted=True)
        yield from note_deleted(state, decode(owner), thread_id)  # rows may have come in between
    return "deleted" in found


def transfer(state: MemoryState, thread_id: str, user_id: str, to: str, *, merging: bool = False) -> Plan[Thread]:
    """Give a thread to another user; `merging`: the tombstone of the present owner is that of the merge."""
    check_id(thread_id, "thread_id"), check_id(user_id, "user_id"), check_id(to, "to")
    row, has_rows, deleted = yield from _give(state, thread_id, user_id, to, [to] if merging else [user_id, to])
    if deleted is not None:
        with suppress(ThreadNotFoundError, ThreadOwnershipError):  # it is gone with its new owner
            if deleted.user_id == user_id:  # whose deletion does not find the thread under the new owner
                yield from delete(state, thread_id, to)
            else:
                yield from _give(state, thread_id, to, user_id, [])
        raise deleted
    thread = read_thread(thread_id, row)
    if thread is None:
        raise ThreadNotFoundError(thread_id)
    if has_rows:
        yield from note_given(state, thread_id, user_id, to)
    return thread


def _give(
    state: MemoryState, thread_id: str, owner: str, to: str, alive: Sequence[str]
) -> Plan[tuple[Any, bool, UserDeletedError | None]]:
    """Change the owner of a thread in the first step, and that of 500 messages' vectors in each, while `alive` are.

    Return its fields, whether it has rows, and the error of a deletion of one of `alive`.
    """
    keys, after = state.keys.of(thread_id), 0
    while True:
        user = encode(to if after else owner)
        call = THREAD.on(keys, user=user, what="transfer", to=encode(to), after=after, most=SWEEP, ttl=state.ttl_ms)
        (found, row), deleted = yield from guarded_write(state, thread_id, alive, call, at_most_once=not after)
        after = found.get("is_left")
        if deleted is not None or not after:
            return row, bool(found.get("has_rows")), deleted


# ---------------------------------------------------------------------- many threads


def list_threads(
    state: MemoryState,
    user_id: str | None,
    metadata: Mapping[str, Any] | None,
    limit: int,
    cursor: str | None,
    order_by: OrderBy,
    *,
    descending: bool,
) -> Plan[Page[Thread]]:
    """List threads, sorted and filtered by the server; where labels do not decide a filter, Python tests all. One round trip."""
    at_least(limit, 1, "limit", MOST_ROWS)
    time = one_of(order_by, ("updated_at", "created_at"), "order_by").encode()
    wanted = metadata_filter(metadata)
    # equality with any key needs no declaration
    check_declared(wanted.keys_beyond_equality, state.thread_filters, "Memory(thread_filters=...)")
    after = None
    if cursor is not None:  # of a time, not a number of rows: so a thread whose time stays is listed exactly once
        micros, last = read_cursor(cursor, CURSOR)
        after = int(micros), state.keys.of(decode(last)).thread
    condition, is_decided = wanted.condition(labels_of)
    if is_decided:
        chosen, index = partial(build_filter, user_id=user_id, metadata=condition), state.keys.threads_index
        at = None if after is None else after[0]
        where = chosen(time=order_by, until=at) if descending else chosen(time=order_by, since=at)
        page = sorted_search(index, where, order_by, descending=descending, after=after, limit=limit + 1)
        reply, count = yield from state.indexes.search(page, count_search(index, chosen()))
        rows, total = rows_of(reply), total_of(count)
    else:
        rows = yield from _matching(state, user_id, wanted, order_by, descending=descending)
        total, sign = len(rows), -1 if descending else 1
        if after is not None:
            edge = sign * after[0], after[1].encode()
            rows = [row for row in rows if (sign * int(row[time]), row[b"__key"]) > edge]
    threads = [read_thread(state.keys.thread_of(row[b"__key"]), row) for row in rows[:limit]]
    next_cursor = None
    if len(rows) > limit:
        row = rows[limit - 1]
        next_cursor = f"{int(row[time])},{encode(state.keys.thread_of(row[b'__key']))}"
    return Page(items=[thread for thread in threads if thread], total=total, next_cursor=next_cursor)


def find_threads(state: MemoryState, user_id: str, wanted: Filter) -> Plan[list[str]]:
    """Find the threads of a user that pass a filter. One round trip, at once right when metadata changes."""
    rows = yield from _matching(state, user_id, wanted, "created_at")
    return [state.keys.thread_of(row[b"__key"]) for row in rows]


def _matching(
    state: MemoryState, user_id: str | None, wanted: Filter, order_by: OrderBy, *, descending: bool = False
) -> Plan[list[dict[bytes, bytes]]]:
    """Return the threads that pass a filter, which Python tests; only keys and times if labels decide it. One round trip."""
    condition, is_decided = wanted.condition(labels_of)
    index, where = state.keys.threads_index, build_filter(user_id=user_id, metadata=condition)
    fields = [order_by] if is_decided else []
    search = sorted_search(index, where, order_by, descending=descending, limit=MOST_ROWS, fields=fields)
    (reply,) = yield from state.indexes.search(search)
    rows = rows_of(reply)
    if len(rows) == MOST_ROWS:
        seen = f"the filter has to be compared with more than {MOST_ROWS:,} threads"
        raise OptionError(seen, remedy="name a user_id")
    if is_decided:
        return rows
    size = sum(wanted.work + sum(map(len, row.values())) for row in rows)
    return (yield from compute(lambda: [row for row in rows if wanted.matches(metadata_in(row))], size))
