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
    one, question = studio.thread(request), request.query_params.get("q", "").strip()[:LONGEST]
    asked = _question_at(studio, one, number(request.query_params.get("turn")))
    found = _context_of(studio, one, asked or question) if asked or question else None
    usage, items = found.usage if found else None, [*_items_of(found)] if found else []
    history = len([*takewhile(lambda one: not one.is_memory, items[:-1])])  # in front of the first block
    values = {
        "context": found,
        "history": items[:history],
        "items": items[history:],
        "usage": usage,
        "counted": {name.replace("_", " "): getattr(usage, name) for name in COUNTED} if usage else {},
        "question": message_text(asked.message)[:LONGEST] if asked else question,
        "asked": asked,
    }
    return studio.page(request, "context.html", user=one.user_id, thread=one, **values)


def _question_at(studio: Studio, one: Thread, at: int | None) -> StoredMessage | None:
    """Return the question at a position of a thread; None without a position."""
    if at is None:
        return None
    page = studio.memory.history.page(one.id, user_id=one.user_id, limit=1, cursor=str(at + 1), descending=True)
    found = next(iter(page), None)
    if found is None or found.place != at or found.message.type != "human":
        raise Missing
    return found


def _context_of(studio: Studio, one: Thread, asked: StoredMessage | str) -> MemoryContext:
    """Build the context of the next turn for a question, or that of a stored question.

    Of a stored one: the history in front of it, and recall of what was stored before it. Working memory is that of
    today.
    """
    ids: dict[str, Any] = {"thread_id": one.id, "user_id": one.user_id}
    if isinstance(asked, str):
        return studio.memory.context(asked, **ids)
    then: dict[str, Any] = {"now": asked.stored_at}
    if studio.state.recall is not None:
        then["until"] = asked.stored_at - timedelta(microseconds=1)
    return studio.memory.context([asked.message], **ids, **then)


def _items_of(found: MemoryContext) -> Iterator[Item]:
    """Return the blocks for the system prompt, then the messages; what memory has put in front of the question apart."""
    for block in found.system:
        yield Item("system", f"after your system prompt: {_name_of(block)}", block, is_memory=True)
    for message in found.messages:
        role, name = ROLES.get(message.type, message.type), message.name or ""
        if message.additional_kwargs.get("lc_source"):
            yield Item(role, "recalled from this conversation", message_text(message, whole=True), is_memory=True)
            continue
        words = without_block(message)
        for block in _blocks_of(message, words):
            yield Item(role, f"in front of the question: {_name_of(block)}", block, is_memory=True)
        yield Item(role, name, message_text(words, whole=True))


def _blocks_of(message: BaseMessage, words: BaseMessage) -> list[str]:
    """Return the blocks in front of the words of a message."""
    if words is message:
        return []
    text = str(message.text).removesuffix(str(words.text)).strip()
    return [block for block in re.split(r"(?<=>)\n\n(?=<)", text) if block]


def _name_of(block: str) -> str:
    found = _BLOCK.match(block)
    return _NAMES.get(found[1], found[1].replace("_", " ")) if found else "memory"


def recall(studio: Studio, request: Request) -> Response:
    """Show what a search finds, with scores. With a thread: as in the next turn there."""
    question, found = request.query_params.get("q", "").strip()[:LONGEST], None
    one = studio.thread(request) if request.query_params.get("thread") else None
    user = studio.owner(request)
    if question:
        found = _recalled(studio, one, question, user, size(request, "top_k", 0, MOST_HITS) or None)
    places = {(row.thread_id, row.message.id): row.place for row in found.rows} if found else {}
    values = {"question": question, "found": found, "places": places}
    return studio.page(request, "recall.html", user=user, thread=one, **values)


def _recalled(studio: Studio, one: Thread | None, question: str, user: str, top_k: int | None) -> RecallResult:
    if studio.state.recall is None:
        remedy = "start the studio with --embeddings, or with --memory and a Memory that recalls"
        raise OptionError("recall is off here", remedy=remedy)
    if one is None:
        return studio.memory.recall.search(question, user_id=user, scope="user", top_k=top_k)
    return studio.memory.context(question, thread_id=one.id, user_id=user).recalled
