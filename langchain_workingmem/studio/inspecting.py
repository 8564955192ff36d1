"""The pages that show what a model would see: the context of the next turn, and why recall finds what it finds."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from html import escape
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, NamedTuple

from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.queries import words_of
from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem._text.copies import without_memory
from langchain_workingmem._text.rendering import ROLES, message_text
from langchain_workingmem.errors import OptionError
from langchain_workingmem.recall import DEEP, PARTS, Query, explain
from langchain_workingmem.studio.conversations import thread_of
from langchain_workingmem.studio.reading import read_slice
from langchain_workingmem.studio.site import number, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_core.messages import BaseMessage
    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem.models import MemoryContext
    from langchain_workingmem.options import RecallArguments
    from langchain_workingmem.recall import ExplainedMessage
    from langchain_workingmem.studio.site import Studio

MISSED = 12  # candidates that are shown beside the hits
MOST_HITS = 50
MOST_BYTES, _MARKUP = 200_000, 300  # of the items of a context; around each of them
_SHORT = 4  # letters
_BLOCK = re.compile(r"\n\n(?=<(?:recalled_messages|working_memory|observations)[ >])")
_BLOCK_NAME = re.compile(r"<(\w+)")
OTHER = "Something else, please."  # a question that shows what does not depend on the question


class Item(NamedTuple):
    """A part of the input of the model, in its order."""

    role: str
    source: str  # what wrote it
    text: str
    is_question: bool = False  # it belongs to the question, which the next turn shows without memory

    @property
    def tokens(self) -> int:
        """Estimate the tokens."""
        return count_tokens(self.text)


async def context(studio: Studio, request: Request) -> Response:
    """Show the input of the model for a question: what memory adds, tokens, and the part that stays the same."""
    one, question = await thread_of(studio, request), request.query_params.get("q", "").strip()
    items, stable, found = [], 0, None
    if question:
        ask = partial(studio.memory.acontext, thread_id=one.id, resource_id=one.resource_id)
        found = await ask(question)
        items = [*_items(found)]
        other = _items(await ask(OTHER, recall=False))
        pairs = zip(items, other, strict=False)
        stable = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1] and not pair[0].is_question, pairs))
    first = _first(items, studio.templates.filters["shown"])
    return studio.page(
        request,
        "context.html",
        user=one.resource_id,
        thread=one,
        question=question,
        context=found,
        items=items[first:],
        left_out=first,
        stable=stable - first,
        tokens=sum(item.tokens for item in items),
        stable_tokens=sum(item.tokens for item in items[:stable]),
        history=studio.memory._turn.history,
    )


def _first(items: list[Item], shown: Callable[[str], str]) -> int:
    """Return the place of the first item that the page shows: the newest ones, at least one, up to `MOST_BYTES`."""
    sizes = accumulate(len(escape(shown(item.text)).encode()) + _MARKUP for item in reversed(items))
    return max(0, len(items) - max(1, sum(1 for _ in takewhile(lambda size: size <= MOST_BYTES, sizes))))


def _items(found: MemoryContext) -> Iterator[Item]:
    """Yield the blocks for the system prompt, then the messages, divided into memory's text and their own."""
    for block in found.system:
        yield Item("system", f"{_name(block)}, after your system prompt", block)
    for message in found.messages:
        role, own = ROLES.get(message.type, message.type), without_memory(message)
        words, whole = (message_text(one, whole=True) for one in (own, message))
        is_question = message is found.messages[-1]
        if own is not message:
            for block in _BLOCK.split(whole.removesuffix(words).strip("\n")):
                yield Item(role, f"{_name(block)}, before the words of the user", block, is_question)
        yield Item(role, message.name or "", words, is_question)


def _name(block: str) -> str:
    """Name a block of memory by its tag. What was stored is escaped, so it holds no tags."""
    return (_BLOCK_NAME.match(block) or ["", "memory"])[1].replace("_", " ")


async def recall(studio: Studio, request: Request) -> Response:
    """Show what a search finds, why, and what just missed. With a thread: as in the next turn there."""
    given = request.query_params
    one = await thread_of(studio, request) if given.get("thread") else None
    resource = studio.owner(request)
    question, is_on = given.get("q", "").strip(), studio.memory._core.state.recall is not None
    at = number(given.get("about"))
    about = None if at is None else (given.get("of_thread", ""), at)
    explained = None
    if question and is_on:
        options = studio.memory._core.state.recalling
        if one is None:
            top_k = size(request, "top_k", options.top_k, MOST_HITS)
            asked: RecallArguments = {"scope": "resource", "top_k": top_k}
            query = Query.of(options, question, resource_id=resource, **asked)
            found, shown = await studio.memory.recall.asearch(question, resource_id=resource, **asked), []
        else:
            query = Query.of_turn(options, question, one.id, resource, {})
            turn = await studio.memory.acontext(question, thread_id=one.id, resource_id=resource)
            found, shown = turn.recalled, [message.id for message in turn.messages[:-1] if message.id]
        core = studio.memory._core
        if one is not None and core.state.observations is not None:  # the turn shows the log of its scope
            query = replace(query, observed="others" if core.state.observations.scope == "thread" else "none")
        explained = await core.arun(explain(core.state, query, found, missed=MISSED, shown=shown, about=about))
    elif question:
        raise OptionError(
            "recall is off here",
            remedy="start the studio with --embeddings, or with --memory and a Memory that recalls",
        )
    words = words_of(question)
    return studio.page(
        request,
        "recall.html",
        user=resource,
        thread=one,
        question=question,
        is_on=is_on,
        found=explained,
        rows=[_row(message, words) for message in explained.messages] if explained else [],
        about=about,
        asked=None if explained is None or explained.asked is None else _row(explained.asked, words),
        why_not=await _why_not(studio, resource, about) if about and explained and explained.asked is None else "",
        parts=PARTS,
    )


async def _why_not(studio: Studio, resource: str, about: tuple[str, int]) -> str:
    """Say why a message is no candidate of any search, or not of this one."""
    thread_id, at = about
    memory = studio.memory
    plan = read_slice(
        memory._core.state, check_id(thread_id, "thread"), resource, limit=1, below=at + 1, superseded=False
    )
    rows = (await memory._core.arun(plan)).rows
    if not rows or rows[0].seq != at:
        return "It is not on the current branch of its thread: superseded messages are not searched."
    roles = memory._core.state.recalling.roles
    if rows[0].message.type not in roles:
        return "Messages of this role are not searched."
    if not message_text(rows[0].message).strip():
        return "It has no text."
    return f"It is not among the {DEEP} nearest messages. If it has no vector, `workingmem reindex` makes one."


class Bar(NamedTuple):
    """One part of a score in a picture 100 wide."""

    name: str
    value: float
    start: float
    width: float


class Row(NamedTuple):
    """A candidate with its picture."""

    message: ExplainedMessage
    bars: list[Bar]
    words: list[str]  # of the question, that the message has
    tokens: int
    neighbours: list[tuple[str, BaseMessage]]


def _row(one: ExplainedMessage, words: list[str]) -> Row:
    bars, start = [], 0.0
    for name, value in one.parts.items():
        if value > 0:
            bars.append(Bar(name, value, start, 100 * value))
            start += 100 * value
    text = message_text(one.message).casefold()
    before = [("before", message) for message in (one.hit.before if one.hit else ())]
    after = [("after", message) for message in (one.hit.after if one.hit else ())]
    shared = [word for word in dict.fromkeys(words) if re.search(_pattern(word.casefold()), text)]
    return Row(one, bars, shared, count_tokens(text), [*before, *after])


def _pattern(word: str) -> str:
    """Match a word at its beginning, because the search also finds other endings; a short word as a whole."""
    return rf"\b{re.escape(word)}\b" if len(word) <= _SHORT else rf"\b{re.escape(word[: max(_SHORT, len(word) - 2)])}"
