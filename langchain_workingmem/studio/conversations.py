"""The pages of threads: their list, one conversation with its superseded messages, and what is found in it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, ToolMessage
from starlette.responses import RedirectResponse

from langchain_workingmem._engine.effects import send
from langchain_workingmem._redis.access import owner_tag, run_script
from langchain_workingmem._redis.codec import decode_message
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.queries import (
    build_filter,
    columns,
    count_search,
    is_stale,
    numbers,
    total_of,
    word_search,
    words_of,
)
from langchain_workingmem._text.rendering import message_text
from langchain_workingmem.display.pictures import as_json
from langchain_workingmem.errors import OptionError, RedisReplyError
from langchain_workingmem.history import READ, MessageSelection
from langchain_workingmem.recall import Candidates
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
ROWS = 50  # threads, messages, users or events of a page
MOST_ROWS = 500
MOST_SUPERSEDED = 200  # on one page
FOUND = 50  # messages that a search shows
CHUNKS = 4 * FOUND  # that the index of words is asked for: a long message has several
COMPARED = 2_000  # messages that one page compares itself
_AROUND = 100  # characters on each side of the first word that is found
_SHORT = 4  # letters


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
    part = await studio.run(read_slice(studio.state, one.id, one.resource_id, **bounds))
    if below is not None and part.has_newer:  # unless the page ends with the newest message
        key = studio.state.keys.of(one.id).order
        (newer,) = await studio.run(send(("ZCOUNT", key, below, "+inf")))
        part = replace(part, has_newer=bool(newer))
    is_newest = not part.has_newer and above is None
    values = {"part": part, "said": as_said(part.rows), "branches": branches, "at": at, "is_newest": is_newest}
    values["marked"] = marked if given.get("plain") != "1" else lambda _: None
    return studio.page(request, "thread.html", user=one.resource_id, thread=one, **values)


async def _message(studio: Studio, one: Thread, id: str) -> Response:
    """Continue at a message that an address or a form names by its id, or by its position."""
    keys = studio.state.keys.of(one.id)
    commands = [("ZSCORE", key, check_id(id, "message")) for key in (keys.order, keys.superseded)]
    current, superseded = await studio.run(send(*commands))
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


# ---------------------------------------------------------------------- finding a message, without reading the whole conversation


async def find(studio: Studio, request: Request) -> Response:
    """List the messages of a thread that have all words: by the index of recall, else, or with `every`, by reading a part of it."""
    one, given = await studio.thread(request), request.query_params
    text, every, below = given.get("q", "").strip(), given.get("every") == "1", number(given.get("below"))
    state, found, older = studio.state, None, None
    if text and not every:
        found = await studio.run(by_index(state, one, text))
    if text and (every := found is None):
        part = await studio.run(read_slice(state, one.id, one.resource_id, limit=COMPARED, below=below))
        wanted = [word.casefold() for word in text.split()]
        rows = [row for row in reversed(part.rows) if all(word in said(row).casefold() for word in wanted)]
        found, older = rows[:FOUND], part.first if part.has_older else None
        if len(rows) > FOUND:
            older = found[-1].seq
    words = text.split() if every else words_of(text)
    hits = [(row, around(said(row), words)) for row in found or ()]
    values = {"hits": hits, "every": every, "older": older, "read": COMPARED, "most": FOUND, "question": text}
    return studio.page(request, "find.html", user=one.resource_id, thread=one, **values)


def by_index(state: MemoryState, thread: Thread, text: str) -> Plan[list[StoredMessage] | None]:
    """Find messages with all these words, or other forms of them, the newest first; None: the index does not know this thread.

    Three round trips. The best `FOUND` are returned.
    """
    name, where = state.keys.vectors_index, build_filter(resource_id=thread.resource_id, thread_id=thread.id)
    words = words_of(text)
    asked = [word_search(name, [" ".join(words)], where, CHUNKS)] if words else []
    try:
        counted, *replies = yield from send(count_search(name, where), *asked)
    except RedisReplyError as error:
        if not is_stale(error):
            raise
        return None
    if not total_of(counted) or not replies:
        return None
    keys, ranks, _ = columns(replies[0], "score", content=False)
    chunks, _ = Candidates.read(keys, numbers(ranks), 0)
    own = (seq for seq, chunk in zip(chunks.seqs.tolist(), chunks.chunks, strict=True) if not chunk.startswith(b"o"))
    seqs = sorted([*dict.fromkeys(own)][:FOUND], reverse=True)  # not the words of observations
    return (yield from _at(state, thread.id, seqs))


def _at(state: MemoryState, thread_id: str, seqs: list[int]) -> Plan[list[StoredMessage]]:
    """Read the messages at these positions, without their media; those that are gone are left out."""
    keys = state.keys.of(thread_id)
    named = (yield from send(*(("ZRANGEBYSCORE", keys.order, seq, seq) for seq in seqs))) if seqs else []
    ids = {seq: found[0] for seq, found in zip(seqs, named, strict=True) if found}
    if not ids:
        return []
    (values,) = yield from send(("HMGET", keys.messages, *ids.values()))
    rows = zip(ids.items(), values, strict=True)
    return [decode_message(id, str(seq).encode(), value, thread_id) for (seq, id), value in rows if value is not None]


def said(row: StoredMessage) -> str:
    """Return what a search of a conversation reads of a message: its text, its calls, the names of its files."""
    return message_text(row.message, whole=True)


def pattern(word: str) -> str:
    """Match a word at its beginning, because the index also finds other endings; a short word as a whole."""
    return (
        rf"\b{re.escape(word)}\b" if len(word) <= _SHORT else rf"\b{re.escape(word[: max(_SHORT, len(word) - 2)])}\w*"
    )


def around(text: str, words: list[str]) -> list[tuple[bool, str]]:
    """Return the text around the first of these words, in pieces: whether it is one of the words, and the piece."""
    text = " ".join(text.split())
    one_of = "|".join([*map(pattern, words), *map(re.escape, words)]) or r"(?!)"
    first = re.search(one_of, text, re.IGNORECASE)
    start = 0 if first is None else max(0, first.start() - _AROUND)
    shown = text[start : start + 3 * _AROUND]
    pieces = re.split(f"({one_of})", shown, flags=re.IGNORECASE)
    found = [(bool(at % 2), piece) for at, piece in enumerate(pieces) if piece]
    return [*([(False, "… ")] if start else []), *found, *([(False, " …")] if start + len(shown) < len(text) else [])]
