"""Reading messages as they are stored: pages of a thread, and of all threads of a user."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import reduce
from math import inf
from operator import getitem
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.plan import compute, send
from langchain_workingmem._redis.codec import is_readable, read_rows
from langchain_workingmem._redis.keys import Facts, check_id
from langchain_workingmem._redis.scripts import PAGE, owner_tag, read_reply
from langchain_workingmem._text.values import to_micros
from langchain_workingmem.checks import check_roles
from langchain_workingmem.errors import WorkingMemError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage


ASKED = 1000  # threads read in one round trip
PAGE_SIZE = 500  # messages read in one round trip, where only those of some roles are wanted
_ROLE = re.compile(rb'[-!]?{"at":\d+,"number":\d+,"type":"(\w+)"')


def selection(
    *, since: datetime | None = None, until: datetime | None = None, roles: Sequence[str] | None = None, **rest: Any
) -> dict[str, Any]:
    """Check and convert what selects messages, for `read_page`."""
    filters = {
        "since": None if since is None else to_micros(since),
        "until": None if until is None else to_micros(until),
        "roles": None if roles is None else check_roles(roles),
        **rest,
    }
    return {name: value for name, value in filters.items() if value is not None and value is not False}


@dataclass(slots=True)
class PageOfThread:
    """The reply of `page.lua`, oldest message first."""

    thread_id: str
    total: int = 0
    owner: str | None = None  # encoded; None: there is no thread
    facts: list[Facts] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)  # None for what Redis has evicted; with `times` microseconds

    @classmethod
    def read(cls, reply: Any, thread_id: str, user_id: str | None, filters: Mapping[str, Any]) -> PageOfThread:
        """Read the reply to a `page.lua` call; raise what it refuses."""
        head, order = read_reply(reply, thread_id, user_id), slice(None, None, -1 if "newest" in filters else 1)
        facts = [Facts.read(text, is_current="superseded" not in filters) for text in head.get("shown") or ()]
        return cls(thread_id, head.get("total", 0), head.get("owner"), facts[order], reply[1][order])

    def rows(self) -> list[StoredMessage]:
        """Return the messages, without those that cannot be read."""
        pairs = zip(self.facts, self.bodies, strict=True)
        rows = ((facts.seq, facts.total_tokens if facts.digest else 0, body) for facts, body in pairs)
        return read_rows(rows, self.thread_id)


def read_page(state: MemoryState, thread_id: str, user_id: str | None, filters: dict[str, Any]) -> Plan[PageOfThread]:
    """Read a page of a thread. One round trip; with roles one for each 500 messages."""
    if "roles" in filters:
        return (yield from _read_roles(state, thread_id, user_id, filters))
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    (reply,) = yield from send(PAGE.on(keys, user=owner_tag(user_id), **filters))
    return PageOfThread.read(reply, thread_id, user_id, filters)


def _read_roles(state: MemoryState, thread_id: str, user_id: str | None, filters: dict[str, Any]) -> Plan[PageOfThread]:
    """Read messages of some roles, of the whole thread for a `total`."""
    filters = {**filters}
    roles, limit, total = filters.pop("roles"), filters.pop("limit", inf), filters.pop("total", False)
    edge, selected, count = "below" if "newest" in filters else "above", list[tuple[Facts, Any]](), 0
    cursor = filters.pop(edge, None) if total else None
    while True:
        page = yield from read_page(state, thread_id, user_id, {**filters, "limit": PAGE_SIZE})
        pairs = [*zip(page.facts, page.bodies, strict=True)][:: -1 if edge == "below" else 1]
        for facts, body in pairs:
            if (match := _ROLE.match(body or b"")) and match[1].decode() in roles:
                count += 1
                is_on_page = cursor is None or (facts.seq < cursor if edge == "below" else facts.seq > cursor)
                if is_on_page and len(selected) < limit:
                    selected.append((facts, body))
        if len(pairs) < PAGE_SIZE or (len(selected) >= limit and not total):
            selected.sort(key=lambda pair: pair[0].seq)
            facts_list, bodies = [facts for facts, _ in selected], [body for _, body in selected]
            return PageOfThread(thread_id, count, page.owner, facts_list, bodies)
        filters[edge] = pairs[-1][0].seq


def complete_rows(state: MemoryState, rows: Sequence[StoredMessage]) -> Plan[list[StoredMessage]]:
    """Make the messages of rows, with their media; those that cannot be read are left out. One round trip for media."""
    yield from with_media(state, rows)
    size = sum(len(str(row.record["data"]["content"])) for row in rows)
    return (yield from compute(lambda: [row for row in rows if is_readable(row)], size))


def with_media(state: MemoryState, rows: Iterable[StoredMessage], *, keep_lost: bool = False) -> Plan[None]:
    """Put long strings back into rows; a row that has lost its own cannot be read, unless `keep_lost`."""
    incomplete = [row for row in rows if "media" in row.record]
    if not incomplete:
        return
    commands = [
        ("HMGET", state.keys.of(row.thread_id).media, *(f"{row.place}:{i}" for i in range(len(row.record["media"]))))
        for row in incomplete
    ]
    for row, texts in zip(incomplete, (yield from send(*commands)), strict=True):
        if None not in texts:
            for (*path, name), text in zip(row.record.pop("media"), texts, strict=True):
                reduce(getitem, path, row.record["data"])[name] = text.decode("utf-8", "surrogatepass")
            vars(row).pop("message", None)  # it is made again
        elif not keep_lost:
            row.record["type"] = "gone"


def read_pages(
    state: MemoryState, user_id: str, requests: Sequence[tuple[str, dict[str, Any]]]
) -> Plan[list[PageOfThread]]:
    """Read from many threads; one with a new owner, or a damaged one, returns nothing. One round trip per 1,000."""
    pages: list[PageOfThread] = []
    for start in range(0, len(requests), ASKED):
        batch = requests[start : start + ASKED]
        commands = (PAGE.on(state.keys.of(id), user=owner_tag(user_id), **filters) for id, filters in batch)
        for (id, filters), reply in zip(batch, (yield from send(*commands)), strict=True):
            try:
                pages.append(PageOfThread.read(reply, id, user_id, filters))
            except WorkingMemError:
                pages.append(PageOfThread(id))
    return pages
