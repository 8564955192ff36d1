"""The pages of threads: their list, and one conversation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.errors import OptionError
from langchain_workingmem.studio.reading import as_said, read_slice
from langchain_workingmem.studio.site import Missing, is_confirmed, number, size

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem.models import Thread
    from langchain_workingmem.studio.site import Studio

SEARCHED = 1_000  # of the newest threads, whose titles and ids a search compares
ROWS = 50  # threads or messages of a page
MOST_ROWS = 500


async def threads(studio: Studio, request: Request) -> Response:
    """List the threads of a resource, or the newest of all: filtered by title, id or metadata, in pages."""
    given = request.query_params
    is_everyone = studio.resource_id is None and not given.get("user")
    resource = None if is_everyone else studio.owner(request)
    words, metadata = given.get("q", "").strip(), _metadata(given.get("metadata", ""))
    order: Any = "created_at" if given.get("order") == "created_at" else "updated_at"
    page = await studio.memory.threads.alist(
        resource_id=resource,
        metadata=metadata,
        limit=SEARCHED if words else size(request, "limit", ROWS, MOST_ROWS),
        cursor=None if words else given.get("cursor"),
        order_by=order,
    )
    found = [one for one in page if _is_about(one, words)][:MOST_ROWS]
    users = dict.fromkeys(one.resource_id for one in page) if is_everyone else ()
    return studio.page(
        request,
        "threads.html",
        user=resource,
        threads=found,
        total=page.total,
        searched=min(page.total, SEARCHED) if words else None,
        next_cursor=None if words else page.next_cursor,
        users=[*users][:ROWS],
    )


def _is_about(thread: Thread, words: str) -> bool:
    text = f"{thread.title or ''}\n{thread.id}".casefold()
    return all(word in text for word in words.casefold().split())


def _metadata(given: str) -> dict[str, Any] | None:
    """Read `key=value`: the value is JSON, or else text."""
    if not given.strip():
        return None
    key, sign, value = given.strip().partition("=")
    if not sign or not key.strip():
        raise OptionError(f"metadata {given!r}", remedy="write key=value, such as topic=travel or stars=5")
    try:
        return {key.strip(): json.loads(value)}
    except (ValueError, RecursionError):
        return {key.strip(): value.strip()}


async def thread_of(studio: Studio, request: Request) -> Thread:
    """Return the thread of a page. One of another resource is missing."""
    resource, ids = studio.owner(request), request.query_params.getlist("thread")
    if len(ids) != 1:
        raise Missing
    found = await studio.memory.threads.aget(check_id(ids[0], "thread"), resource_id=resource)
    if found is None:
        raise Missing
    return found


async def thread(studio: Studio, request: Request) -> Response:
    """Show a part of a conversation: the newest messages, those around one, or those before or after one."""
    one, given = await thread_of(studio, request), request.query_params
    limit = size(request, "limit", ROWS, MOST_ROWS)
    at, below, above = (number(given.get(name, "")) for name in ("at", "below", "above"))
    if at is not None:
        below = at + limit // 2
    branches = given.get("branches") != "0"
    plan = read_slice(
        studio.memory._core.state, one.id, one.resource_id, limit=limit, above=above, below=below, superseded=branches
    )
    part = await studio.memory._core.arun(plan)
    return studio.page(
        request,
        "thread.html",
        user=one.resource_id,
        thread=one,
        part=part,
        said=as_said(part.rows),
        branches=branches,
        can_recall=studio.memory._core.state.recall is not None,
        at=at,
        is_newest=not part.has_newer and above is None,
    )


async def delete(studio: Studio, request: Request) -> Response:
    """Delete a thread, if its id was repeated."""
    one = await thread_of(studio, request)
    form = await request.form()
    if not is_confirmed(form.get("confirm"), one.id):
        raise OptionError("the thread was not deleted", remedy="write its id into the field to confirm the deletion")
    await studio.memory.threads.adelete(one.id, resource_id=one.resource_id)
    return studio.go("/", user=one.resource_id)
