"""The caller's reranker: what it is given, and what is taken of what it returns. It orders hits and drops some, no more."""

from __future__ import annotations

from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_workingmem._engine import calls
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


def rerank(options: RecallOptions, query: Query, hits: Sequence[Found], page: Page) -> Plan[list[Found]]:
    """Ask the reranker. No round trip; `RerankerError` if it fails or returns what it was not given."""
    if options.reranker is None or not hits:
        return [*hits]
    hits = hits[: query.fetched]
    # with what was said before: an answer is understood with its question
    found = RecallResult(hits=[as_hit(hit, page, page.windows[hit.position][0][::-1], (), page.rows) for hit in hits])
    documents = yield from compute(
        found.to_documents, sum(len(str(row.record["data"]["content"])) for row in page.rows.values())
    )
    seconds = options.embedding_timeout.total_seconds() + SECONDS_A_HIT * len(documents)
    returned = yield from calls.rerank(options.reranker, query.text, documents, seconds)
    ids = ((row.thread_id, row.record["data"]["id"]) for row in (page.rows[hit.position] for hit in hits))
    return _ordered(dict(zip(ids, hits, strict=True)), returned)


def _ordered(hits: dict[MessageId, Found], returned: Iterable[Any]) -> list[Found]:
    """Return the hits in the order of the reranker, with its scores if it gives one to each."""
    scores: dict[MessageId, Any] = {}
    for one in returned:
        metadata = getattr(one, "metadata", {})
        id = (metadata.get("thread_id", ""), metadata.get("message_id"))
        if id not in hits:
            raise RerankerError(
                "the reranker returned what is no hit",
                remedy="return some of the documents that it was given, with their metadata",
            )
        scores.setdefault(id, metadata.get("relevance_score"))  # most rerankers of LangChain use this name
    known = all(isinstance(score, Real) and isfinite(score) for score in scores.values())
    return [hits[id]._replace(relevance=float(score) if known else None) for id, score in scores.items()]
