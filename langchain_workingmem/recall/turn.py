"""What a turn shows of recall: the hits that pass its gate, and those of a question that follows up another one."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from itertools import chain, filterfalse, islice
from typing import TYPE_CHECKING

from langchain_workingmem._redis.indexes import NO_VECTORS
from langchain_workingmem._redis.queries import all_words, words_of
from langchain_workingmem._text.unicode import asks, count_tokens, has_digit
from langchain_workingmem.errors import RerankerError
from langchain_workingmem.recall.floors import ALONE, FEWEST, floor_for
from langchain_workingmem.recall.hits import read_hits
from langchain_workingmem.recall.ranking import ORDINARY
from langchain_workingmem.recall.reranking import rerank
from langchain_workingmem.recall.search import search
from langchain_workingmem.recall.shown import result_of, words_in_row
from langchain_workingmem.recall.windows import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import RecallResult
    from langchain_workingmem.options import OnError
    from langchain_workingmem.recall.floors import Floor
    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Ranked, Ranking
    from langchain_workingmem.recall.shown import Found
    from langchain_workingmem.recall.windows import Page

_log = logging.getLogger("langchain_workingmem")
GUARANTEED = 2  # hits of a text with a question mark that are shown, however far they are
CLEAR, STEP = 20, 0.25  # see `_bar`
FOLLOW_TOKENS = 12  # of a text that may follow up another one
LOOKED_THROUGH = 20  # messages, at least, for the number of a question
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

    Where the best hit is hardly near enough, a short text may follow up what the user said `before` it: both together are
    searched too, in one more round trip with one more call of the model. With on_error="log", model and reranker may fail.
    """
    floor, guaranteed = None, GUARANTEED if asks(query.text) else 0
    if query.threshold is None and state.recalling.index.distance != "l2":  # whose similarities are on another scale
        floor = yield from floor_for(state, learn=len(ranking) >= FEWEST)
    gates = [gate := Gate.of(query, ranking, is_hidden, floor, guaranteed)]
    if floor is not None and gate.may_follow(query, floor) and (said := (yield from before())):
        try:
            both, _ = yield from search(state, replace(query, before=said), spare=spare)
            gates.append(Gate.of(query, both, is_hidden, floor, guaranteed))
        except NO_VECTORS as error:
            if on_error == "raise":
                raise
            _log.warning("%s; this turn goes without what its question follows up", error)
    look = LOOKED_THROUGH if gate.numbers else 0
    found, page = yield from read_hits(state, query, *(one.entering for one in gates), at_least=look)
    hits = _merged([one.passing(some, page) for one, some in zip(gates, found, strict=True)], query.fetched)
    silent = None
    if floor and not hits and (near := [one.similarity for one in gate.best(query)]):
        silent = "far" if max(near) < floor.shown else "ordinary"
    try:
        hits = yield from rerank(state.recalling, query, hits, page)
    except RerankerError as error:
        if on_error == "raise":
            raise
        _log.warning("%s; this turn goes on without it", error)
    result = result_of(query, hits[: query.top_k], page, state.recalling.chunk_tokens)
    return replace(result, silent=silent) if silent else result


@dataclass(slots=True)
class Gate:
    """Which hits of a search a turn shows, each for itself.

    Those whose similarity reaches the bar, of a time that the question names, or with a number of it, such as that of an order. And
    the best so many that do not stand in each other's window, if they are guaranteed.
    """

    ranking: Ranking
    is_hidden: Callable[[Ranked], bool]
    bar: float
    guaranteed: int
    numbers: frozenset[str]

    @classmethod
    def of(
        cls, query: Query, ranking: Ranking, is_hidden: Callable[[Ranked], bool], floor: Floor | None, guaranteed: int
    ) -> Gate:
        """Return the gate of a search; without a floor everything passes."""
        words = words_of(query.text, whole=True) if has_digit(query.text) else ()
        bar = 0.0 if floor is None else floor.shown if guaranteed else _bar(ranking, floor.shown)
        return cls(ranking, is_hidden, bar, guaranteed, frozenset(filter(has_digit, words)))

    def may_follow(self, query: Query, floor: Floor) -> bool:
        """Tell whether a text is short and finds hardly anything: a stored copy of it does not count."""
        if (tokens := count_tokens(query.text)) > FOLLOW_TOKENS:
            return False
        bar = max(floor.alone, ALONE * self.bar)
        return not any(
            one.similarity >= bar and not (one.similarity > _SAME and one.tokens == tokens) for one in self.best(query)
        )

    def best(self, query: Query) -> Iterator[Ranked]:
        """Return the best messages, whether they pass or not."""
        return islice(filterfalse(self.is_hidden, self.ranking), query.fetched)

    def entering(self) -> Iterator[Ranked]:
        """Leave out what cannot pass, before it is read."""
        bar = 0.0 if self.guaranteed else self.bar
        return filterfalse(self.is_hidden, self.ranking.above(bar, worded=bool(self.numbers)))

    def passing(self, hits: Sequence[Found], page: Page) -> list[Found]:
        """Return the hits that pass, those with a number of the question first."""
        exact, passed = list["Found"](), list["Found"]()
        left, shown, beside = self.guaranteed, set[Position](), set[Position]()
        for hit in hits:
            window = {*chain(*page.windows[hit.position])}
            is_apart = hit.position not in beside and shown.isdisjoint(window)
            if (
                self.numbers
                and hit.ranked.worded
                and not self.numbers.isdisjoint(all_words(words_in_row(page.rows[hit.position])))
            ):
                exact.append(hit)
            elif hit.ranked.similarity >= self.bar or hit.ranked.timely or (left > 0 and is_apart):
                passed.append(hit)
            else:
                continue
            left -= is_apart
            shown.add(hit.position)
            beside |= window
        return exact + passed


def _bar(ranking: Ranking, floor: float) -> float:
    """Return how similar a hit has to be: the floor of the model, or more where most messages are as near.

    In a language that the model hardly knows, and with a model of another scale, all messages are alike: where an ordinary one
    reaches half of the floor, a hit stands out that is a quarter of the way from the 20th to 1.
    """
    nearest: list[float] = sorted(ranking.similarities[ranking.similarities > 0].tolist(), reverse=True)
    if len(nearest) < CLEAR or nearest[min(ORDINARY, len(nearest) // 2)] < floor / 2:
        return floor
    return max(floor, nearest[CLEAR - 1] + STEP * (1 - nearest[CLEAR - 1]))


def _merged(passed: Sequence[Sequence[Found]], most: int) -> list[Found]:
    """Return half of the hits, then those of the question with what it follows up, then the others; of equal texts one."""
    own, *more = passed
    half = (most + 1) // 2
    found: dict[object, Found] = {}
    for hit in chain(own[:half], *more, own[half:]):
        found.setdefault(hit.said, hit)
    return [*found.values()][:most]
