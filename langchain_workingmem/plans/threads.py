"""Plans over threads."""

from __future__ import annotations

import json
from dataclasses import replace
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal

from langchain_workingmem.errors import (
    MessageNotFoundError,
    OptionError,
    RedisReplyError,
    ThreadExistsError,
    ThreadNotFoundError,
    ThreadOwnershipError,
    WorkingMemError,
)
from langchain_workingmem.models import ClonedThread, Page, Thread
from langchain_workingmem.options import at_least, one_of
from langchain_workingmem.plans import scripts
from langchain_workingmem.plans.codec import as_dict, canonical, from_micros
from langchain_workingmem.plans.effects import Plan, send
from langchain_workingmem.plans.keys import check_id, decode, encode
from langchain_workingmem.plans.search import counting, listing, matching, parse, total_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from langchain_workingmem.plans.effects import Argument, Command
    from langchain_workingmem.plans.rows import Wanted
    from langchain_workingmem.plans.space import Space

OrderBy = Literal["updated_at", "created_at"]
_METADATA = b"metadata:"


def run_script(thread_id: str, resource_id: str | None, *commands: Command) -> Plan[list[Any]]:
    """Send calls of scripts about one thread; their refusals become our errors."""
    try:
        return (yield from send(*commands))
    except RedisReplyError as error:
        raise refusal(error, thread_id, resource_id) from None


def refusal(error: RedisReplyError, thread_id: str, resource_id: str | None) -> WorkingMemError:
    """Say in our words why a script refused."""
    match error.code:
        case "WMOWNER":
            return ThreadOwnershipError(thread_id, resource_id or "")
        case "WMEXISTS":
            return ThreadExistsError(thread_id)
        case "WMNOTHREAD":
            return ThreadNotFoundError(thread_id)
        case "WMNOMESSAGE":
            return MessageNotFoundError(str(error).partition(" ")[2], thread_id)
    return error


def owner_tag(resource_id: str | None) -> str:
    """Write the owner as scripts expect it; empty: whoever it is."""
    return "" if resource_id is None else encode(check_id(resource_id, "resource_id"))


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
    )


def _need(thread_id: str, reply: Any) -> Thread:
    thread = read_thread(thread_id, reply)
    if thread is None:
        raise ThreadNotFoundError(thread_id)
    return thread


def _fields(title: str | None, metadata: Mapping[str, Any] | None) -> list[str]:
    if title is not None and not isinstance(title, str):
        msg = f"title={title!r}: use a str or None"
        raise OptionError(msg)
    fields = [] if title is None else ["title", title]
    for key, value in (metadata or {}).items():
        fields += [f"metadata:{key}", canonical(value, key)]
    return fields


def create(
    space: Space, thread_id: str, resource_id: str, title: str | None, metadata: Mapping[str, Any] | None
) -> Plan[Thread]:
    """Create a thread. One round trip."""
    keys = space.keys.of(check_id(thread_id, "thread_id"))
    call = scripts.CREATE.call(keys.all, owner_tag(resource_id), *_fields(title, metadata))
    yield from space.ready()
    (reply,) = yield from run_script(thread_id, resource_id, call)
    return _need(thread_id, reply)


def get(space: Space, thread_id: str, resource_id: str | None) -> Plan[Thread | None]:
    """Read a thread. One round trip."""
    keys = space.keys.of(check_id(thread_id, "thread_id"))
    owner_tag(resource_id)
    (reply,) = yield from send(("HGETALL", keys.thread))
    thread = read_thread(thread_id, reply)
    if thread is not None and resource_id not in (None, thread.resource_id):
        raise ThreadOwnershipError(thread_id, str(resource_id))
    return thread


def listed(
    space: Space,
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

    The cursor is a place in the order, not a number of rows: `<time>:<threads already given with that very time>`.
    So no page repeats or skips a thread that did not move, and the last page costs as little as the first.
    """
    at_least(limit, 1, "limit")
    one_of(order_by, ("updated_at", "created_at"), "order_by")
    where = matching(resource_id=resource_id, metadata=metadata, clone_of=clone_of)
    at, skip = _read_cursor(cursor)
    bound = matching(since=None if descending else at, until=at if descending else None, time=order_by)
    index = space.keys.threads_index
    yield from space.ready()
    rows, count = yield from send(
        listing(index, where & bound, order_by, descending=descending, offset=skip, limit=limit + 1),
        counting(index, where),
    )
    threads = [thread for row in parse(rows) if (thread := read_thread(space.keys.thread_of(row.key), row.fields))]
    page = threads[:limit]
    more = None
    if len(threads) > limit:
        times = [int(row.fields[order_by.encode()]) for row in parse(rows)][:limit]
        same = times.count(times[-1])
        more = f"{times[-1]}:{same + (skip if times[-1] == at else 0)}"
    return Page(items=page, total=total_of(count), next_cursor=more)


def _read_cursor(cursor: str | None) -> tuple[int | None, int]:
    if cursor is None:
        return None, 0
    at, _, skip = cursor.partition(":")
    if not (at.isdecimal() and skip.isdecimal()):
        msg = f"cursor={cursor!r}: pass the next_cursor of the page before, unchanged"
        raise OptionError(msg)
    return int(at), int(skip)


def every(space: Space, resource_id: str | None, clone_of: str | None = None) -> Plan[list[Thread]]:
    """List all threads, oldest first; a round trip per 1,000."""
    found: list[Thread] = []
    cursor = None
    while True:
        page = yield from listed(
            space, resource_id, None, 1000, cursor, "created_at", descending=False, clone_of=clone_of
        )
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def update(
    space: Space,
    thread_id: str,
    resource_id: str | None,
    title: str | EllipsisType | None,
    metadata: Mapping[str, Any] | EllipsisType | None,
) -> Plan[Thread]:
    """Change title and metadata; None deletes a key. One round trip."""
    keys = space.keys.of(check_id(thread_id, "thread_id"))
    merged = {} if isinstance(metadata, EllipsisType) or metadata is None else dict(metadata)
    doomed = [f"metadata:{key}" for key, value in merged.items() if value is None]
    if title is None:
        doomed.append("title")
    kept = {key: value for key, value in merged.items() if value is not None}
    fields = _fields(None if isinstance(title, EllipsisType) else title, kept)
    call = scripts.CHANGE.call(keys.all, owner_tag(resource_id), len(doomed), *doomed, *fields)
    yield from space.ready()
    (reply,) = yield from run_script(thread_id, resource_id, call)
    return _need(thread_id, reply)


def delete(space: Space, thread_id: str, resource_id: str | None) -> Plan[bool]:
    """Delete a thread with all that belongs to it. One round trip."""
    keys = space.keys.of(check_id(thread_id, "thread_id"))
    call = scripts.DELETE.call(keys.all, owner_tag(resource_id), "thread")
    (deleted,) = yield from run_script(thread_id, resource_id, call)
    return int(deleted) >= 0


def transfer(space: Space, thread_id: str, resource_id: str, to: str) -> Plan[Thread]:
    """Hand a thread over, its vectors in the same step. One round trip."""
    keys = space.keys.of(check_id(thread_id, "thread_id"))
    check_id(resource_id, "resource_id")
    call = scripts.TRANSFER.call(keys.all, owner_tag(resource_id), encode(check_id(to, "to")))
    (reply,) = yield from run_script(thread_id, resource_id, call)
    return _need(thread_id, reply)


def source(space: Space, thread_id: str, resource_id: str | None) -> Plan[Thread | None]:
    """Read the thread that a clone was made from. Two round trips."""
    thread = yield from get(space, thread_id, resource_id)
    if thread is None:
        raise ThreadNotFoundError(thread_id)
    return None if thread.clone_of is None else (yield from get(space, thread.clone_of, resource_id))


def lineage(space: Space, thread_id: str, resource_id: str | None) -> Plan[list[Thread]]:
    """Follow clones back to the first thread that still exists, oldest first. A round trip per generation."""
    found: list[Thread] = []
    next_id: str | None = thread_id
    while next_id is not None:
        thread = yield from get(space, next_id, resource_id)
        if thread is None:
            break
        found.append(thread)
        next_id = thread.clone_of
    return found[::-1]


CLONE_BATCH = 200  # messages that one step of a clone carries


def clone(
    space: Space,
    source: str,
    new_thread_id: str,
    resource_id: str | None,
    title: str | None,
    metadata: Mapping[str, Any] | None,
    wanted: Wanted,
    message_ids: Container[str] | None,
    new_id: Callable[[], str],
) -> Plan[ClonedThread]:
    """Copy a thread, vectors included, without the embedding model. One round trip, and two per 200 messages.

    Source and copy may live in different slots of a cluster, so what is copied passes through here. Up to 200
    messages the copy appears in one step; a larger one grows, and is deleted again when it fails on the way.
    """
    origin = yield from get(space, source, resource_id)
    if origin is None:
        raise ThreadNotFoundError(source)
    keys, target = space.keys.of(source), space.keys.of(check_id(new_thread_id, "new_thread_id"))
    fields = _fields(
        origin.title if title is None else title,
        {k: v for k, v in (origin.metadata | dict(metadata or {})).items() if v is not None},
    )
    header: list[Argument] = [len(fields) + 2, *fields, "clone_of", encode(source)]
    owner, tag = encode(origin.resource_id), encode(new_thread_id)
    renamed: dict[str, str] = {}
    yield from space.ready()
    while True:
        (reply,) = yield from run_script(
            source, resource_id, scripts.READ.call(keys.all, owner, *wanted.arguments(), "vectors", 1)
        )
        rows = list(zip(*(reply[start::4] for start in range(1, 5)), strict=True))
        if wanted.newest:
            rows.reverse()
        copies: list[Argument] = []
        for id, _, value, vectors in rows:
            old = id.decode()
            if message_ids is None or old in message_ids:
                renamed[old] = new_id()
                copies += [renamed[old], value]
                for vector in vectors:
                    pairs = [part for pair in as_dict(vector).items() for part in pair]
                    copies += [len(pairs), *pairs]
        call = scripts.RESTORE.call(target.all, owner, tag, *header, *copies)
        try:
            (thread,) = yield from run_script(new_thread_id, origin.resource_id, call)
        except WorkingMemError:
            if header == [0]:
                yield from delete(space, new_thread_id, origin.resource_id)
            raise
        header = [0]
        if wanted.newest or len(rows) < CLONE_BATCH:
            return ClonedThread(thread=_need(new_thread_id, thread), message_ids=renamed)
        wanted = replace(wanted, above=int(rows[-1][1]))
