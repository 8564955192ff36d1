"""The plans of semantic recall: embed the question, search vectors and words at once, rank, and fetch windows.

A search brings the best there is. A turn shows what passes its gate, also of what the question follows up.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain, compress, islice
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_workingmem._engine.plan import Plan, Spawn, compute, send
from langchain_workingmem._redis import queries
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.indexes import EMBEDDING_ERRORS, search_with_repair
from langchain_workingmem._redis.keys import encode
from langchain_workingmem._redis.scripts import check_owner
from langchain_workingmem._text.messages import row_text
from langchain_workingmem._text.unicode import WORD, as_searched, count_tokens
from langchain_workingmem._text.values import in_zone, to_micros
from langchain_workingmem.history.read import with_media
from langchain_workingmem.models import RecallResult
from langchain_workingmem.recall.hits import hits_of, read_hits, result_of
from langchain_workingmem.recall.question import Terms
from langchain_workingmem.recall.ranking import BY_USER, CANDIDATES, ORDINARY, USERS, Candidates, Position, rank
from langchain_workingmem.threads import find_threads, get_existing_thread, get_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np

    from langchain_workingmem._engine.plan import Command
    from langchain_workingmem._redis.state import Core, MemoryState
    from langchain_workingmem.recall.hits import Windows
    from langchain_workingmem.recall.question import Query
    from langchain_workingmem.recall.ranking import Hidden, Numbers, Ranked, Ranking

_log = logging.getLogger("langchain_workingmem")
NEAREST = 100  # candidates of a search by vectors alone; 200 cost a fifth of its time, and bring .04 on BEAM
CHECKED = 1_000  # candidates of each search whose metadata is checked here
LEAST_RANKED = 10  # different messages that a search should rank at least
DEEPER = 20  # times as many candidates in a second search
DEEPEST = 1_000_000  # candidates: Search returns no more at once
GUARANTEED = 2  # hits of a text with a question mark that are shown, however far they are
CLEAR_OF = 20  # a hit stands out from the one at this place, where most are alike,
CLEARANCE = 0.25  # if it is so much nearer, as a share of what is left up to 1
FOLLOW_TOKENS = 12  # of a text that may follow up another one
LOOKED_THROUGH = 20  # messages, at least, for the number of a question
_SAME = 0.995  # similarity of a text and its copy; float16 rounds it


def search_messages(state: MemoryState, query: Query) -> Plan[RecallResult]:
    """Find candidates and fetch the best with their windows; callers trace it.

    Two round trips, or more as `search` says; one more to find the owner of a thread, one for media.
    """
    if not query.text.strip():
        return RecallResult()
    if query.user_id is None and query.scope == "user":
        thread = yield from get_existing_thread(state, query.thread_id or "", None)
        query = replace(query, user_id=thread.user_id)
    if (zone := state.zone(query.thread_id, query.user_id, query.timezone)) is not None:
        query = replace(query, now=in_zone(query.now, zone))
    checks: list[Command] = []
    if query.thread_id is not None and query.user_id is not None:
        checks = [("HGET", state.keys.of(query.thread_id).thread, "user")]
    ranking, replies = yield from search(state, query, checks)
    if checks:
        check_owner(replies[0], query.thread_id or "", query.user_id)
    (hits,), windows = yield from read_hits(state, query, ranking)
    result = yield from result_of(state.recalling, query, hits, windows)
    shown_ids = {*map(id, result.rows)}  # not the copies with excerpts
    yield from with_media(state, [row for row in windows.rows.values() if id(row) in shown_ids])
    return result


def search(
    state: MemoryState, query: Query, others: Sequence[Command] = (), *, extra: int = 0
) -> Plan[tuple[Ranking, list[Any]]]:
    """Embed the question, search and rank; return the replies of `others`, too. `extra`: messages that callers drop.

    One round trip, one more for a filter of threads. One more where it shows an author whom the question names and who
    was unknown, and where chunks of a few messages, copies, or what a filter leaves out take all places.
    """
    if query.threads is not None:
        if query.scope == "user":
            ids = yield from find_threads(state, query.user_id or "", query.threads)
        else:
            thread = yield from get_thread(state, query.thread_id or "", query.user_id)
            ids = [thread.id] if thread and query.threads.matches(thread.metadata) else []
        query = replace(query, where={**query.where, "thread_ids": ids})
    options, owner = state.recalling, query.user_id or f"\0{query.thread_id}"  # no id holds a NUL
    known_authors, is_hybrid = state.authors.get(owner) or frozenset(), options.search == "hybrid"
    least = CHECKED if query.unsure else CANDIDATES if is_hybrid else NEAREST
    # of what is asked for, half may be copies or further chunks of a message
    depth = min(max(least, query.sought * 2 + extra + len(query.exclude) + 8), DEEPEST)
    terms = Terms.of(options, query, known_authors)
    vector = yield from state.embedder.embed([terms.text], query=True)
    candidates, replies = yield from _candidates(state, query, terms, vector, depth, others)
    seen_authors = frozenset("" if author in USERS else author.decode() for author in {*candidates.authors})
    if seen_authors - known_authors:  # authors whom this process did not know
        known_authors = state.authors.change(owner, lambda before: seen_authors.union(before or ())) or known_authors
        before, terms = terms, Terms.of(options, query, known_authors)
        if (terms.text, terms.words) != (before.text, before.words):
            vector = yield from state.embedder.embed([terms.text], query=True)
            candidates, _ = yield from _candidates(state, query, terms, vector, depth)
    names_authors = 0 < len(terms.authors) < len(known_authors)  # all of them tell nothing; "" (no name) is one
    make_ranking = partial(
        rank,
        weights=options.weights,
        hybrid=is_hybrid,
        numbered=any(map(str.isdigit, terms.text)),
        authors={author.encode() for author in terms.authors} if names_authors else USERS,
        bonus=options.weights.author if names_authors else BY_USER,
        times=terms.times,
        now=to_micros(query.now) if terms.times else inf,
        threshold=query.threshold or 0.0,
    )
    ranking = make_ranking(candidates)
    distinct = min(len(ranking.order), len({*ranking.similarities.tolist()}))  # copies of a text have the same
    finds_too_few = len(ranking.order) < query.sought + extra or distinct < max(LEAST_RANKED, query.sought)
    if candidates.has_more and finds_too_few and depth < DEEPEST:
        depth = DEEPEST if query.unsure else min(depth * DEEPER, DEEPEST)
        candidates, _ = yield from _candidates(state, query, terms, vector, depth)
        ranking = make_ranking(candidates)
    return ranking, replies


def _candidates(
    state: MemoryState,
    query: Query,
    terms: Terms,
    vector: np.ndarray[Any, Any],
    depth: int,
    others: Sequence[Command] = (),
) -> Plan[tuple[Candidates, list[Any]]]:
    """Search, beside `others`; repair an index that was dropped or rebuilt. One round trip."""
    import numpy as np

    indexes, index_name, dims = state.indexes, state.keys.vectors_index, vector.shape[1]
    distance = state.recalling.index.distance
    if not indexes.threads_ready:
        yield from indexes.ready()
    if indexes.dims != dims:
        yield from indexes.vectors_ready(dims)
    where = query.filter()
    conditions = [where, query.filter(terms.times)] if terms.times else [where]
    needed = {"message": query.exclude, "created_at": terms.times, "metadata": query.unsure is not None}
    fields = [field for field, is_needed in needed.items() if is_needed]

    def commands() -> Plan[list[Any]]:
        # anew after a repair, which may find an index of another number type
        packed = queries.pack(vector, indexes.dtype, distance)[0]
        searches = [queries.vector_search(index_name, packed, condition, depth, fields) for condition in conditions]
        if terms.words:
            searches.append(queries.word_search(index_name, terms.words, where, depth, fields))
        return send(*searches, *others)

    replies = yield from search_with_repair(commands, partial(indexes.refresh, dims), create=indexes.create)
    keys, values, rows, near_count = list[bytes](), list[Any](), list[Any](), 0
    search_count = len(conditions) + bool(terms.words)
    for index, reply in enumerate(replies[:search_count]):
        metric = distance if index < len(conditions) else None
        new_keys, new_values, new_rows = queries.columns(reply, metric, content=bool(fields))
        keys, rows, near_count = keys + new_keys, rows + new_rows, near_count + len(new_keys) * bool(metric)
        values.append(new_values)
    has_more = bool(len(values[0]) >= depth and values[0][-1] >= (query.threshold or 0))
    scores, times = np.concatenate(values), list[int]()
    if fields:
        work = (query.unsure.work + 1_000) * len(keys) if query.unsure else len(keys)  # what a metadata is, about
        kept, details = yield from compute(partial(_passing, query, keys, rows), work)
        times = [int(row.get(b"created_at", 0)) for row in compress(details, kept)]
        keys, scores, near_count = [*compress(keys, kept)], scores[kept], sum(kept[:near_count])
    return Candidates.read(keys, scores, near_count, times, has_more=has_more), replies[search_count:]


def _passing(query: Query, keys: Sequence[bytes], rows: Sequence[Any]) -> tuple[list[bool], list[dict[bytes, Any]]]:
    """Tell which candidates are not excluded and have the `unsure` metadata; return the fields of all, too."""
    excluded = {id.encode() for id in query.exclude}
    thread_part = b":{%s}:" % encode(query.exclude_thread).encode() if query.exclude_thread else b""
    details = [as_dict(row or {}) for row in rows]  # nothing of a document that was deleted during the search
    return [
        not (row.get(b"message") in excluded and thread_part in key)
        and (query.unsure is None or query.unsure.matches(json.loads(row.get(b"metadata") or b"{}")))
        for key, row in zip(keys, details, strict=True)
    ], details


def recall_for_turn(
    core: Core, query: Query, ranking: Ranking, hidden: Hidden, said: Iterable[str], extra: int
) -> Plan[RecallResult]:
    """Choose the hits of a turn, but for what is `hidden`, and fetch their windows. One round trip, two for a
    follow-up: a short text with no near hit may follow up what the user `said` before (the newest first); both are
    searched, too. A question that was asked twice follows up what stood before it.
    """
    state, floor = core.state, None
    if query.threshold is None and state.recalling.index.distance != "l2":  # l2 has another scale, so no floor
        learned = state.indexes.learned_floor
        floor = floor_of(state.indexes.model) or (learned and Floor(learned, ALONE * learned)) or None
        if floor is None and len(ranking.order) >= FEWEST and state.claim("floor"):
            yield Spawn(learn_floor(state, anew=False), slow=True, task="floor")  # nobody waits for a paid model
    ranking.hide(hidden)
    is_short = (tokens := count_tokens(query.text)) <= FOLLOW_TOKENS
    nearest = [*islice(ranking, query.sought)] if is_short else []
    gates = [Gate(query, ranking, floor)]
    if floor and is_short:
        bar = max(floor.alone, ALONE * gates[0].bar)
        near = [hit for hit in nearest if hit.similarity >= bar]
        has_near = any(hit.similarity <= _SAME or hit.tokens != tokens for hit in near)  # not only a copy of the text
        if not has_near and (before := next((text for text in said if text.strip() and text != query.text), "")):
            try:
                joint, _ = yield from search(state, replace(query, before=before), extra=extra)
                joint.hide(hidden)
                gates.append(Gate(query, joint, floor))
            except EMBEDDING_ERRORS as error:
                if core.on_error == "raise":
                    raise
                _log.warning("%s; this turn goes without what its question follows up", error)
    least, rankings = LOOKED_THROUGH if gates[0].numbers else 0, [gate.ranking for gate in gates]
    picks, windows = yield from read_hits(state, query, *rankings, at_least=least)
    direct, *followed = (gate.passing(pick, windows) for gate, pick in zip(gates, picks, strict=True))
    # half of the direct hits, then those of the follow-up, then the rest of the direct ones
    half = (query.sought + 1) // 2 if followed else query.sought
    passed = {hit.position: hit for hit in chain(direct[:half], *followed, direct[half:])}
    hits = hits_of([*passed.values()], windows)[: query.sought] if followed else direct[: query.sought]
    return (yield from result_of(state.recalling, query, hits, windows, forgives=core.on_error == "log"))


class Gate:
    """Which hits of a search a turn shows; the ranking keeps those that may pass.

    Those above the bar, of a time that the question names, or with a number of it, such as that of an order. And of
    what has a question mark the best two outside of each other's windows. Without a floor everything passes.
    """

    def __init__(self, query: Query, ranking: Ranking, floor: Floor | None) -> None:
        self.ranking, self.guaranteed = ranking, GUARANTEED if query.asks else 0
        self.bar = 0.0 if floor is None else floor.shown if self.guaranteed else _bar(ranking, floor.shown)
        words = queries.distinct_words(query.text, whole=True) if any(map(str.isdigit, query.text)) else ()
        self.numbers = frozenset(word for word in words if any(map(str.isdigit, word)))
        lowest = 0.0 if self.guaranteed else self.bar
        may_pass = (ranking.similarities >= lowest) | (ranking.timely == 1) | ((ranking.words > 0) & bool(self.numbers))
        ranking.order = ranking.order[may_pass[ranking.order]]

    def passing(self, hits: Sequence[Ranked], windows: Windows) -> list[Ranked]:
        """Return the hits that pass, those with a number of the question first."""
        exact, passed = list["Ranked"](), list["Ranked"]()
        guarantees, shown, beside = self.guaranteed, set[Position](), set[Position]()
        for hit in hits:
            window, row = {*chain(*windows.around[hit.position])}, windows.rows[hit.position]
            is_apart = hit.position not in beside and shown.isdisjoint(window)
            has_words = self.numbers and hit.words
            words = WORD.findall(as_searched(row_text(row, searched=True)).lower()) if has_words else ()
            if not self.numbers.isdisjoint(words):
                exact.append(hit)
            elif hit.similarity >= self.bar or hit.timely or (guarantees > 0 and is_apart):
                passed.append(hit)
            else:
                continue
            guarantees -= is_apart  # also by hits that need no guarantee
            shown.add(hit.position)
            beside |= window
        return exact + passed


def _bar(ranking: Ranking, floor: float) -> float:
    """Return how similar a hit has to be: the floor of the model, or more where most messages are as near."""
    # in a language that the model hardly knows, all messages are alike: where an ordinary one reaches half of the
    # floor, a hit stands out that is a quarter of the way from the 20th to 1
    nearest: list[float] = sorted(ranking.similarities[ranking.similarities > 0].tolist(), reverse=True)
    if len(nearest) < CLEAR_OF or nearest[min(ORDINARY, len(nearest) // 2)] < floor / 2:
        return floor
    return max(floor, nearest[CLEAR_OF - 1] + CLEARANCE * (1 - nearest[CLEAR_OF - 1]))


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
FEWEST = 20  # messages of a memory in which a floor is worth its learning


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
        asked, told = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-9) for vectors in (asked, told))
    by_accident = (asked @ told.T)[~np.eye(len(asked), dtype=bool)]
    return float(by_accident.mean() + 3.6 * by_accident.std())


def learn_floor(state: MemoryState, *, anew: bool = True) -> Plan[None]:
    """Learn the floor of a model that nobody has measured, and keep it beside the index; or take what is there."""
    if floor_of(state.indexes.model) is not None:
        return
    try:
        (stored,) = yield from send(("GET", state.keys.vectors_floor))
        learned = json.loads(stored or "{}")
        if anew or learned.get("model") != state.indexes.model:
            asked, told = zip(*ASKED_AND_TOLD, strict=True)
            questions = yield from state.embedder.embed(asked, query=True)
            answers = yield from state.embedder.embed(told)
            if not questions.shape[1] == answers.shape[1] == state.indexes.dims:  # a model in trouble
                return
            floor = floor_between(questions, answers, state.recalling.index.distance)
            learned = {"model": state.indexes.model, "floor": floor}
            yield from send(("SET", state.keys.vectors_floor, json.dumps(learned)))
        state.indexes.learned_floor = learned["floor"]
    finally:
        if state.indexes.learned_floor is None:
            state.release("floor")
