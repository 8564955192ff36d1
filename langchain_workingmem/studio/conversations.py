"""The pages of one conversation, and of what is found in the conversations of a user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_workingmem.studio import reading
from langchain_workingmem.studio.site import MOST_ROWS, Missing, confirm, number, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem.studio.site import Studio

ROWS = 50  # messages of a page
COMPARED = 2_000  # messages of a thread that one page of a search reads
THREADS, COMPARED_EACH, HITS_EACH = 10, 500, 5  # of a page of a search in all threads: of each thread the newest


def thread(studio: Studio, request: Request) -> Response:
    """Show a part of a conversation: the newest messages, those below a position, or those around a message."""
    thread, query = studio.thread(request), request.query_params
    below = number(query.get("below"))
    if message_id := query.get("message"):
        place = studio.memory._core.run(reading.place_of(studio.state, thread, message_id))
        if place is None:
            raise Missing
        return studio.go("/thread", user=thread.user_id, thread=thread.id, below=place + studio.behind, at=f"m-{place}")
    limit, cursor = size(request, "limit", ROWS, MOST_ROWS), None if below is None else str(below)
    page = studio.memory.history.page(thread.id, user_id=thread.user_id, limit=limit, cursor=cursor, descending=True)
    rows = page.items[::-1]
    values = {"rows": rows, "older": rows[0].place if page.next_cursor and rows else None, "below": below}
    return studio.page(request, "thread.html", user=thread.user_id, thread=thread, **values)


def find(studio: Studio, request: Request) -> Response:
    """List the messages that have all words, the newest first: of a conversation, or of all conversations of a user."""
    query = request.query_params
    text = query.get("q", "").strip()[:200]
    if query.get("thread"):
        thread, below = studio.thread(request), number(query.get("below"))
        result = reading.search(studio.memory, thread, text, below=below, most=COMPARED, hits=ROWS)
        values = {"found": [(thread, result)] if text else [], "read": COMPARED, "more": None, "beginnings": {}}
        return studio.page(request, "find.html", user=thread.user_id, thread=thread, question=text, **values)
    user, cursor, results = studio.owner(request), None, []
    if text:
        page = studio.memory.threads.list(user_id=user, limit=THREADS, cursor=query.get("cursor"))
        results = [*reading.everywhere_in(studio.memory, page.items, text, most=COMPARED_EACH, hits=HITS_EACH)]
        cursor = page.next_cursor
    beginnings = studio.memory._core.run(reading.beginnings(studio.state, [thread for thread, _ in results]))
    values = {"found": results, "read": COMPARED_EACH, "more": cursor, "beginnings": beginnings, "threads": THREADS}
    return studio.page(request, "find.html", user=user, thread=None, question=text, **values)


def delete(studio: Studio, request: Request, form: Mapping[str, str]) -> Response:
    """Delete a thread, if its id was repeated."""
    thread = studio.thread(request)
    confirm(form, thread.id, "the thread was not deleted", "its id")
    studio.memory.threads.delete(thread.id, user_id=thread.user_id)
    return studio.go("/threads", user=thread.user_id, done="delete")
