"""Build the result of a search: hits with their windows, with excerpts of what is too long for the budget."""

from __future__ import annotations

from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage

from langchain_workingmem._redis.queries import words_of
from langchain_workingmem._text.chunks import chunk_span, excerpt
from langchain_workingmem._text.copies import from_memory
from langchain_workingmem._text.rendering import message_text, words_in
from langchain_workingmem.history import with_calls
from langchain_workingmem.models import RecallHit, RecallResult, StoredMessage
from langchain_workingmem.recall.budget import fits, sized

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    for hit in hits:
        front, back = hit.window(query, fetched)
        if sizes is not None:
            front, back = ([*takewhile(sizes.of.__contains__, side)] for side in (front, back))
        shown.update([hit.position], front, back)
        row = rows[hit.position]
        found.append(
            RecallHit(
                message=row.message,
                thread_id=row.thread_id,
                score=hit.ranked.score,
                similarity=hit.ranked.similarity,
                before=[rows[position].message for position in reversed(front)],
                after=[rows[position].message for position in back],
                stored_at=row.stored_at,
                thread_title=fetched.titles[hit.position[0]],
            )
        )
    ordered = sorted((rows[position] for position in shown), key=attrgetter("stored_at", "thread_id"))
    return RecallResult(hits=found, rows=ordered)


def _shortened(
    query: Query, hits: Sequence[Found], fetched: Fetched, sizes: Sizes, chunk_tokens: int
) -> dict[Position, StoredMessage]:
    """Cut what is too long: a hit around its best chunk; a message before it keeps its end, one after it its beginning.

    The copies are marked so that they are never saved over the original.
    """
    rows = dict(fetched.rows)
    by_position = {hit.position: hit for hit in hits}
    fronts = {position for hit in hits for position in hit.window(query, fetched)[0]}
    words = words_of(query.text)
    for position, size in sizes.of.items():
        if size >= sizes.tokens(position):
            continue
        row = rows[position]
        text = message_text(row.message)
        start = end = len(text) if position in fronts else 0
        if hit := by_position.get(position):
            start, end = chunk_span(words_in(row.message), chunk_tokens, 0 if hit.question else hit.ranked.chunk)
        lean = with_calls(row.message) if isinstance(row.message, AIMessage) else row.message
        data = {"thread_id": row.thread_id, "excerpt": True}
        copy = from_memory(lean, data, content=excerpt(text, size, start, end, words))
        rows[position] = StoredMessage(message=copy, thread_id=row.thread_id, seq=row.seq, stored_at=row.stored_at)
    return rows
