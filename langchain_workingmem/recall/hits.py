"""Which of the ranked messages are hits: equal texts are one, and a reranker may order and drop some."""

from __future__ import annotations

from itertools import chain
from math import inf
from typing import TYPE_CHECKING

from langchain_workingmem._engine.plan import send
from langchain_workingmem._redis.keys import decode, encode
from langchain_workingmem._text.unicode import count_tokens
from langchain_workingmem.history import with_media
from langchain_workingmem.recall.query import TIMES
from langchain_workingmem.recall.ranking import Ranked
from langchain_workingmem.recall.reranking import rerank
from langchain_workingmem.recall.shown import LEAST, Found, in_windows, most_of, result_of, words_in_row
from langchain_workingmem.recall.windows import read_windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import RecallResult
    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Ranking
    from langchain_workingmem.recall.windows import Page


def fetch_hits(state: MemoryState, query: Query, ranking: Ranking) -> Plan[RecallResult]:
    """Fetch what a search has found: the round trips of `read_hits`."""
    (hits,), page = yield from read_hits(state, query, lambda: ranking)
    hits = yield from rerank(state.recalling, query, hits, page)
    result = result_of(query, hits[: query.top_k], page, state.recalling.chunk_tokens)
    shown = {*map(id, result.rows)}  # not the copies with excerpts
    yield from with_media(state, [row for row in page.rows.values() if id(row) in shown])
    return result


def read_hits(
    state: MemoryState, query: Query, *found: Callable[[], Iterable[Ranked]], at_least: int = 0
) -> Plan[tuple[list[list[Found]], Page]]:
    """Read the best of what searches have found, with what stands around them; return the hits of each.

    One round trip, none without candidates; one more where a message beside a hit was deleted. Two more where a thread is gone,
    which has expired or was evicted: then only threads that are there count.
    """
    picks = [picked(one(), query, at_least) for one in found]
    page = yield from read_windows(state, [*chain(*picks)], query.window, query.user_id)
    if {one.thread for one in chain(*picks)} - page.titles.keys():
        threads = [*{one.thread: None for some in found for one in some()}]
        replies = yield from send(*(("HEXISTS", state.keys.of(decode(one)).thread, "user") for one in threads))
        alive = {one for one, is_there in zip(threads, replies, strict=True) if is_there}
        picks = [picked((one for one in some() if one.thread in alive), query, at_least) for some in found]
        page = yield from read_windows(state, [*chain(*picks)], query.window, query.user_id)
    return [hits_of(some, page) for some in picks], page


def picked(ranked: Iterable[Ranked], query: Query, at_least: int = 0) -> list[Ranked]:
    """Take the best candidates that give enough hits within the budget, and besides them possible copies of their texts.

    The same text has the same vector and length, so only candidates with both may be one hit.
    """
    taken: list[Ranked] = []
    seen: set[object] = set()
    left = inf if query.max_tokens is None else query.max_tokens * (TIMES if query.reranked else 1)
    most = LEAST if query.turn else most_of(query)
    for one in ranked:
        if len(seen) >= max(query.fetched, at_least):
            break
        # Redis 8 rounds what it computes in float16, so that half of the candidates have the similarity of another text
        key = (one.similarity, one.tokens) if one.similarity else one[:2]
        if key not in seen:
            size = min(one.tokens, most)
            if size > left:
                continue
            seen.add(key)
            left -= size
        taken.append(one)
    return taken


def hits_of(ranked: Sequence[Ranked], page: Page) -> list[Found]:
    """Return all hits, the best first; of messages with the same text only the newest counts, or one of a time that is asked for.

    What is gone is left out, and so is a vector of another text: vectors outlive a thread that expires, and are deleted in steps
    behind the messages.
    """
    found: dict[object, Found] = {}
    for one in ranked:
        row = page.rows.get(one[:2])
        if row is None or count_tokens(text := words_in_row(row)) != one.tokens:
            continue
        hit = Found(one, one[:2], (row.role, text.strip()))
        known = found.setdefault(hit.said, hit)
        if not known.ranked.timely and page.rows[known.position].record["at"] < row.record["at"]:
            found[hit.said] = hit._replace(ranked=known.ranked)
    return list(found.values())


def messages_around(
    state: MemoryState, thread_id: str, seqs: Sequence[int], user_id: str | None, window: tuple[int, int]
) -> Plan[RecallResult]:
    """Return messages of a thread as hits, with what was said around each. One or two round trips, more with media."""
    ranked = [Ranked(encode(thread_id).encode(), seq, 0, 1.0, 0.0) for seq in seqs]
    page = yield from read_windows(state, ranked, window, user_id)
    yield from with_media(state, [*page.rows.values()])
    return in_windows([Found(one, one[:2]) for one in ranked if one[:2] in page.rows], page, page.rows)
