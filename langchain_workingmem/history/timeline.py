"""The messages of all threads of a user, in order of time, a page at a time.

The threads of a user live in different slots of a cluster, so no key can hold all of its messages, and a page is a
merge.
Threads that end before the page are left out. The others return the times of their next messages: a few at first, then
four
times as many, as long as they can still reach into the page. Only the messages of the page itself are read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.plan import Plan, send
from langchain_workingmem._redis.indexes import search_with_repair
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.queries import build_filter, read_cursor, rows_of, sorted_search
from langchain_workingmem.checks import at_least
from langchain_workingmem.errors import WorkingMemError
from langchain_workingmem.history.read import PageOfThread, made, page_command, selection
from langchain_workingmem.models import Page

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage

THREADS = 10_000  # listed in one round trip
ASKED = 1000  # threads read in one round trip
AT_FIRST = 2000  # times read from all threads together in the first round
_CURSOR = re.compile(r"(\d{1,16}):(.+)", re.DOTALL)


@dataclass(slots=True)
class _Thread:
    """A thread, and the times of its next messages, as far as they are known."""

    id: str
    messages: int
    last_at: int  # time of its newest message
    start: int | None
    times: list[int]
    is_open: bool = True  # there may be more times


def of_user(
    state: MemoryState, user_id: str, since: datetime | None, until: datetime | None, limit: int, cursor: str | None
) -> Plan[Page[StoredMessage]]:
    """Plan `history.for_user`. The cursor is the time and thread of the last message."""
    at_least(limit, 1, "limit")
    check_id(user_id, "user_id")
    at, last_thread = (None, "") if cursor is None else read_cursor(cursor, _CURSOR)
    span = selection(since=since, until=until)
    start, end = span.get("since"), span.get("until")
    threads = yield from _threads(state, user_id, start)
    total = sum(thread.messages for thread in threads)
    if span:
        counted = {**span, "limit": 0, "total": True}
        within = [(thread.id, counted) for thread in threads if start is None or thread.last_at >= start]
        total = sum(page.total for page in (yield from _ask(state, user_id, within)))
    if at is not None:
        for thread in threads:
            # times rise strictly within a thread, so a thread after the cursor's goes on just after that time
            thread.start = max(int(at) + (thread.id <= last_thread), thread.start or 0)
    waiting = [thread for thread in threads if thread.start is None or thread.last_at >= thread.start]
    found = yield from _merge(state, user_id, waiting, end, limit)
    rows = yield from _read(state, user_id, found[:limit])
    more = None if len(found) <= limit else "{}:{}".format(*found[limit - 1])
    return Page(items=rows, total=total, next_cursor=more)


def _threads(state: MemoryState, user_id: str, start: int | None) -> Plan[list[_Thread]]:
    """List the threads that have messages. One round trip per 10,000."""
    index, owned = state.keys.threads_index, partial(build_filter, user_id=user_id)
    found: list[_Thread] = []
    last: tuple[int, str] | None = None
    yield from state.indexes.ready()
    while True:
        where = owned(since=last and last[0])
        command = sorted_search(index, where, "created_at", limit=THREADS, after=last, fields=("count", "last_at"))
        (reply,) = yield from search_with_repair(
            partial(send, command), state.indexes.refresh, create=state.indexes.create
        )
        rows = rows_of(reply)
        found += [
            _Thread(state.keys.thread_of(row[b"__key"]), int(row[b"count"]), int(row[b"last_at"]), start, [])
            for row in rows
            if int(row.get(b"count", 0))
        ]
        if len(rows) < THREADS:
            return found
        last = int(rows[-1][b"created_at"]), rows[-1][b"__key"].decode()


def _merge(
    state: MemoryState, user_id: str, threads: list[_Thread], until: int | None, limit: int
) -> Plan[list[tuple[int, str]]]:
    """Find the times and threads of the next messages: `limit`, and one more if there are more."""
    found: list[tuple[int, str]] = []
    due, edge = threads, until
    while due:
        asked = []
        for thread in due:
            most = min(limit + 1 - len(thread.times), 4 * len(thread.times) or max(1, AT_FIRST // len(threads)))
            start = thread.times[-1] + 1 if thread.times else thread.start
            asked.append((thread.id, {"limit": most, "since": start, "until": edge, "times": True}))
        for thread, (_, wanted), page in zip(due, asked, (yield from _ask(state, user_id, asked)), strict=True):
            times = [at for at in page.bodies if isinstance(at, int)]  # others are damaged
            thread.times += times
            thread.is_open = len(page.bodies) == wanted["limit"] and bool(times)
        found = nsmallest(limit + 1, ((time, thread.id) for thread in threads for time in thread.times))
        last = found[limit] if len(found) > limit else None  # nothing after it is on the page
        edge = until if last is None else last[0]
        due = [one for one in due if one.is_open and (last is None or (one.times[-1], one.id) < last)]
    return found


def _read(state: MemoryState, user_id: str, found: Sequence[tuple[int, str]]) -> Plan[list[StoredMessage]]:
    """Read the messages of a page, without those deleted meanwhile. One round trip per 1,000 threads."""
    by_thread: dict[str, list[int]] = defaultdict(list)
    for time, id in found:
        by_thread[id].append(time)
    asked = [(id, {"limit": len(times), "since": times[0], "until": times[-1]}) for id, times in by_thread.items()]
    pages = yield from _ask(state, user_id, asked)
    rows = yield from made(state, [row for page in pages for row in page.rows()])
    return sorted(rows, key=lambda row: (row.stored_at, row.thread_id))


def _ask(state: MemoryState, user_id: str, asked: Sequence[tuple[str, dict[str, Any]]]) -> Plan[list[PageOfThread]]:
    """Read from many threads; a thread with a new owner, or a damaged one, returns nothing. One round trip per 1,000."""
    pages: list[PageOfThread] = []
    for start in range(0, len(asked), ASKED):
        some = asked[start : start + ASKED]
        calls = (page_command(state, id, user_id, wanted) for id, wanted in some)
        for (id, _), reply in zip(some, (yield from send(*calls)), strict=True):
            try:
                pages.append(PageOfThread.read(reply, id, user_id))
            except WorkingMemError:
                pages.append(PageOfThread(id))
    return pages
