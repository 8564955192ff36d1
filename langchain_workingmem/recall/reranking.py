"""The caller's reranker: what it is given, and what is taken of what it returns. It orders hits and drops some, no more."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.documents import Document

from langchain_workingmem._engine.effects import Rerank, compute
from langchain_workingmem._redis.queries import words_of
from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem._text.rendering import line, message_text
from langchain_workingmem.errors import RerankerError
from langchain_workingmem.models import RecallHit, RecallResult
from langchain_workingmem.recall.shown import as_hit, best_span, cut

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem.options import RecallOptions
    from langchain_workingmem.recall.hits import Fetched, Found
    from langchain_workingmem.recall.query import Query

MessageId: TypeAlias = tuple[str, str | None]  # thread and message
_BEFORE = 4  # the message before a hit takes at most this fraction of a chunk in a document
SECONDS_A_HIT = 1.0  # that an async call may take longer for each


def rerank(options: RecallOptions, query: Query, hits: Sequence[Found], fetched: Fetched) -> Plan[list[Found]]:
    """Ask the reranker. No round trip; `RerankerError` if it fails or returns what it was not given."""
    items = yield from compute(partial(_items, options, query, hits, fetched), fetched.size)
    seconds = options.embedding_timeout.total_seconds() + SECONDS_A_HIT * len(items)
    returned = yield from Rerank(options.reranker, query.text, items, seconds)
    ids = ((row.thread_id, row.message.id) for row in (fetched.rows[hit.position] for hit in hits))
    return ordered(dict(zip(ids, hits, strict=True)), returned)


def _items(options: RecallOptions, query: Query, hits: Sequence[Found], fetched: Fetched) -> list[Any]:
    """Return hits with their windows for a function; for a compressor documents, each with what was said before the hit."""
    found = [as_hit(hit, fetched, *hit.window(query, fetched)) for hit in hits]
    if not hasattr(options.reranker, "compress_documents"):
        # copies: what a function changes in them changes nothing
        return [replace(hit, message=hit.message.model_copy(deep=True)) for hit in found]
    documents: list[Document] = RecallResult(hits=[replace(hit, before=[], after=[]) for hit in found]).to_documents()
    words, size = words_of(query.text), options.chunk_tokens
    for document, shown, hit in zip(documents, found, hits, strict=True):
        # only a search with a budget looks for the best chunk; else the words of the question find it
        text = message_text(shown.message)
        span = (0, len(text)) if query.max_tokens is None else best_span(hit, shown.message, size)
        lines = [line(_short(shown.message, shown.thread_id, size, span, words))]
        if shown.before:  # an answer is understood with its question
            before = shown.before[-1]
            end = len(message_text(before))
            lines.insert(0, line(_short(before, shown.thread_id, max(1, size // _BEFORE), (end, end), ())))
        document.page_content = "\n".join(lines)
    return documents


def _short(
    message: BaseMessage, thread_id: str, size: int, span: tuple[int, int], words: Collection[str]
) -> BaseMessage:
    return message if count_tokens(message_text(message)) <= size else cut(message, thread_id, size, span, words)


def ordered(hits: dict[MessageId, Found], returned: Iterable[Any]) -> list[Found]:
    """Return the hits in the order of the reranker, with its scores if it gives one to each."""
    taken: dict[MessageId, Found] = {}
    scores = []
    for one in returned:
        id = _id_of(one)
        if id is None or id not in hits:
            raise RerankerError(
                f"the reranker returned {'a message that is no hit' if id else f'an object of type {type(one).__name__}'}",
                remedy="return some of the hits or documents that it was given, with the metadata of the documents",
            )
        if id not in taken:
            taken[id] = hits[id]
            scores.append(_score_of(one))
    # with a budget, the next hit is compared with messages around others: by how good the hit at its place was before
    worths = sorted((hit.ranked.score for hit in taken.values()), reverse=True)
    known = None not in scores
    return [
        hit._replace(ranked=hit.ranked._replace(score=worth), relevance=score if known else hit.ranked.score)
        for hit, worth, score in zip(taken.values(), worths, scores, strict=True)
    ]


def _id_of(one: Any) -> MessageId | None:
    if isinstance(one, RecallHit):
        return one.thread_id, one.message.id
    if isinstance(one, Document):
        thread, message = (one.metadata.get(name) for name in ("thread_id", "message_id"))
        return (thread, message) if isinstance(thread, str) and isinstance(message, str) else None
    return None


def _score_of(one: RecallHit | Document) -> float | None:
    # most rerankers of LangChain use this name
    score = one.score if isinstance(one, RecallHit) else one.metadata.get("relevance_score")
    return float(score) if isinstance(score, Real) and isfinite(score) else None
