"""The pages of users and of threads: their lists, one conversation, and what is found in it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from langchain_workingmem._text.messages import message_text
from langchain_workingmem.errors import OptionError
from langchain_workingmem.studio.site import Missing, confirm, number, size

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem.models import Thread
    from langchain_workingmem.studio.site import Studio

SEARCHED = 1_000  # of the newest threads, whose titles and ids a search compares
ROWS = 50  # threads, messages or users of a page
COMPARED = 2_000  # messages that one page of a search reads
_AROUND = 100  # characters on each side of the first word that is found


async def users(studio: Studio, request: Request) -> Response:
    """List the users who own threads, the one whose thread changed last first."""
    if studio.user_id is not None:
        raise Missing
    limit, cursor = size(request, "limit", ROWS), request.query_params.get("cursor")
    page = await studio.memory.users.alist(limit=limit, cursor=cursor)
    return studio.page(request, "users.html", user=None, users=page)


async def threads(studio: Studio, request: Request) -> Response:
    """List the threads of a user, or the newest of all: filtered by title, id or metadata, in pages."""
    given = request.query_params
    is_everyone = studio.user_id is None and not given.get("user")
    user, words = None if is_everyone else studio.owner(request), given.get("q", "").strip()
    page = await studio.memory.threads.alist(
        user_id=user,
        metadata=_metadata(given.get("metadata", "")),
        limit=SEARCHED if words else size(request, "limit", ROWS),
        cursor=None if words else given.get("cursor"),
    )
    found = [one for one in page if _is_about(one, words)]
    values = {"page": page, "threads": found, "searched": min(page.total, SEARCHED) if words else None}
    return studio.page(request, "threads.html", user=user, **values)


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
    """Show a part of a conversation: the newest messages, or those below a position."""
    one, below = await studio.thread(request), number(request.query_params.get("below"))
    limit, cursor = size(request, "limit", ROWS), None if below is None else str(below)
    page = await studio.memory.history.apage(one.id, user_id=one.user_id, limit=limit, cursor=cursor, descending=True)
    rows = page.items[::-1]
    values = {"rows": rows, "older": rows[0].place if page.next_cursor else None, "below": below}
    return studio.page(request, "thread.html", user=one.user_id, thread=one, **values)


async def find(studio: Studio, request: Request) -> Response:
    """List the messages of a part of a conversation that have all words, the newest first."""
    one, given = await studio.thread(request), request.query_params
    text, below = given.get("q", "").strip(), number(given.get("below"))
    words, hits, older = text.casefold().split(), list[Any](), None
    if words:
        page = await studio.memory.history.apage(
            one.id,
            user_id=one.user_id,
            limit=COMPARED,
            cursor=None if below is None else str(below),
            descending=True,
        )
        said = ((row, message_text(row.message, whole=True)) for row in page)
        found = [(row, text) for row, text in said if all(word in text.casefold() for word in words)]
        hits = [(row, around(text, words)) for row, text in found[:ROWS]]
        if len(found) > ROWS:
            older = found[ROWS - 1][0].place
        elif page.next_cursor:
            older = page.items[-1].place
    values = {"hits": hits, "older": older, "read": COMPARED, "question": text}
    return studio.page(request, "find.html", user=one.user_id, thread=one, **values)


def around(text: str, words: list[str]) -> list[tuple[bool, str]]:
    """Return the text around the first of these words, in pieces: whether it is one of the words, and the piece."""
    text = " ".join(text.split())
    one_of = "|".join(map(re.escape, words))
    first = re.search(one_of, text, re.IGNORECASE)
    start = 0 if first is None else max(0, first.start() - _AROUND)
    pieces = re.split(f"({one_of})", text[start : start + 3 * _AROUND], flags=re.IGNORECASE)
    return [(bool(at % 2), piece) for at, piece in enumerate(pieces) if piece]


async def delete(studio: Studio, request: Request) -> Response:
    """Delete a thread, if its id was repeated."""
    one = await studio.thread(request)
    await confirm(request, one.id, "the thread was not deleted", "its id")
    await studio.memory.threads.adelete(one.id, user_id=one.user_id)
    return studio.go("/", user=one.user_id, done="delete")
