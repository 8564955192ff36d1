"""The pages that show what a model would see: the context of a turn, and what recall finds."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._text.messages import ROLES, message_text
from langchain_workingmem._text.sending import without_block
from langchain_workingmem.errors import OptionError
from langchain_workingmem.studio.site import Missing, number, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.messages import BaseMessage
    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem.models import MemoryContext, RecallResult, StoredMessage, Thread
    from langchain_workingmem.studio.site import Studio

MOST_HITS = 50
LONGEST = 10_000  # characters of a question
COUNTED = (
    "history",
    "recall",
    "working_memory",
    "question",
)  # parts of a context; the log of observations counts as recall
_BLOCK = re.compile(r"<(\w+)[ >]")  # how a block of memory begins
_NAMES = {"recalled_messages": "recalled from other conversations", "working_memory": "working memory"}


class Item(NamedTuple):
    """A part of what a model is shown."""

    role: str
    about: str  # its author, or which block of memory it is
    text: str
    is_memory: bool = False


def context(studio: Studio, request: Request) -> Response:
    """Show the input of the model for a question, with its tokens: of the next turn, or of a stored question."""
    thread, question = studio.thread(request), request.query_params.get("q", "").strip()[:LONGEST]
    row = _question_at(studio, thread, number(request.query_params.get("turn")))
    result = _context_of(studio, thread, row or question) if row or question else None
    usage, items = result.usage if result else None, [*_items_of(result)] if result else []
    end = len([*takewhile(lambda item: not item.is_memory, items[:-1])])  # in front of the first block
    values = {
        "context": result,
        "history": items[:end],
        "items": items[end:],
        "usage": usage,
        "counted": {name.replace("_", " "): getattr(usage, name) for name in COUNTED} if usage else {},
        "question": message_text(row.message)[:LONGEST] if row else question,
        "asked": row,
    }
    return studio.page(request, "context.html", user=thread.user_id, thread=thread, **values)


def _question_at(studio: Studio, thread: Thread, place: int | None) -> StoredMessage | None:
    """Return the question at a position of a thread; None without a position."""
    if place is None:
        return None
    cursor = str(place + 1)
    page = studio.memory.history.page(thread.id, user_id=thread.user_id, limit=1, cursor=cursor, descending=True)
    row = next(iter(page), None)
    if row is None or row.place != place or row.message.type != "human":
        raise Missing
    return row


def _context_of(studio: Studio, thread: Thread, question: StoredMessage | str) -> MemoryContext:
    """Build the context of the next turn for a question, or that of a stored question.

    Of a stored one: the history in front of it, and recall of what was stored before it. Working memory is that of
    today.
    """
    ids: dict[str, Any] = {"thread_id": thread.id, "user_id": thread.user_id}
    if isinstance(question, str):
        return studio.memory.context(question, **ids)
    options: dict[str, Any] = {"now": question.stored_at}
    if studio.state.recall is not None:
        options["until"] = question.stored_at - timedelta(microseconds=1)
    return studio.memory.context([question.message], **ids, **options)


def _items_of(context: MemoryContext) -> Iterator[Item]:
    """Return the blocks for the system prompt, then the messages; what memory has put in front of the question apart."""
    for block in context.system:
        yield Item("system", f"after your system prompt: {_name_of(block)}", block, is_memory=True)
    for message in context.messages:
        role, name = ROLES.get(message.type, message.type), message.name or ""
        if message.additional_kwargs.get("lc_source"):
            yield Item(role, "recalled from this conversation", message_text(message, whole=True), is_memory=True)
            continue
        plain_message = without_block(message)
        for block in _blocks_of(message, plain_message):
            yield Item(role, f"in front of the question: {_name_of(block)}", block, is_memory=True)
        yield Item(role, name, message_text(plain_message, whole=True))


def _blocks_of(message: BaseMessage, plain_message: BaseMessage) -> list[str]:
    """Return the blocks in front of the words of a message."""
    if plain_message is message:
        return []
    text = str(message.text).removesuffix(str(plain_message.text)).strip()
    return [block for block in re.split(r"(?<=>)\n\n(?=<)", text) if block]


def _name_of(block: str) -> str:
    match = _BLOCK.match(block)
    return _NAMES.get(match[1], match[1].replace("_", " ")) if match else "memory"


def recall(studio: Studio, request: Request) -> Response:
    """Show what a search finds, with scores. With a thread: as in the next turn there."""
    question, result = request.query_params.get("q", "").strip()[:LONGEST], None
    thread = studio.thread(request) if request.query_params.get("thread") else None
    user = studio.owner(request)
    if question:
        result = _recalled(studio, thread, question, user, size(request, "top_k", 0, MOST_HITS) or None)
    places = {(row.thread_id, row.message.id): row.place for row in result.rows} if result else {}
    values = {"question": question, "found": result, "places": places}
    return studio.page(request, "recall.html", user=user, thread=thread, **values)


def _recalled(studio: Studio, thread: Thread | None, question: str, user: str, top_k: int | None) -> RecallResult:
    if studio.state.recall is None:
        remedy = "start the studio with --embeddings, or with --memory and a Memory that recalls"
        raise OptionError("recall is off here", remedy=remedy)
    if thread is None:
        return studio.memory.recall.search(question, user_id=user, scope="user", top_k=top_k)
    return studio.memory.context(question, thread_id=thread.id, user_id=user).recalled
