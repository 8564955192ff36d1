"""Explain a search: why each hit is one, and what just missed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from langchain_workingmem._redis.access import check_owner
from langchain_workingmem._text.said import answer_text
from langchain_workingmem.recall.hits import Found, Gate
from langchain_workingmem.recall.operations import fetch_windows, find_candidates
from langchain_workingmem.recall.ranking import PARTS
from langchain_workingmem.recall.reindex import known_floor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.effects import Command, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import RecallHit, RecallResult
    from langchain_workingmem.recall.hits import Fetched
    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Floor, Ranked


DEEP = 300  # candidates among which a message is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedMessage:
    """A candidate of a search, or a hit that stands for one."""

    message: BaseMessage  # as it is stored; its media are not read, because a page shows their names
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
    """The reasons of the result of a search."""

    # the hits, then what just missed, each the best first
    messages: list[ExplainedMessage] = field(default_factory=list)
    asked: ExplainedMessage | None = None  # the message that was asked about; None: it is no candidate
    floor: Floor | None = None  # of similarity, below which a turn recalls nothing


def explain(
    state: MemoryState,
    query: Query,
    result: RecallResult,
    *,
    missed: int,
    shown: Collection[str] = (),
    about: tuple[str, int] | None = None,
) -> Plan[Explanation]:
    """Say of each hit of a search, and of the `missed` best other candidates, why. Two round trips.

    `shown` are the ids of messages that the history of a turn shows; `about` is a thread and the position of a message that is
    asked about, and looked for among the `DEEP` best. The search is repeated with deeper lists and without its
    threshold, so that what has missed can be shown; the result stays the one that is passed. The query names a resource.
    """
    if not query.text.strip():
        return Explanation()
    checks: list[Command] = []
    if query.thread_id is not None:
        checks = [("HGET", state.keys.of(query.thread_id).thread, "resource")]
    query = query.in_zone(state.zone(query.thread_id, query.resource_id))
    asked = replace(query, explained=True, threshold=None)
    ranked, replies, ordinary = yield from find_candidates(
        state, asked, checks, spare=max(missed + len(shown), DEEP if about else 0)
    )
    if checks:
        check_owner(replies[0], query.thread_id or "", query.resource_id)
    page, _ = yield from fetch_windows(state, replace(query, window=(0, 0)), ranked)
    gate = Gate.of(query.text, _floor(state, query), ordinary) if query.turn and query.threshold is None else None
    reason_of = _reasons(state, query, result, gate, page, shown)
    hits = {(hit.thread_id, hit.message.id): hit for hit in result.hits}
    found: dict[tuple[str, str | None], ExplainedMessage] = {}
    for one in ranked:
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
            reason="" if key in hits else reason_of(one),
        )
    others = [one for one in found.values() if one.hit is None]
    own = [found.get(key) or _answer(hit, result) for key, hit in hits.items()]
    asked_about = next((one for one in [*own, *others] if (one.thread_id, one.seq) == about), None)
    return Explanation(messages=[*own, *others[:missed]], asked=asked_about, floor=_floor(state, query))


def _floor(state: MemoryState, query: Query) -> Floor | None:
    return known_floor(state) if query.turn and query.threshold is None else None


def _reasons(
    state: MemoryState,
    query: Query,
    result: RecallResult,
    gate: Gate | None,
    page: Fetched,
    shown: Collection[str],
) -> Callable[[Ranked], str]:
    """Return what says why a candidate is not a hit. The first reason that holds counts, as in the search."""
    least = query.threshold or 0.0
    beside = {(row.thread_id, row.message.id) for row in result.rows}
    texts = {(hit.message.type, answer_text(hit.message).strip()) for hit in result.hits}

    def is_in_history(one: Ranked) -> bool:
        row = page.rows[one[:2]]
        return row.thread_id == query.thread_id and row.message.id in shown

    def reason_of(one: Ranked) -> str:
        row = page.rows[one[:2]]
        text = (row.message.type, answer_text(row.message).strip())
        if one.similarity < least:
            return f"its similarity is below the threshold of {least:g}"
        if is_in_history(one):
            return "the history of the turn shows it"
        if query.turn and text == ("human", query.text.strip()):
            return "it is the question itself, asked before"
        if (row.thread_id, row.message.id) in beside:
            return "it is shown beside a hit"
        if query.turn and text in texts:
            return "a hit has the same text"
        if result.silent == "no words":
            return "no word of the question tells something, so nothing was searched"
        if gate is not None and not gate.admits(Found(one, one[:2]), page, state.recalling.chunk_tokens):
            return "it has too little in common with what is asked: too few of its words, and no vector that is near enough"
        if state.recalling.reranker is not None:
            return "the reranker has left it out, or placed it lower"
        if len(result.hits) >= query.keep:
            return f"the best {query.keep} are taken"
        if query.max_tokens is not None:
            return f"there is no room left in {query.max_tokens:,} tokens"
        return "it is not among the best"

    return reason_of


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
