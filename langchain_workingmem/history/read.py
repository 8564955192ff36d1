"""Reading messages as they are stored: pages of a thread, and of all threads of a user."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.plan import compute, send
from langchain_workingmem._redis.codec import is_readable, put_media, read_rows
from langchain_workingmem._redis.keys import Facts, check_id
from langchain_workingmem._redis.queries import read_cursor
from langchain_workingmem._redis.scripts import PAGE, owner_tag, read_reply
from langchain_workingmem._text.values import to_micros
from langchain_workingmem.checks import at_least, check_roles
from langchain_workingmem.errors import WorkingMemError
from langchain_workingmem.models import Page

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from langchain_workingmem._engine.plan import Command, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage


THREADS = 10_000  # listed in one round trip
ASKED = 1000  # threads read in one round trip
_CURSOR = re.compile(r"(\d{1,16}):(.+)", re.DOTALL)


def selection(
    *, since: datetime | None = None, until: datetime | None = None, roles: Sequence[str] | None = None, **rest: Any
) -> dict[str, Any]:
    """Check and convert what selects messages, for the head of `page.lua`."""
    found = {
        "since": None if since is None else to_micros(since),
        "until": None if until is None else to_micros(until),
        "roles": None if roles is None else f",{','.join(check_roles(roles))},",
        **rest,
    }
    return {name: value for name, value in found.items() if value is not None and value is not False}


@dataclass(slots=True)
class PageOfThread:
    """The reply of `page.lua`, oldest message first."""

    thread_id: str
    total: int = 0
    owner: str | None = None  # encoded; None: there is no thread
    facts: list[Facts] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)  # None for what Redis has evicted; with `times` microseconds

    @classmethod
    def read(cls, reply: Any, thread_id: str, user_id: str | None, wanted: Mapping[str, Any]) -> PageOfThread:
        """Read the reply to a `page_command`; raise what it refuses."""
        found, order = read_reply(reply, thread_id, user_id), slice(None, None, -1 if "newest" in wanted else 1)
        facts = [Facts.read(text, is_current="superseded" not in wanted) for text in found.get("shown") or ()]
        return cls(thread_id, found.get("total", 0), found.get("owner"), facts[order], reply[1][order])

    def rows(self) -> list[StoredMessage]:
        """Return the messages, without those that cannot be read."""
        pairs = zip(self.facts, self.bodies, strict=True)
        found = ((facts.seq, facts.upto if facts.words else 0, body) for facts, body in pairs)
        return read_rows(found, self.thread_id)


def page_command(state: MemoryState, thread_id: str, user_id: str | None, wanted: dict[str, Any]) -> Command:
    """Return the call that reads a page; `wanted` is what `selection` returns."""
    return PAGE.on(state.keys.of(check_id(thread_id, "thread_id")), user=owner_tag(user_id), **wanted)


def read_page(
    state: MemoryState, thread_id: str, user_id: str | None, wanted: dict[str, Any], *beside: Command
) -> Plan[tuple[PageOfThread, list[Any]]]:
    """Read a page of a thread, and the replies to the commands `beside`. One round trip."""
    reply, *others = yield from send(page_command(state, thread_id, user_id, wanted), *beside)
    return PageOfThread.read(reply, thread_id, user_id, wanted), others


def made(state: MemoryState, rows: Sequence[StoredMessage]) -> Plan[list[StoredMessage]]:
    """Make the messages of rows, with their media; those that cannot be read are left out. One round trip for media."""
    yield from with_media(state, rows)
    size = sum(len(str(row.record["data"]["content"])) for row in rows)
    return (yield from compute(lambda: [row for row in rows if is_readable(row)], size))


def with_media(state: MemoryState, rows: Iterable[StoredMessage], *, keep_lost: bool = False) -> Plan[None]:
    """Put long strings back into rows; a row that has lost its own cannot be read, unless `keep_lost`."""
    waiting = [row for row in rows if "media" in row.record]
    if not waiting:
        return
    commands = [
        ("HMGET", state.keys.of(row.thread_id).media, *(f"{row.place}:{at}" for at in range(len(row.record["media"]))))
        for row in waiting
    ]
    for row, texts in zip(waiting, (yield from send(*commands)), strict=True):
        if None not in texts:
            put_media(row.record, texts)
            vars(row).pop("message", None)  # it is made again
        elif not keep_lost:
            row.record["type"] = "gone"


# ---------------------------------------------------------------------- all threads of a user
# They live in different slots of a cluster, so no key holds all messages: a page is a merge of the times of each.


def of_user(
    state: MemoryState, user_id: str, since: datetime | None, until: datetime | None, limit: int, cursor: str | None
) -> Plan[Page[StoredMessage]]:
    """Plan `history.for_user`. The cursor is the time and thread of the last message."""
    at_least(limit, 1, "limit")
    check_id(user_id, "user_id")
    at, last_thread = (None, "") if cursor is None else read_cursor(cursor, _CURSOR)
    span = selection(since=since, until=until)
    start, end = span.get("since"), span.get("until")
    threads = [one for one in (yield from state.indexes.threads(user_id)) if one.message_count]
    total, waiting = sum(count for _, count, _ in threads), list[tuple[str, dict[str, Any]]]()
    if span:
        within = [(id, {**span, "limit": 0, "total": True}) for id, _, last_at in threads if last_at >= (start or 0)]
        total = sum(page.total for page in (yield from _ask(state, user_id, within)))
    for id, _, last_at in threads:
        # times rise strictly within a thread, so a thread after the cursor's goes on just after that time
        first = start if at is None else max(int(at) + (id <= last_thread), start or 0)
        if first is None or last_at >= first:
            waiting.append((id, {"limit": limit + 1, "since": first, "until": end, "times": True}))
    pages = yield from _ask(state, user_id, waiting)
    times = ((time, page.thread_id) for page in pages for time in page.bodies if isinstance(time, int))
    found = nsmallest(limit + 1, times)
    on_page: dict[str, list[int]] = defaultdict(list)
    for time, id in found[:limit]:
        on_page[id].append(time)
    asked = [(id, {"limit": len(times), "since": times[0], "until": times[-1]}) for id, times in on_page.items()]
    pages = yield from _ask(state, user_id, asked)
    rows = yield from made(state, [row for page in pages for row in page.rows()])  # but for those deleted meanwhile
    rows = sorted(rows, key=lambda row: (row.stored_at, row.thread_id))
    more = None if len(found) <= limit else "{}:{}".format(*found[limit - 1])
    return Page(items=rows, total=total, next_cursor=more)


def _ask(state: MemoryState, user_id: str, asked: Sequence[tuple[str, dict[str, Any]]]) -> Plan[list[PageOfThread]]:
    """Read from many threads; one with a new owner, or a damaged one, returns nothing. One round trip per 1,000."""
    pages: list[PageOfThread] = []
    for start in range(0, len(asked), ASKED):
        some = asked[start : start + ASKED]
        calls = (page_command(state, id, user_id, wanted) for id, wanted in some)
        for (id, wanted), reply in zip(some, (yield from send(*calls)), strict=True):
            try:
                pages.append(PageOfThread.read(reply, id, user_id, wanted))
            except WorkingMemError:
                pages.append(PageOfThread(id))
    return pages
