"""What a turn shows of recall: hits that are near enough, and those of a question that follows up another one."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import filterfalse
from typing import TYPE_CHECKING

from langchain_workingmem._redis.indexes import NO_VECTORS
from langchain_workingmem._redis.queries import words_of
from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem._text.searched import asks, has_digit
from langchain_workingmem.errors import RerankerError
from langchain_workingmem.recall.floors import FEWEST, floor_for
from langchain_workingmem.recall.hits import hits_of, picked
from langchain_workingmem.recall.reranking import rerank
from langchain_workingmem.recall.search import search
from langchain_workingmem.recall.shown import result_of, words_in_row
from langchain_workingmem.recall.windows import read_windows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import RecallResult
    from langchain_workingmem.options import OnError
    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Ranked, Ranking
    from langchain_workingmem.recall.shown import Found
    from langchain_workingmem.recall.windows import Page

_log = logging.getLogger("langchain_workingmem")
ASKED = 2  # hits of a text with a question mark that are shown, however far they are
# A text of so many tokens, whose best hit is less similar than so many bars, may go on with what was said before it
FOLLOW_TOKENS, FOLLOWS = 12, 1.1
_SAME = 0.995  # similarity of a text and its copy; float16 rounds it


def recall_for_turn(
    state: MemoryState,
    query: Query,
    ranking: Ranking,
    *,
    is_hidden: Callable[[Ranked], bool],
    before: Callable[[], Plan[str]],
    spare: int,
    on_error: OnError,
) -> Plan[RecallResult]:
    """Choose the hits of a turn among those that are not hidden, and fetch them with their windows. One round trip.

    Where the best hit is hardly near enough, the question may follow up what the user said `before` it: both together are
    searched too, in one more round trip with one more call of the model. With on_error="log", model and reranker may fail.
    """
    options, floor, asked = state.recalling, None, ASKED if asks(query.text) else 0
    if query.threshold is None and options.index.distance != "l2":  # whose similarities are on another scale
        floor = yield from floor_for(state, learn=len(ranking) >= FEWEST)
    fresh, again = picked(filterfalse(is_hidden, ranking), query), list["Ranked"]()
    bar = bar_again = ranking.bar(floor, is_asked=asked > 0)
    if floor is not None and _may_follow(query, fresh, bar) and (said := (yield from before())):
        try:
            both, _ = yield from search(state, replace(query, text=f"{said}\n{query.text}"), spare=spare)
            again, bar_again = picked(filterfalse(is_hidden, both), query), both.bar(floor, is_asked=asked > 0)
        except NO_VECTORS as error:
            if on_error == "raise":
                raise
            _log.warning("%s; this turn goes without what its question follows up", error)
    page = yield from read_windows(state, [*fresh, *again], query.window, query.user_id)
    found = hits_of(fresh, page)
    hits = _near_enough(query, found, page, bar, asked)
    if again:
        hits = _merged(hits, _near_enough(query, hits_of(again, page), page, bar_again, asked), query.top_k)
    try:
        hits = yield from rerank(options, query, hits, page)
    except RerankerError as error:
        if on_error == "raise":
            raise
        _log.warning("%s; this turn goes on without it", error)
    result = result_of(query, hits[: query.keep], page, options.chunk_tokens)
    if found and not hits and floor is not None:
        return replace(result, silent="far" if max(hit.ranked.similarity for hit in found) < floor else "ordinary")
    return result


def _may_follow(query: Query, ranked: Sequence[Ranked], bar: float) -> bool:
    """Tell whether a short text finds hardly anything for itself, but a copy of itself, which was asked before."""
    if (tokens := count_tokens(query.text)) > FOLLOW_TOKENS:
        return False
    others = [one.similarity for one in ranked if one.similarity < _SAME or one.tokens != tokens]
    return max(others, default=0.0) < FOLLOWS * bar


def _near_enough(query: Query, hits: Sequence[Found], page: Page, bar: float, asked: int) -> list[Found]:
    """Return the hits that a turn shows, each for itself.

    It reaches the bar, or is of a time that the question names, or has a number of it, such as that of an order. And so many as are
    `asked` for, the best that do not stand in each other's window.
    """
    words = words_of(query.text, whole=True) if has_digit(query.text) else ()
    numbers = {word for word in words if has_digit(word)}
    shown: list[Found] = []
    beside: set[tuple[bytes, int]] = set()
    for hit in hits:
        one, is_apart = hit.ranked, hit.position not in beside
        is_near = one.similarity >= bar or one.timely
        if not is_near and one.worded and numbers:
            is_near = not numbers.isdisjoint(words_of(words_in_row(page.rows[hit.position])))
        if is_near or (asked > 0 and is_apart):
            shown.append(hit)
            asked -= is_apart
            beside.update(*page.windows[hit.position])
    return shown


def _merged(hits: Sequence[Found], followed: Sequence[Found], top_k: int) -> list[Found]:
    """Return half of the hits, then those of the question with what it follows up, then the others; of equal texts one."""
    half = (top_k + 1) // 2
    found: dict[object, Found] = {}
    for hit in (*hits[:half], *followed, *hits[half:]):
        found.setdefault(hit.said, hit)
    return [*found.values()][:top_k]
