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
    one, given = studio.thread(request), request.query_params
    below = number(given.get("below"))
    if named := given.get("message"):
        place = studio.memory._core.run(reading.place_of(studio.state, one, named))
        if place is None:
            raise Missing
        return studio.go("/thread", user=one.user_id, thread=one.id, below=place + studio.behind, at=f"m-{place}")
    limit, cursor = size(request, "limit", ROWS, MOST_ROWS), None if below is None else str(below)
    page = studio.memory.history.page(one.id, user_id=one.user_id, limit=limit, cursor=cursor, descending=True)
    rows = page.items[::-1]
    values = {"rows": rows, "older": rows[0].place if page.next_cursor and rows else None, "below": below}
    return studio.page(request, "thread.html", user=one.user_id, thread=one, **values)


def find(studio: Studio, request: Request) -> Response:
    """List the messages that have all words, the newest first: of a conversation, or of all conversations of a user."""
    given = request.query_params
    text = given.get("q", "").strip()[:200]
    if given.get("thread"):
        one, below = studio.thread(request), number(given.get("below"))
        found = reading.search(studio.memory, one, text, below=below, most=COMPARED, hits=ROWS)
        values = {"found": [(one, found)] if text else [], "read": COMPARED, "more": None, "beginnings": {}}
        return studio.page(request, "find.html", user=one.user_id, thread=one, question=text, **values)
    user, more, found_in = studio.owner(request), None, []
    if text:
        page = studio.memory.threads.list(user_id=user, limit=THREADS, cursor=given.get("cursor"))
        found_in = [*reading.everywhere_in(studio.memory, page.items, text, most=COMPARED_EACH, hits=HITS_EACH)]
        more = page.next_cursor
    beginnings = studio.memory._core.run(reading.beginnings(studio.state, [one for one, _ in found_in]))
    values = {"found": found_in, "read": COMPARED_EACH, "more": more, "beginnings": beginnings, "threads": THREADS}
    return studio.page(request, "find.html", user=user, thread=None, question=text, **values)


def delete(studio: Studio, request: Request, form: Mapping[str, str]) -> Response:
    """Delete a thread, if its id was repeated."""
    one = studio.thread(request)
    confirm(form, one.id, "the thread was not deleted", "its id")
    studio.memory.threads.delete(one.id, user_id=one.user_id)
    return studio.go("/threads", user=one.user_id, done="delete")
