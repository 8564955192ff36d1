"""The caller's reranker: what it is given, and what is taken of what it returns. It orders hits and drops some, no more."""

from __future__ import annotations

from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_workingmem._engine.plan import compute
from langchain_workingmem.errors import RerankerError
from langchain_workingmem.models import RecallResult
from langchain_workingmem.recall.shown import as_hit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.options import RecallOptions
    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.shown import Found
    from langchain_workingmem.recall.windows import Page

MessageId: TypeAlias = tuple[str, str | None]  # thread and message
SECONDS_A_HIT = 1.0  # that an async call may take longer for each


def rerank(options: RecallOptions, query: Query, hits: Sequence[Found], fetched: Page) -> Plan[list[Found]]:
    """Ask the reranker. No round trip; `RerankerError` if it fails or returns what it was not given."""
    if options.reranker is None or not hits:
        return [*hits]
    hits = hits[: query.top_k]
    from langchain_workingmem._engine import models  # which imports asyncio

    # with what was said before: an answer is understood with its question
    found = RecallResult(hits=[as_hit(hit, fetched, fetched.windows[hit.position][0][::-1], ()) for hit in hits])
    documents = yield from compute(
        found.to_documents, sum(len(str(row.record["data"]["content"])) for row in fetched.rows.values())
    )
    seconds = options.embedding_timeout.total_seconds() + SECONDS_A_HIT * len(documents)
    returned = yield from models.rerank(options.reranker, query.text, documents, seconds)
    ids = ((row.thread_id, row.record["data"]["id"]) for row in (fetched.rows[hit.position] for hit in hits))
    return _ordered(dict(zip(ids, hits, strict=True)), returned)


def _ordered(hits: dict[MessageId, Found], returned: Iterable[Any]) -> list[Found]:
    """Return the hits in the order of the reranker, with its scores if it gives one to each."""
    taken: dict[MessageId, Found] = {}
    scores = []
    for one in returned:
        metadata = getattr(one, "metadata", {})
        id = (metadata.get("thread_id", ""), metadata.get("message_id"))
        if id not in hits:
            raise RerankerError(
                "the reranker returned what is no hit",
                remedy="return some of the documents that it was given, with their metadata",
            )
        if id not in taken:
            taken[id] = hits[id]
            score = metadata.get("relevance_score")  # most rerankers of LangChain use this name
            scores.append(float(score) if isinstance(score, Real) and isfinite(score) else None)
    # with a budget, the next hit is compared with messages around others: by how good the hit at its place was before
    worths = sorted((hit.ranked.score for hit in taken.values()), reverse=True)
    known = None not in scores
    return [
        hit._replace(ranked=hit.ranked._replace(score=worth), relevance=score if known else hit.ranked.score)
        for hit, worth, score in zip(taken.values(), worths, scores, strict=True)
    ]
