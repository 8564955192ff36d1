"""The pages that show more than one thread: the users, and what became known of one over time."""

from __future__ import annotations

import asyncio
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._engine.effects import Plan, send
from langchain_workingmem._redis.codec import from_micros, to_micros
from langchain_workingmem._redis.queries import aggregate, build_filter, rows_of, sorted_search
from langchain_workingmem.display.pictures import counted
from langchain_workingmem.studio.conversations import MOST_ROWS, ROWS
from langchain_workingmem.studio.site import Missing, number, size
from langchain_workingmem.threads import read_thread, search_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from datetime import datetime

    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import Observation, Thread
    from langchain_workingmem.studio.site import Studio

LOGS = 100  # threads with logs of one page
READ = 20  # logs of threads that a timeline reads, where each thread has its own
MICROSECONDS = 16  # digits of a time
EVERY_FILE = "{*,.*}"


async def users(studio: Studio, request: Request) -> Response:
    """List the users who own threads, the one whose thread changed last first."""
    if studio.resource_id is not None:
        raise Missing
    limit, cursor = size(request, "limit", ROWS, MOST_ROWS), request.query_params.get("cursor")
    page = await studio.memory.users.alist(limit=limit, cursor=cursor)
    return studio.page(request, "users.html", user=None, users=page, limit=None if limit == ROWS else limit)


# ---------------------------------------------------------------------- logs of threads


def threads_with_logs(state: MemoryState, resource_id: str, limit: int) -> Plan[list[tuple[Thread, int]]]:
    """Find the threads of a resource that have a log, the last changed first, each with the revision of its log.

    Two round trips, one without any. The flag of a thread also stands for values: the log itself tells.
    """
    index, where = state.keys.threads_index, build_filter(resource_id=resource_id)
    load = ("LOAD", 3, "@__key", "@updated_at", "@covered", "FILTER", "exists(@__key) && exists(@covered)")
    order = ("SORTBY", 4, "@updated_at", "DESC", "@__key", "ASC", "LIMIT", 0, limit, "LOAD", "*")
    (reply,) = yield from search_threads(state, aggregate(index, where, *load, *order))
    rows = [(state.keys.thread_of(row[b"__key"]), row) for row in rows_of(reply)]
    logs = (yield from send(*(("HGET", state.keys.of(id).observations, "revision") for id, _ in rows))) if rows else []
    found = [(read_thread(id, row), log) for (id, row), log in zip(rows, logs, strict=True)]
    return [(thread, int(log)) for thread, log in found if thread is not None and log is not None]


# ---------------------------------------------------------------------- a timeline


class Event(NamedTuple):
    """Something that became known of a user, sorted with the newest first."""

    before: int  # microseconds, negative
    kind: str
    what: str
    text: str
    address: str

    @property
    def at(self) -> datetime:
        """Return when that was."""
        return from_micros(-self.before)


class _Asked(NamedTuple):
    """The part of a timeline that a page wants."""

    studio: Studio
    resource: str
    until: int | None  # microseconds
    rows: int

    def event(self, at: datetime, kind: str, what: str, text: str, path: str, /, **where: Any) -> Event:
        """Make an event, with the address of the page that shows more."""
        return Event(-to_micros(at), kind, what, text, self.studio.url(path, user=self.resource, **where))


def _threads_until(state: MemoryState, resource_id: str, until: int | None, rows: int) -> Plan[list[list[Thread]]]:
    """Read the threads that began last, and those that changed last. One round trip."""
    commands = []
    for time in ("created_at", "updated_at"):
        where = build_filter(resource_id=resource_id, until=until, time=time)
        commands.append(sorted_search(state.keys.threads_index, where, time, descending=True, limit=rows))
    replies = yield from search_threads(state, *commands)
    keys = state.keys
    return [
        [one for row in rows_of(reply) if (one := read_thread(keys.thread_of(row[b"__key"]), row))] for reply in replies
    ]


async def _threads(asked: _Asked) -> list[Event]:
    plan = _threads_until(asked.studio.state, asked.resource, asked.until, asked.rows)
    began, changed = await asked.studio.run(plan)
    found = [
        asked.event(one.created_at, "thread", "began", one.title or one.id, "/thread", thread=one.id) for one in began
    ]
    for one in changed:
        if one.updated_at != one.created_at:
            what = f"last changed, {counted(one.message_count, 'message')}"
            found.append(asked.event(one.updated_at, "thread", what, one.title or one.id, "/thread", thread=one.id))
    return found


async def _observations(asked: _Asked) -> list[Event]:
    studio, resource, part = asked.studio, asked.resource, asked.studio.memory.observations
    scope = studio.state.observations and studio.state.observations.scope
    log: Iterable[Observation] = () if scope == "thread" else await part.aget(resource_id=resource)
    logs: list[tuple[str | None, list[Observation]]] = [(None, [*log])]
    if not logs[0][1] and scope != "resource":
        threads = await studio.run(threads_with_logs(studio.state, resource, READ))
        ids = [one.id for one, _ in threads]
        read = await asyncio.gather(*(part.aget(thread_id=id, resource_id=resource) for id in ids))
        logs = [(id, [*own]) for id, own in zip(ids, read, strict=True)]
    return [
        asked.event(one.said_at, "observation", one.priority, one.text, "/observations", thread=id, id=one.id)
        for id, own in logs
        for one in own
    ]


async def _values(asked: _Asked) -> list[Event]:
    memory = asked.studio.documents.get("resource")
    if memory is None:
        return []
    part, owner = memory.working_memory, asked.resource
    state = await part.aget(resource_id=owner)
    if state.timeline:
        return [
            asked.event(
                one.since, "value", one.origin, f"{path}: {one.text or 'nothing'}", "/working-memory", value=path
            )
            for path, history in state.timeline.items()
            for one in history
        ]
    return [
        asked.event(
            one.updated_at, "value", one.origin or "", f"revision {one.revision}", "/working-memory", later=one.revision
        )
        for one in await part.arevisions(resource_id=owner, limit=asked.rows)
        if one.updated_at is not None
    ]


async def _files(asked: _Asked) -> list[Event]:
    found = []
    for one in await asked.studio.memory.files.aglob(EVERY_FILE, resource_id=asked.resource):
        by = f" by {one.by}" if one.by else ""
        found.append(
            asked.event(one.updated_at, "file", f"revision {one.revision}{by}", one.path, "/files", path=one.path)
        )
        if one.revision > 1:
            found.append(asked.event(one.created_at, "file", "first written", one.path, "/files", path=one.path))
    return found


KINDS: dict[str, Callable[[_Asked], Coroutine[Any, Any, list[Event]]]] = {
    "threads": _threads,
    "observations": _observations,
    "values": _values,
    "files": _files,
}


async def timeline(studio: Studio, request: Request) -> Response:
    """Show threads, observations, values of working memory and files of a user in the order of time, the newest first.

    An address names the time of the last event of the page before, and how many events of that time were shown.
    """
    resource, given = studio.owner(request), request.query_params
    limit = size(request, "limit", ROWS, MOST_ROWS)
    until, skip = number(given.get("until"), MICROSECONDS), number(given.get("skip")) or 0
    chosen = given.get("kind") if given.get("kind") in KINDS else None
    asked = _Asked(studio, resource, until, limit + skip + 1)
    parts = await asyncio.gather(*(read(asked) for kind, read in KINDS.items() if chosen in (None, kind)))
    candidates = (event for part in parts for event in part if until is None or -event.before <= until)
    events = nsmallest(asked.rows, candidates)[skip:]
    further = None
    if len(events) > limit:
        last = events[limit - 1].before
        same = sum(event.before == last for event in events[:limit])
        further = {"until": -last, "skip": same + (skip if -last == until else 0)}
    values = {"events": events[:limit], "kinds": list(KINDS), "chosen": chosen, "further": further}
    return studio.page(request, "timeline.html", user=resource, limit=None if limit == ROWS else limit, **values)
