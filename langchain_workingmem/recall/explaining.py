"""Explain a search: why each hit is one, and what just missed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from langchain_workingmem._redis.access import check_owner
from langchain_workingmem._text.rendering import words_in
from langchain_workingmem.models import RecallResult
from langchain_workingmem.recall.operations import fetch_hits, fetch_windows, find_candidates
from langchain_workingmem.recall.ranking import PARTS, floor_of, reaches

if TYPE_CHECKING:
    from datetime import datetime

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.effects import Command, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import RecallHit
    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Floor, Ranked


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedMessage:
    """A candidate of a search, or a hit that stands for one."""

    message: BaseMessage  # as it is stored
    thread_id: str
    thread_title: str | None
    seq: int  # position in the thread
    stored_at: datetime
    score: float
    similarity: float
    parts: dict[str, float]  # whose sum is the score, unless that is above 1 or below 0; empty: see `reason`
    hit: RecallHit | None  # None: it is not recalled
    reason: str  # why it is recalled in place of another message, or why it is not recalled; "" for an ordinary hit


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A search with the reasons of its result."""

    result: RecallResult = field(default_factory=RecallResult)
    messages: list[ExplainedMessage] = field(
        default_factory=list
    )  # the hits, then what just missed, each the best first
    floor: Floor | None = None  # of similarity, below which a turn recalls nothing


def explain(state: MemoryState, query: Query, *, missed: int) -> Plan[Explanation]:
    """Search, and say of each hit and of the `missed` best other candidates why. Three round trips.

    The query names a resource. Its threshold is applied here, so that what lies below it can be shown.
    """
    if not query.text.strip():
        return Explanation()
    checks: list[Command] = []
    if query.thread_id is not None:
        checks = [("HGET", state.keys.of(query.thread_id).thread, "resource")]
    asked = replace(query, explained=True, threshold=None)
    ranked, replies = yield from find_candidates(state, asked, checks, spare=missed)
    if checks:
        check_owner(replies[0], query.thread_id or "", query.resource_id)
    least = query.threshold or 0.0
    near = [one for one in ranked if one.similarity >= least]
    result = yield from fetch_hits(state, query, near, spare=missed)
    first = ranked[: query.top_k + missed]
    page, _ = yield from fetch_windows(state, replace(query, window=(0, 0)), first)

    floor = floor_of(state.model) if query.turn and query.threshold is None else None
    hits = {(hit.thread_id, hit.message.id): hit for hit in result.hits}
    beside = {(row.thread_id, row.message.id) for row in result.rows}
    texts = {(hit.message.type, words_in(hit.message).strip()) for hit in result.hits}
    is_low = not reaches(near, floor, hybrid=state.recalling.search == "hybrid")

    def reason_of(one: Ranked, message: BaseMessage, key: tuple[str, str | None]) -> str:
        if one.similarity < least:
            return f"its similarity is below the threshold of {least:g}"
        if query.turn and message.type == "human" and words_in(message).strip() == query.text.strip():
            return "it is the question itself, asked before"
        if key in beside:
            return "it is shown beside a hit"
        if query.turn and (message.type, words_in(message).strip()) in texts:
            return "a hit has the same text"
        if is_low:
            return "no similarity reaches the floor of this embedding model, so only messages with the question's words count"
        if state.recalling.reranker is not None:
            return "the reranker has left it out, or placed it lower"
        if len(result.hits) >= query.keep:
            return f"the best {query.keep} are taken"
        if query.max_tokens is not None:
            return f"there is no room left in {query.max_tokens:,} tokens"
        return "it is not among the best"

    found: dict[tuple[str, str | None], ExplainedMessage] = {}
    for one in first:
        row = page.rows.get(one[:2])
        if row is None:  # it is gone
            continue
        key = (row.thread_id, row.message.id)
        found[key] = ExplainedMessage(
            message=row.message,
            thread_id=row.thread_id,
            thread_title=page.titles[one.thread],
            seq=row.seq,
            stored_at=row.stored_at,
            score=one.score,
            similarity=one.similarity,
            parts=dict(zip(PARTS, one.parts, strict=True)),
            hit=hits.get(key),
            reason="" if key in hits else reason_of(one, row.message, key),
        )
    others = [one for one in found.values() if one.hit is None]
    own = [found.get(key) or _answer(hit, result) for key, hit in hits.items()]
    return Explanation(result=result, messages=[*own, *others[:missed]], floor=floor)


def _answer(hit: RecallHit, result: RecallResult) -> ExplainedMessage:
    """Explain a hit that is no candidate itself."""
    seqs = {(row.thread_id, row.message.id): row.seq for row in result.rows}
    return ExplainedMessage(
        message=hit.message,
        thread_id=hit.thread_id,
        thread_title=hit.thread_title,
        seq=seqs.get((hit.thread_id, hit.message.id), 0),
        stored_at=hit.stored_at,
        score=hit.score,
        similarity=hit.similarity,
        parts={},
        hit=hit,
        reason="it answers the same question, which was asked before, or is the newest message with its text",
    )
