"""Build the result of a search: hits with their windows, with excerpts of what is too long for the budget."""

from __future__ import annotations

from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage

from langchain_workingmem._redis.queries import words_of
from langchain_workingmem._text.chunks import chunk_span, count_tokens, excerpt
from langchain_workingmem._text.copies import from_memory
from langchain_workingmem._text.rendering import attachments, message_text
from langchain_workingmem._text.said import answer_text
from langchain_workingmem.history import with_calls
from langchain_workingmem.models import RecallHit, RecallResult, StoredMessage
from langchain_workingmem.recall.budget import fits, sized

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.recall.budget import Sizes
    from langchain_workingmem.recall.hits import Fetched, Found, Position
    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Ranked


def result_of(
    query: Query, hits: Sequence[Found], fetched: Fetched, chunk_tokens: int, ranked: Iterable[Ranked]
) -> RecallResult:
    """Build the result: hits with their windows, cut to the budget, and all shown messages in order of time."""
    sizes, rows = None, fetched.rows
    if query.max_tokens is not None and not fits(query, fetched):
        hits, sizes = sized(query, hits, fetched, ranked)
        rows = _shortened(query, hits, fetched, sizes, chunk_tokens)
    found = []
    shown: set[Position] = set()
    known = {fetched.content(hit.position): hit.position for hit in hits}
    for hit in hits:
        sides = hit.window(query, fetched)
        front, back = ([at for at in side if known.get(fetched.content(at), at) == at] for side in sides)
        if sizes is not None:
            front, back = ([*takewhile(sizes.of.__contains__, side)] for side in (front, back))
        shown.update([hit.position], front, back)
        found.append(as_hit(hit, fetched, front, back, rows))
    ordered = sorted((rows[position] for position in shown), key=attrgetter("stored_at", "thread_id"))
    return RecallResult(hits=found, rows=ordered)


def as_hit(
    hit: Found,
    fetched: Fetched,
    front: Iterable[Position],
    back: Iterable[Position],
    rows: Mapping[Position, StoredMessage] | None = None,
) -> RecallHit:
    """Build a hit with its window, whose messages are given as `Found.window` does; `rows` hold excerpts of them."""
    rows = fetched.rows if rows is None else rows
    row, observation = rows[hit.position], None
    if hit.ranked.observation:
        observation = fetched.observations[hit.position]
        front, back = sorted(front, reverse=True), sorted(back)
    return RecallHit(
        message=row.message,
        thread_id=row.thread_id,
        score=hit.ranked.score if hit.relevance is None else hit.relevance,
        similarity=hit.ranked.similarity,
        before=[rows[position].message for position in front][::-1],
        after=[rows[position].message for position in back],
        stored_at=row.stored_at,
        thread_title=fetched.titles[hit.position[0]],
        observation=observation,
    )


def cut(
    message: BaseMessage, thread_id: str, tokens: int, span: tuple[int, int], words: Collection[str]
) -> BaseMessage:
    """Copy a message with an excerpt around a span of its text; the copy is marked, so that it is never saved."""
    lean = with_calls(message) if isinstance(message, AIMessage) else message
    data = {"thread_id": thread_id, "excerpt": True}
    names = attachments(message)
    text = excerpt(message_text(message), tokens - count_tokens("\n".join(names)), *span, words)
    return from_memory(lean, data, content="\n".join([text, *(name for name in names if name not in text)]))


def _shortened(
    query: Query, hits: Sequence[Found], fetched: Fetched, sizes: Sizes, chunk_tokens: int
) -> dict[Position, StoredMessage]:
    """Cut what is too long: a hit around its best chunk; a message before it keeps its end, one after it its beginning."""
    rows = dict(fetched.rows)
    by_position = {hit.position: hit for hit in hits}
    fronts = {position for hit in hits for position in hit.window(query, fetched)[0]}
    words = words_of(query.text)
    for position, size in sizes.of.items():
        if size >= sizes.tokens(position):
            continue
        row = rows[position]
        start = end = len(message_text(row.message)) if position in fronts else 0
        if hit := by_position.get(position):
            start, end = best_span(hit, row.message, chunk_tokens)
        copy = cut(row.message, row.thread_id, size, (start, end), words)
        rows[position] = StoredMessage(message=copy, thread_id=row.thread_id, seq=row.seq, stored_at=row.stored_at)
    return rows


def best_span(hit: Found, message: BaseMessage, chunk_tokens: int) -> tuple[int, int]:
    """Return where the chunk of a hit's text lies that matched best."""
    return chunk_span(answer_text(message), chunk_tokens, 0 if hit.question else hit.ranked.chunk)
