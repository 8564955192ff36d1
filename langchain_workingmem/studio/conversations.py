"""The pages of threads: their list, and one conversation, with its superseded messages and the results of its calls."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, ToolMessage
from starlette.responses import RedirectResponse

from langchain_workingmem._engine.effects import send
from langchain_workingmem._redis.access import owner_tag, run_script
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.display.pictures import as_json
from langchain_workingmem.errors import OptionError
from langchain_workingmem.history import READ, MessageSelection
from langchain_workingmem.studio.marking import marked, parts_of
from langchain_workingmem.studio.site import Missing, confirm, number, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage, Thread
    from langchain_workingmem.studio.marking import Part
    from langchain_workingmem.studio.site import Studio

SEARCHED = 1_000  # of the newest threads, whose titles and ids a search compares
ROWS = 50  # threads or messages of a page
MOST_ROWS = 500
MOST_SUPERSEDED = 200  # on one page


async def threads(studio: Studio, request: Request) -> Response:
    """List the threads of a resource, or the newest of all: filtered by title, id or metadata, in pages."""
    given = request.query_params
    is_everyone = studio.resource_id is None and not given.get("user")
    resource, words = None if is_everyone else studio.owner(request), given.get("q", "").strip()
    order: Any = "created_at" if given.get("order") == "created_at" else "updated_at"
    page = await studio.memory.threads.alist(
        resource_id=resource,
        metadata=_metadata(given.get("metadata", "")),
        limit=SEARCHED if words else size(request, "limit", ROWS, MOST_ROWS),
        cursor=None if words else given.get("cursor"),
        order_by=order,
    )
    found = [one for one in page if _is_about(one, words)][:MOST_ROWS]
    users = [*dict.fromkeys(one.resource_id for one in page)][:ROWS] if is_everyone else ()
    values = {"page": page, "threads": found, "users": users, "searched": min(page.total, SEARCHED) if words else None}
    return studio.page(request, "threads.html", user=resource, **values)


def _is_about(thread: Thread, words: str) -> bool:
    text = f"{thread.title or ''}\n{thread.id}".casefold()
    return all(word in text for word in words.casefold().split())


def _metadata(given: str) -> dict[str, Any] | None:
    """Read `key=value`: the value is JSON, or else text."""
    key, sign, value = (part.strip() for part in given.partition("="))
    if not (key or sign):
        return None
    if not sign or not key:
        raise OptionError(f"metadata {given!r}", remedy="write key=value, such as topic=travel or stars=5")
    try:
        return {key: json.loads(value)}
    except (ValueError, RecursionError):
        return {key: value}


async def thread(studio: Studio, request: Request) -> Response:
    """Show a part of a conversation: the newest messages, those around one, or those before or after one."""
    one, given = await studio.thread(request), request.query_params
    if id := given.get("message", "").strip():
        return await _message(studio, one, id)
    limit, branches = size(request, "limit", ROWS, MOST_ROWS), given.get("branches") != "0"
    at, below, above = (number(given.get(name)) for name in ("at", "below", "above"))
    if at is not None:
        below = at + limit // 2
    if given.get("first") == "1":
        above = -1
    bounds: dict[str, Any] = {"limit": limit, "above": above, "below": below, "superseded": branches}
    part = await studio.memory._core.arun(read_slice(studio.memory._core.state, one.id, one.resource_id, **bounds))
    if below is not None and part.has_newer:  # unless the page ends with the newest message
        key = studio.memory._core.state.keys.of(one.id).order
        (newer,) = await studio.memory._core.arun(send(("ZCOUNT", key, below, "+inf")))
        part = replace(part, has_newer=bool(newer))
    is_newest = not part.has_newer and above is None
    values = {"part": part, "said": as_said(part.rows), "branches": branches, "at": at, "is_newest": is_newest}
    values["marked"] = marked if given.get("plain") != "1" else lambda _: None
    return studio.page(request, "thread.html", user=one.resource_id, thread=one, **values)


async def _message(studio: Studio, one: Thread, id: str) -> Response:
    """Continue at a message that an address or a form names by its id, or by its position."""
    keys = studio.memory._core.state.keys.of(one.id)
    commands = [("ZSCORE", key, check_id(id, "message")) for key in (keys.order, keys.superseded)]
    current, superseded = await studio.memory._core.arun(send(*commands))
    found = superseded if current is None else current
    at = number(id.removeprefix("#")) if found is None else int(found)
    if at is None:
        raise Missing
    address = studio.url("/thread", user=one.resource_id, thread=one.id, at=at)
    return RedirectResponse(f"{address}#m-{at}{'-old' if found is not None and current is None else ''}", 303)


async def delete(studio: Studio, request: Request) -> Response:
    """Delete a thread, if its id was repeated."""
    one = await studio.thread(request)
    await confirm(request, one.id, "the thread was not deleted", "its id")
    await studio.memory.threads.adelete(one.id, resource_id=one.resource_id)
    return studio.go("/", user=one.resource_id, done="delete")


# ---------------------------------------------------------------------- reading a conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A part of a conversation, in order."""

    rows: list[StoredMessage]
    first: int | None  # position of its first message on the current branch; None: there is none
    last: int | None
    has_older: bool
    has_newer: bool
    is_cut: bool = False  # there are more superseded messages than a page shows


def read_slice(
    state: MemoryState,
    thread_id: str,
    resource_id: str,
    *,
    limit: int,
    above: int | None = None,
    below: int | None = None,
    superseded: bool = True,
    roles: tuple[str, ...] = (),
) -> Plan[Slice]:
    """Read messages above a position, else the newest ones below one. Two round trips, one without superseded ones."""
    keys = state.keys.of(check_id(thread_id, "thread_id")).all

    def read(wanted: MessageSelection, *more: str | int) -> Plan[list[tuple[float, StoredMessage]]]:
        call = READ.call(keys, owner_tag(resource_id), *wanted.arguments(), *more)
        (reply,) = yield from run_script(thread_id, resource_id, call)
        # in the order of the reply; pages show the names of media, and the browser asks for pictures
        rows = yield from replace(wanted, newest=False).decoding(reply, thread_id)
        # an older version of a message stands before it, between two positions
        return [*zip(map(float, reply[2::3]), rows, strict=True)]

    is_newest = above is None
    found = yield from read(MessageSelection(limit=limit + 1, newest=is_newest, above=above, below=below, roles=roles))
    has_more, found = len(found) > limit, found[:limit]
    seqs = sorted(row.seq for _, row in found)
    first, last = (seqs[0], seqs[-1]) if seqs else (None, None)
    has_older, has_newer = (has_more, below is not None) if is_newest else (above != -1, has_more)
    older: list[tuple[float, StoredMessage]] = []
    if superseded:
        low = seqs[0] - 1 if is_newest and has_more else above
        high = below if is_newest else seqs[-1] + 1 if has_more else None
        wanted = MessageSelection(limit=MOST_SUPERSEDED + 1, newest=True, above=low, below=high)
        older = yield from read(wanted, "superseded", 1)
        # the older version of a message that the next page begins with belongs there
        end = below - 1 if below is not None else seqs[-1] if has_newer else inf
        found += [(at, replace(row, superseded=True)) for at, row in older[:MOST_SUPERSEDED] if at <= end]
    rows = [row for _, row in sorted(found, key=lambda one: one[0])]
    is_cut = len(older) > MOST_SUPERSEDED
    return Slice(rows=rows, first=first, last=last, has_older=has_older, has_newer=has_newer, is_cut=is_cut)


def read_one(
    state: MemoryState, thread_id: str, resource_id: str, at: int, *more: str | int
) -> Plan[StoredMessage | None]:
    """Read the message at a position, with its media; `more` are options of the script. One round trip, two with media."""
    wanted = MessageSelection(limit=1, above=at - 1, below=at + 1)
    call = READ.call(state.keys.of(thread_id).all, owner_tag(resource_id), *wanted.arguments(), *more)
    (reply,) = yield from run_script(thread_id, resource_id, call)
    return next(iter((yield from wanted.reading(state, reply, thread_id))), None)


@dataclass(slots=True)
class Call:
    """A tool call and its result."""

    name: str
    arguments: str
    result: str | None = None  # None: there is none on this page
    is_error: bool = False


@dataclass(slots=True, kw_only=True)
class Said:
    """A message as it is shown, with the results of its tool calls."""

    row: StoredMessage
    parts: list[Part]
    calls: list[Call] = field(default_factory=list)


def as_said(rows: Sequence[StoredMessage]) -> list[Said]:
    """Put tool results below their calls; a result whose call is not here stands by itself."""
    found: list[Said] = []
    waiting: dict[tuple[str | None, bool], list[Call]] = {}
    for row in rows:
        message, said = row.message, Said(row=row, parts=parts_of(row.message))
        if isinstance(message, ToolMessage) and (calls := waiting.get((message.tool_call_id, row.superseded))):
            call = calls.pop(0)
            call.result, call.is_error = "\n".join(text for _, text, _ in said.parts), message.status == "error"
            continue
        if isinstance(message, AIMessage):
            for made in message.tool_calls:
                said.calls.append(Call(made["name"], as_json(made["args"], 2)))
                waiting.setdefault((made["id"], row.superseded), []).append(said.calls[-1])
            for wrong in message.invalid_tool_calls:
                error = str(wrong["error"] or "invalid")
                said.calls.append(Call(str(wrong["name"]), str(wrong["args"]), error, is_error=True))
        found.append(said)
    return found
