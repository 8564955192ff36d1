"""What a turn shows of recall: the hits that pass its gate, and those of a question that follows up another one."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from functools import lru_cache
from itertools import chain, filterfalse, islice
from typing import TYPE_CHECKING, NamedTuple

from langchain_workingmem._engine.plan import Plan, Spawn, send
from langchain_workingmem._redis.indexes import NO_VECTORS
from langchain_workingmem._redis.queries import all_words, words_of
from langchain_workingmem._text.unicode import asks, count_tokens
from langchain_workingmem.recall.hits import Position, hits_of, read_hits, result_of, words_in_row
from langchain_workingmem.recall.ranking import ORDINARY
from langchain_workingmem.recall.search import search

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import RecallResult
    from langchain_workingmem.options import OnError
    from langchain_workingmem.recall.hits import Page
    from langchain_workingmem.recall.question import Query
    from langchain_workingmem.recall.ranking import Numbers, Ranked, Ranking

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
    before: Callable[[], str],
    spare: int,
    on_error: OnError,
) -> Plan[RecallResult]:
    """Choose the hits of a turn among those not hidden, and fetch their windows. One round trip, two for a follow-up.

    A short text with no near hit may follow up what the user said `before` it: both together are searched, too.
    """
    floor = None
    if query.threshold is None and state.recalling.index.distance != "l2":  # whose similarities are on another scale
        floor = yield from floor_for(state, learn=len(ranking) >= FEWEST)
    gates = [gate := Gate(query, ranking, is_hidden, floor)]
    best = [*islice(filterfalse(is_hidden, ranking), query.fetched)]
    if floor and _is_far(query, best, max(floor.alone, ALONE * gate.bar)) and (said := before()):
        try:
            both, _ = yield from search(state, replace(query, before=said), spare=spare)
            gates.append(Gate(query, both, is_hidden, floor))
        except NO_VECTORS as error:
            if on_error == "raise":
                raise
            _log.warning("%s; this turn goes without what its question follows up", error)
    found, page = yield from read_hits(state, query, *gates, at_least=LOOKED_THROUGH if gate.numbers else 0)
    own, *more = (one.passing(some, page) for one, some in zip(gates, found, strict=True))
    # half of the hits, then those of the question with what it follows up, then the others
    half = (query.fetched + 1) // 2 if more else query.fetched
    passed = {hit[:2]: hit for hit in chain(own[:half], *more, own[half:])}
    hits = hits_of([*passed.values()], page)[: query.fetched] if more else own[: query.fetched]
    silent = None
    if floor and best and not hits:
        silent = "far" if max(one.similarity for one in best) < floor.shown else "ordinary"
    result = yield from result_of(state.recalling, query, hits, page, forgives=on_error == "log")
    return replace(result, silent=silent) if silent else result


def _is_far(query: Query, best: Sequence[Ranked], bar: float) -> bool:
    """Tell whether a text is short and finds hardly anything: a stored copy of it does not count."""
    tokens = count_tokens(query.text)
    return tokens <= FOLLOW_TOKENS and not any(
        one.similarity >= bar and not (one.similarity > _SAME and one.tokens == tokens) for one in best
    )


class Gate:
    """Which hits of a search a turn shows; iterating yields those that may pass.

    Those above the bar, of a time that the question names, or with a number of it, such as that of an order. And of
    what has a question mark the best two outside of each other's windows. Without a floor everything passes.
    """

    def __init__(
        self, query: Query, ranking: Ranking, is_hidden: Callable[[Ranked], bool], floor: Floor | None
    ) -> None:
        self.ranking, self.is_hidden = ranking, is_hidden
        self.guaranteed = GUARANTEED if asks(query.text) else 0
        self.bar = 0.0 if floor is None else floor.shown if self.guaranteed else _bar(ranking, floor.shown)
        words = words_of(query.text, whole=True) if any(map(str.isdigit, query.text)) else ()
        self.numbers = frozenset(word for word in words if any(map(str.isdigit, word)))

    def __iter__(self) -> Iterator[Ranked]:
        ranking, bar = self.ranking, 0.0 if self.guaranteed else self.bar
        kept = (ranking.similarities >= bar) | (ranking.timely == 1) | (bool(self.numbers) & (ranking.words > 0))
        return filterfalse(self.is_hidden, map(ranking.make, ranking.order[kept[ranking.order]].tolist()))

    def passing(self, hits: Sequence[Ranked], page: Page) -> list[Ranked]:
        """Return the hits that pass, those with a number of the question first."""
        exact, passed = list["Ranked"](), list["Ranked"]()
        left, shown, beside = self.guaranteed, set[Position](), set[Position]()
        for hit in hits:
            window = {*chain(*page.windows[hit[:2]])}
            is_apart = hit[:2] not in beside and shown.isdisjoint(window)
            worded = self.numbers and hit.worded
            if worded and not self.numbers.isdisjoint(all_words(words_in_row(page.rows[hit[:2]]))):
                exact.append(hit)
            elif hit.similarity >= self.bar or hit.timely or (left > 0 and is_apart):
                passed.append(hit)
            else:
                continue
            left -= is_apart
            shown.add(hit[:2])
            beside |= window
        return exact + passed


def _bar(ranking: Ranking, floor: float) -> float:
    """Return how similar a hit has to be: the floor of the model, or more where most messages are as near."""
    # in a language that the model hardly knows, all messages are alike: where an ordinary one reaches half of the
    # floor, a hit stands out that is a quarter of the way from the 20th to 1
    nearest: list[float] = sorted(ranking.similarities[ranking.similarities > 0].tolist(), reverse=True)
    if len(nearest) < CLEAR or nearest[min(ORDINARY, len(nearest) // 2)] < floor / 2:
        return floor
    return max(floor, nearest[CLEAR - 1] + STEP * (1 - nearest[CLEAR - 1]))


# Questions and their answers, about other things each. What a model makes of them tells which similarity is accidental.
# fmt: off
ASKED_AND_TOLD = (
    ("What is my dog called?", "Our little terrier listens to the name Rocky."),
    ("When is my sister's birthday?", "Anna turns thirty on the second of May."),
    ("Where did we go on holiday last year?", "In August we spent two weeks at the lake in Italy."),
    ("Which medicine does my father take?", "Dad swallows two tablets against high blood pressure every morning."),
    ("How much did the new bicycle cost?", "I paid nine hundred euros for it, with the lock."),
    ("What did the doctor say about my knee?", "The surgeon wants me to rest the joint for six weeks."),
    ("Who won the chess tournament?", "My neighbour's daughter beat everybody and took the cup home."),
    ("What is the password of the guest network?", "Visitors type sunflower-42 to get online."),
    ("Which paint did we choose for the kitchen?", "We painted those walls in a warm yellow."),
    ("When does the train to Vienna leave?", "It departs at a quarter past seven from platform four."),
    ("What am I allergic to?", "Peanuts make my throat swell."),
    ("Who is my manager at work?", "I report to Martha since the reorganisation."),
    ("What book did Tom recommend?", "He said that I must read a novel about a lighthouse."),
    ("How long should the bread stay in the oven?", "Bake the loaf for forty minutes at two hundred degrees."),
    ("What time is the parents' evening?", "The school invites us on Thursday at half past six."),
    ("Which plants need no sun?", "Ferns are happy in the dark corner of the hall."),
)
# fmt: on

ALONE = 1.1  # of a learned floor, or of a higher bar
FEWEST = 20  # messages of a memory in which a scale is worth its learning


class Floor(NamedTuple):
    """How similar a message has to be, on the scale of a model."""

    shown: float  # that a turn shows it
    alone: float  # a short text whose best hit is less similar may follow up another text


# By the model's name in LangChain integrations. Similarities of different models cannot be compared.
_FLOORS = (
    (re.compile(r"wordllama-l2-supercat-256"), Floor(0.4, 0.44)),
    (re.compile(r"multilingual-use-v3-6bit"), Floor(0.19, 0.33)),
    (re.compile(r"(.*[/\\])?all-minilm(-l6-v2.*|:(latest|22m|l6-v2).*)?"), Floor(0.36, 0.4)),
)


@lru_cache(64)
def floor_of(model: str) -> Floor | None:
    """Return the floor of an embedding model, None when it was never measured."""
    return next((floor for pattern, floor in _FLOORS if pattern.fullmatch(model.lower())), None)


def floor_between(asked: Numbers, told: Numbers, distance: str) -> float:
    """Return the floor of a model by its vectors of questions and of their answers, in the same order."""
    import numpy as np

    # A question and the answer to another are similar by accident: what is to be shown stands out from that, by 3.6
    # standard deviations. For the three models above, this gives .27, .25 and .34.
    if distance == "cosine":
        asked, told = (one / np.linalg.norm(one, axis=1, keepdims=True).clip(1e-9) for one in (asked, told))
    by_accident = (asked @ told.T)[~np.eye(len(asked), dtype=bool)]
    return float(by_accident.mean() + 3.6 * by_accident.std())


def floor_for(state: MemoryState, *, learn: bool) -> Plan[Floor | None]:
    """Return the floor of the model's similarities. One that nobody has measured is learned in the background."""
    learned = state.indexes.scale
    floor = floor_of(state.indexes.model) or (learned and Floor(learned, ALONE * learned)) or None
    if floor is None and learn and state.is_first("floor"):
        yield Spawn(learn_scale(state, anew=False), slow=True)  # nobody waits for a paid model at the end of a process
    return floor


def learn_scale(state: MemoryState, *, anew: bool = True) -> Plan[None]:
    """Learn the floor of a model that nobody has measured, and keep it beside the index; or take what is there."""
    if floor_of(state.indexes.model) is not None:
        return
    try:
        (stored,) = yield from send(("GET", state.keys.vectors_scale))
        learned = json.loads(stored or "{}")
        if anew or learned.get("model") != state.indexes.model:
            asked, told = zip(*ASKED_AND_TOLD, strict=True)
            questions = yield from state.embedder.embed(asked, query=True)
            answers = yield from state.embedder.embed(told)
            if not questions.shape[1] == answers.shape[1] == state.indexes.dims:  # a model in trouble
                return
            floor = floor_between(questions, answers, state.recalling.index.distance)
            learned = {"model": state.indexes.model, "floor": floor}
            yield from send(("SET", state.keys.vectors_scale, json.dumps(learned)))
        state.indexes.scale = learned["floor"]
    finally:
        if state.indexes.scale is None:
            state.done.discard("floor")
