"""The first page, and the lists of users and of threads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from langchain_workingmem.errors import OptionError
from langchain_workingmem.studio import reading
from langchain_workingmem.studio.site import Missing, size

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem.models import Page, Thread
    from langchain_workingmem.studio.site import Studio

SEARCHED = 1_000  # of the newest threads, whose titles and ids a filter compares
ROWS = 50  # threads or users of a page
NEWEST = 6  # threads and users that the overview lists


def whose(studio: Studio, request: Request) -> str | None:
    """Return the user of a page that may also show all users: None."""
    is_everyone = studio.user_id is None and not request.query_params.get("user")
    return None if is_everyone else studio.owner(request)


def overview(studio: Studio, request: Request) -> Response:
    """Show how much is stored, what happened in the last days, and where to go on; what to do if nothing is stored."""
    user, memory = whose(studio, request), studio.memory
    if studio.is_empty():
        return studio.page(request, "empty.html", user=user)
    with studio.times(user):
        threads = memory.threads.list(user_id=user, limit=reading.LOOKED_AT)
        days = memory._core.run(reading.days(studio.state, threads.items))
    newest, documents = threads.items[:NEWEST], studio.documents.get("user")
    values = {
        "users": memory.users.list(limit=NEWEST) if user is None else None,
        "threads": threads,
        "newest": newest,
        "beginnings": memory._core.run(reading.beginnings(studio.state, newest)),
        "counts": memory._core.run(reading.counts(studio.state, user)),
        "days": days,
        "document": documents.working_memory.get(user_id=user) if documents and user is not None else None,
        "looked_at": reading.LOOKED_AT,
    }
    return studio.page(request, "overview.html", user=user, **values)


def users(studio: Studio, request: Request) -> Response:
    """List the users who own threads, the one whose thread changed last first."""
    if studio.user_id is not None:
        raise Missing
    limit, cursor = size(request, "limit", ROWS), request.query_params.get("cursor")
    page = studio.memory.users.list(limit=limit, cursor=cursor)
    return studio.page(request, "users.html", user=None, users=page)


def threads(studio: Studio, request: Request) -> Response:
    """List the threads of a user, or the newest of all: filtered by title, id or metadata, in pages."""
    query, user = request.query_params, whose(studio, request)
    text = query.get("q", "").strip()[:200]
    page = studio.memory.threads.list(
        user_id=user,
        metadata=_metadata(query.get("metadata", "")[:500]),
        limit=SEARCHED if text else size(request, "limit", ROWS),
        cursor=None if text else query.get("cursor"),
    )
    matching = _with_words(page, text)
    beginnings = studio.memory._core.run(reading.beginnings(studio.state, matching))
    searched = min(page.total, SEARCHED) if text else None
    values = {"page": page, "threads": matching, "beginnings": beginnings, "searched": searched}
    return studio.page(request, "threads.html", user=user, **values)


def _with_words(page: Page[Thread], text: str) -> list[Thread]:
    """Return the threads whose title or id has all words."""
    words = text.casefold().split()
    names = ((thread, f"{thread.title or ''}\n{thread.id}".casefold()) for thread in page)
    return [thread for thread, name in names if all(word in name for word in words)][: 2 * ROWS]


def _metadata(text: str) -> dict[str, Any] | None:
    """Read `key=value`: the value is JSON, or else text."""
    key, sign, value = (part.strip() for part in text.partition("="))
    if not (key or sign):
        return None
    if not sign or not key:
        raise OptionError(f"metadata {text!r}", remedy="write key=value, such as topic=travel or stars=5")
    try:
        return {key: json.loads(value)}
    except (ValueError, RecursionError):
        return {key: value}
