"""The pages that show what a model would see: the context of the next turn, and why recall finds what it finds."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from html import escape
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.messages import HumanMessage

from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.queries import words_of
from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem._text.rendering import ROLES, message_text
from langchain_workingmem.errors import OptionError
from langchain_workingmem.recall import DEEP, PARTS, Query, explain
from langchain_workingmem.studio.conversations import pattern, read_one, read_slice
from langchain_workingmem.studio.costs.plots import shares
from langchain_workingmem.studio.site import Missing, number, size
from langchain_workingmem.usage import Counting
from langchain_workingmem.usage.parts import alike, blocks_of, signs, tokens_of_beginning

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.messages import BaseMessage
    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem.models import MemoryContext, StoredMessage, Thread
    from langchain_workingmem.options import RecallArguments
    from langchain_workingmem.recall import Explanation
    from langchain_workingmem.studio.site import Studio

MISSED = 12  # candidates that are shown beside the hits
MOST_HITS = 50
MOST_BYTES, _MARKUP = 200_000, 300  # of the items of a context; around each of them
_BLOCK_NAME = re.compile(r"<(\w+)")
COUNTED = ("history", "recall", "working_memory", "observations", "files", "question")  # parts of a context
QUESTIONS: dict[str, Any] = {"roles": ("human",), "superseded": False}  # what to read of a conversation
OTHER = "Something else, please."  # a question that shows what does not depend on the question


class Item(NamedTuple):
    """A part of the input of the model, in its order."""

    role: str
    source: str  # what wrote it
    text: str
    part: str  # of the context: history, question, or the name of a block of memory
    is_question: bool = False  # it belongs to the question, which the next turn shows without memory

    @property
    def is_memory(self) -> bool:
        """Tell whether memory wrote it."""
        return self.part not in {"history", "question"}


async def context(studio: Studio, request: Request) -> Response:
    """Show the input of the model for a question: what memory adds, tokens, and the part that stays the same."""
    one, question = await studio.thread(request), request.query_params.get("q", "").strip()
    items, stable, same, found, before = [], 0, 0, None, None
    asked = await question_at(studio, one, number(request.query_params.get("turn")))
    if asked or question:
        found = await context_of(studio, one, asked or question)
        other_words = HumanMessage(OTHER, id=asked.message.id if asked else None)
        ids: dict[str, Any] = {"thread_id": one.id, "resource_id": one.resource_id}
        other = await studio.memory.acontext([other_words], **ids, recall=False)
        same = tokens_of_same(found, other)
        items = items_of(found)
        pairs = zip(items, items_of(other), strict=False)
        stable = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1] and not pair[0].is_question, pairs))
    if asked:
        question = message_text(asked.message)
        plan = read_slice(studio.state, one.id, one.resource_id, below=asked.seq, **QUESTIONS, limit=1)
        before = await studio.run(plan)
    usage = found and found.usage
    parts = {name: getattr(usage, name) for name in COUNTED} if usage else {}
    values = {
        "context": found,
        "items": items,
        "stable": stable,
        "tokens": [count_tokens(item.text) for item in items],
        "question": question,
        "asked": asked,
        "before": before and before.last,
        "usage": usage,
        "counted": parts,
        "bars": shares(parts),
        "same": same,
    }
    first = _first(items, studio.templates.filters["shown"])
    return studio.page(request, "context.html", user=one.resource_id, thread=one, first=first, **values)


def _first(items: list[Item], shown: Callable[[str], str]) -> int:
    """Return the place of the first item that the page shows: the newest ones, at least one, up to `MOST_BYTES`."""
    sizes = accumulate(len(escape(shown(item.text)).encode()) + _MARKUP for item in reversed(items))
    return max(0, len(items) - max(1, sum(1 for _ in takewhile(lambda size: size <= MOST_BYTES, sizes))))


async def question_at(studio: Studio, one: Thread, at: int | None) -> StoredMessage | None:
    """Return the question at a position of a thread, with its media; None without a position."""
    if at is None:
        return None
    found = await studio.run(read_one(studio.state, one.id, one.resource_id, at))
    if found is None or found.message.type != "human":
        raise Missing
    return found


async def context_of(studio: Studio, one: Thread, asked: StoredMessage | str) -> MemoryContext:
    """Build the context of the next turn for a question, or that of a stored question.

    Of a stored one: the history in front of it, and recall of what was stored before it. Working memory, observations and files are
    those of today.
    """
    ids: dict[str, Any] = {"thread_id": one.id, "resource_id": one.resource_id}
    if isinstance(asked, str):
        return await studio.memory.acontext(asked, **ids)
    then: dict[str, Any] = {"now": asked.stored_at}
    if studio.state.recall is not None:
        then["until"] = asked.stored_at - timedelta(microseconds=1)
    return await studio.memory.acontext([asked.message], **ids, **then)


def tokens_of_same(found: MemoryContext, other: MemoryContext) -> int:
    """Count the tokens of the blocks and messages with which both contexts begin, as the memory counts."""
    number = alike(*(signs(one.system, one.messages) for one in (found, other)))
    counting: Counting = getattr(found, "counting", None) or Counting()
    return tokens_of_beginning(counting, found.system, found.messages, number)


def items_of(found: MemoryContext) -> list[Item]:
    """Return the blocks for the system prompt, then the messages, divided into memory's text and their own."""
    items = [Item("system", f"{_name(block)}, after your system prompt", block, _name(block)) for block in found.system]
    for message in found.messages:
        own, blocks = blocks_of(message)
        role, is_question = ROLES.get(message.type, message.type), message is found.messages[-1]
        where = "a message of its own" if own is None else "before the words of the user"
        items += [Item(role, f"{_name(block)}, {where}", block, _name(block), is_question) for block in blocks]
        if own is not None:
            words, part = message_text(own, whole=True), "question" if is_question else "history"
            items.append(Item(role, message.name or "", words, part, is_question))
    return items


def _name(block: str) -> str:
    """Name a block of memory by its tag. What was stored is escaped, so it holds no tags."""
    return (_BLOCK_NAME.match(block) or ["", "memory"])[1].replace("_", " ")


async def recall(studio: Studio, request: Request) -> Response:
    """Show what a search finds, why, and what just missed. With a thread: as in the next turn there."""
    given, found, why_not = request.query_params, None, ""
    one = await studio.thread(request) if given.get("thread") else None
    resource, question, at = studio.owner(request), given.get("q", "").strip(), number(given.get("about"))
    about = None if at is None else (given.get("of_thread", ""), at)
    if question:
        found = await _explained(studio, request, one, question, about)
        why_not = await _why_not(studio, resource, *about) if about and found.asked is None else ""
    values = {"question": question, "found": found, "about": about, "why_not": why_not, "parts": PARTS}
    shared = partial(_shared, words_of(question))
    return studio.page(request, "recall.html", user=resource, thread=one, shared=shared, **values)


async def _explained(
    studio: Studio, request: Request, one: Thread | None, question: str, about: tuple[str, int] | None
) -> Explanation:
    resource, state = studio.owner(request), studio.state
    options, shown = state.recall, list[str]()
    if options is None:
        raise recall_is_off()
    if one is None:
        asked: RecallArguments = {"scope": "resource", "top_k": size(request, "top_k", options.top_k, MOST_HITS)}
        query = Query.of(options, question, resource_id=resource, **asked)
        found = await studio.memory.recall.asearch(question, resource_id=resource, **asked)
    else:
        query = Query.of_turn(options, question, one.id, resource, {})
        turn = await studio.memory.acontext(question, thread_id=one.id, resource_id=resource)
        found, shown = turn.recalled, [message.id for message in turn.messages[:-1] if message.id]
    return await studio.run(explain(state, query, found, missed=MISSED, shown=shown, about=about))


def recall_is_off() -> OptionError:
    """Return the error of a search without recall."""
    remedy = "start the studio with --embeddings, or with --memory and a Memory that recalls"
    return OptionError("recall is off here", remedy=remedy)


async def _why_not(studio: Studio, resource: str, thread_id: str, at: int) -> str:
    """Say why a message is no candidate of any search, or not of this one."""
    thread_id = check_id(thread_id, "thread")
    part = await studio.run(read_slice(studio.state, thread_id, resource, limit=1, below=at + 1, superseded=False))
    if part.last != at:
        return "It is not on the current branch of its thread: superseded messages are not searched."
    if part.rows[0].message.type not in studio.state.recalling.roles:
        return "Messages of this role are not searched."
    if not message_text(part.rows[0].message).strip():
        return "It has no text."
    return f"It is not among the {DEEP} nearest messages. If it has no vector, `workingmem reindex` makes one."


def _shared(words: list[str], message: BaseMessage) -> list[str]:
    """Return which of these words a message has."""
    text = message_text(message).casefold()
    return [word for word in dict.fromkeys(words) if re.search(pattern(word.casefold()), text)]
