"""The pages that show what a model would see: the context of a turn, and what recall finds."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from langchain_workingmem._text.messages import ROLES, message_text
from langchain_workingmem.errors import OptionError
from langchain_workingmem.studio.site import Missing, number, size

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem.models import MemoryContext, RecallResult, StoredMessage, Thread
    from langchain_workingmem.studio.site import Studio

MOST_HITS = 50
COUNTED = ("history", "recall", "working_memory", "question")  # parts of a context


async def context(studio: Studio, request: Request) -> Response:
    """Show the input of the model for a question, with its tokens: of the next turn, or of a stored question."""
    one, question = await studio.thread(request), request.query_params.get("q", "").strip()
    asked = await _question_at(studio, one, number(request.query_params.get("turn")))
    found = await _context_of(studio, one, asked or question) if asked or question else None
    values = {
        "context": found,
        "items": _items_of(found) if found else [],
        "counted": {name.replace("_", " "): getattr(found.usage, name) for name in COUNTED} if found else {},
        "question": message_text(asked.message) if asked else question,
        "asked": asked,
    }
    return studio.page(request, "context.html", user=one.user_id, thread=one, **values)


async def _question_at(studio: Studio, one: Thread, at: int | None) -> StoredMessage | None:
    """Return the question at a position of a thread; None without a position."""
    if at is None:
        return None
    page = await studio.memory.history.apage(one.id, user_id=one.user_id, limit=1, cursor=str(at + 1), descending=True)
    found = next(iter(page), None)
    if found is None or found.place != at or found.message.type != "human":
        raise Missing
    return found


async def _context_of(studio: Studio, one: Thread, asked: StoredMessage | str) -> MemoryContext:
    """Build the context of the next turn for a question, or that of a stored question.

    Of a stored one: the history in front of it, and recall of what was stored before it. Working memory is that of
    today.
    """
    ids: dict[str, Any] = {"thread_id": one.id, "user_id": one.user_id}
    if isinstance(asked, str):
        return await studio.memory.acontext(asked, **ids)
    then: dict[str, Any] = {"now": asked.stored_at}
    if studio.state.recall is not None:
        then["until"] = asked.stored_at - timedelta(microseconds=1)
    return await studio.memory.acontext([asked.message], **ids, **then)


def _items_of(found: MemoryContext) -> list[tuple[str, str, str]]:
    """Return role, author and text of the blocks for the system prompt, then of the messages."""
    items = [("system", "after your system prompt", block) for block in found.system]
    for message in found.messages:
        role = ROLES.get(message.type, message.type)
        items.append((role, message.name or "", message_text(message, whole=True)))
    return items


async def recall(studio: Studio, request: Request) -> Response:
    """Show what a search finds, with scores. With a thread: as in the next turn there."""
    question, found = request.query_params.get("q", "").strip(), None
    one = await studio.thread(request) if request.query_params.get("thread") else None
    user = studio.owner(request)
    if question:
        found = await _recalled(studio, one, question, user, size(request, "top_k", 0, MOST_HITS) or None)
    places = {(row.thread_id, row.message.id): row.place for row in found.rows} if found else {}
    values = {"question": question, "found": found, "places": places}
    return studio.page(request, "recall.html", user=user, thread=one, **values)


async def _recalled(studio: Studio, one: Thread | None, question: str, user: str, top_k: int | None) -> RecallResult:
    if studio.state.recall is None:
        remedy = "start the studio with --embeddings, or with --memory and a Memory that recalls"
        raise OptionError("recall is off here", remedy=remedy)
    if one is None:
        return await studio.memory.recall.asearch(question, user_id=user, scope="user", top_k=top_k)
    return (await studio.memory.acontext(question, thread_id=one.id, user_id=user)).recalled
