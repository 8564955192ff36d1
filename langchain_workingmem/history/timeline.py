"""The messages of all threads of a resource, in order of time, a page at a time.

Nothing holds all messages of a resource: its threads live in different slots of a cluster. So a page is a merge. Threads that end before the
page are left out, the others tell the times of their next messages, a few at first, and four times as many while they can still reach into
the page. Only the messages of the page itself are read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._engine.effects import Plan, attempt, send
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.queries import build_filter, read_cursor, rows_of, sorted_search
from langchain_workingmem._redis.state import search_with_repair
from langchain_workingmem.errors import RedisReplyError
from langchain_workingmem.history.rows import READ, MessageSelection
from langchain_workingmem.models import Page
from langchain_workingmem.options import at_least

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage

THREADS = 10_000  # that one round trip lists
ASKED = 1000  # threads that one round trip asks
AT_FIRST = 2000  # times that all threads together tell before it is known which of them matter
_CURSOR = re.compile(r"(\d{1,16}):(.+)", re.DOTALL)


class _Thread(NamedTuple):
    id: str
    messages: int
    last_at: int  # none is newer


@dataclass(slots=True)
class _Lane:
    """The next messages of a thread: their times, as far as they are known."""

    id: str
    since: int | None
    times: list[int]
    is_open: bool = True  # there may be more


def of_resource(
    state: MemoryState,
    resource_id: str,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    cursor: str | None,
) -> Plan[Page[StoredMessage]]:
    """Read the messages of all threads of a resource in order of time.

    One round trip per 10,000 threads, one per 1,000 for their times (and one for their counts within `since` and `until`), a few more
    that find the page (five for 100 messages), and one that reads it. The cursor is the time and thread of the last message.
    """
    at_least(limit, 1, "limit")
    check_id(resource_id, "resource_id")
    at, last_thread = (None, "") if cursor is None else read_cursor(cursor, _CURSOR)
    span = MessageSelection.of(limit=0, since=since, until=until, count=True)
    threads = yield from _threads(state, resource_id)
    total = yield from _total(state, resource_id, threads, span)
    lanes = []
    for thread in threads:
        # times rise strictly within a thread, so a thread behind the cursor's goes on just after that time
        start = None if at is None else int(at) + (thread.id <= last_thread)
        lower = max((time for time in (start, span.since) if time is not None), default=None)
        if lower is None or thread.last_at >= lower:
            lanes.append(_Lane(thread.id, lower, []))
    found = yield from _merged(state, resource_id, lanes, span.until, limit)
    rows = yield from _read(state, resource_id, found[:limit])
    more = None if len(found) <= limit else "{}:{}".format(*found[limit - 1])
    return Page(items=rows, total=total, next_cursor=more)


def _threads(state: MemoryState, resource_id: str) -> Plan[list[_Thread]]:
    """List the threads that have messages. A round trip per 10,000."""
    index, where = state.keys.threads_index, build_filter(resource_id=resource_id)
    found: list[_Thread] = []
    behind: tuple[int, str] | None = None
    yield from state.ready()
    while True:
        bound = where if behind is None else where & build_filter(since=behind[0])
        command = sorted_search(index, bound, "created_at", limit=THREADS, after=behind, fields=("count", "last_at"))
        (reply,) = yield from search_with_repair(partial(send, command), state.refresh, create=state.create)
        rows = rows_of(reply)
        found += [
            _Thread(state.keys.thread_of(row[b"__key"]), int(row[b"count"]), int(row[b"last_at"]))
            for row in rows
            if int(row.get(b"count", 0))
        ]
        if len(rows) < THREADS:
            return found
        behind = int(rows[-1][b"created_at"]), rows[-1][b"__key"].decode()


def _total(state: MemoryState, resource_id: str, threads: Sequence[_Thread], span: MessageSelection) -> Plan[int]:
    """Count the messages within a span of time. No round trip for all of them, else one per 1,000 threads."""
    if span.since is None and span.until is None:
        return sum(thread.messages for thread in threads)
    asked = [(thread.id, span) for thread in threads if span.since is None or thread.last_at >= span.since]
    replies = yield from _ask(state, resource_id, asked)
    return sum(int(reply[0]) for reply in replies)


def _merged(
    state: MemoryState, resource_id: str, lanes: list[_Lane], until: int | None, limit: int
) -> Plan[list[tuple[int, str]]]:
    """Find the next messages, as times and threads: `limit`, and one more where there are more."""
    due, edge = lanes, until
    while due:
        asked = []
        for lane in due:
            most = min(limit + 1 - len(lane.times), 4 * len(lane.times) or max(1, AT_FIRST // len(lanes)))
            since = lane.times[-1] + 1 if lane.times else lane.since
            asked.append((lane.id, MessageSelection(limit=most, since=since, until=edge, times=True)))
        for lane, (_, wanted), reply in zip(due, asked, (yield from _ask(state, resource_id, asked)), strict=True):
            times = list(map(int, reply[1:]))
            lane.times += times
            lane.is_open = len(times) == wanted.limit
        found = nsmallest(limit + 1, ((time, lane.id) for lane in lanes for time in lane.times))
        # what lies behind the last of them does not matter any more
        last = found[limit] if len(found) > limit else None
        edge = until if last is None else last[0]
        due = [lane for lane in due if lane.is_open and (last is None or (lane.times[-1], lane.id) < last)]
    return found if lanes else []


def _read(state: MemoryState, resource_id: str, found: Sequence[tuple[int, str]]) -> Plan[list[StoredMessage]]:
    """Read the messages of a page. One round trip per 1,000 threads; what is gone since is left out."""
    places: dict[str, list[int]] = defaultdict(list)
    for time, id in found:
        places[id].append(time)
    asked = [(id, MessageSelection(limit=len(times), since=times[0], until=times[-1])) for id, times in places.items()]
    replies = yield from _ask(state, resource_id, asked)
    rows = [row for (id, wanted), reply in zip(asked, replies, strict=True) for row in wanted.read(reply, id)]
    return sorted(rows, key=lambda row: (row.stored_at, row.thread_id))


def _ask(state: MemoryState, resource_id: str, asked: Sequence[tuple[str, MessageSelection]]) -> Plan[list[Any]]:
    """Read of many threads; one that was handed over to somebody else has nothing. A round trip per 1,000."""
    replies: list[Any] = []
    for some in _parts(asked):
        calls = (READ.call(state.keys.of(id).all, encode(resource_id), *wanted.arguments()) for id, wanted in some)
        for reply in (yield from attempt(*calls)):
            if isinstance(reply, RedisReplyError) and reply.code != "WMOWNER":
                raise reply
            replies.append([0] if isinstance(reply, RedisReplyError) else reply)
    return replies


def _parts(asked: Sequence[tuple[str, MessageSelection]]) -> Iterator[Sequence[tuple[str, MessageSelection]]]:
    return (asked[start : start + ASKED] for start in range(0, len(asked), ASKED))
