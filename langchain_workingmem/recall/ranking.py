"""Rank the candidates of a search: pure functions.

The steps and their weights were tuned on the development halves of public conversations with gold evidence;
docs/recall.md shows what each step brings, and how to measure it.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from langchain_workingmem._redis.keys import THE_USER
from langchain_workingmem.recall.times import nearness

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import numpy as np

    from langchain_workingmem.options import HybridWeights
    from langchain_workingmem.recall.times import Span

    Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
    Places: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

CANDIDATES = 200  # of each search; 100 cost 2 to 3 points of the evidence on LoCoMo
LARGE, DEEPER = 5_000, 400  # from so many vectors on, so many candidates: .021 of the evidence among 11,500 messages
NEAREST = 100  # of a search by vectors alone; 200 cost it another fifth of its time
SHORT = 64  # tokens up to which length costs nothing
ORDINARY = CANDIDATES // 2  # the place in the list whose similarity says nothing about a message
TYPICAL, FEWEST = (
    50,
    20,
)  # the place in the list whose similarity is ordinary, where the list has at least the second number
STANDING_OUT = 20  # see `trust_in_words`
NEAR_ENOUGH = 0.5  # similarity of the best three matches of words, as a share of the best of all, for full trust
USERS = frozenset({THE_USER.encode()})
BY_USER = 0.05  # added to what a user without a name said: questions are about him more often than about the answers
PARTS = ("similarity", "words", "neighbours", "length", "name", "time")  # what a score is the sum of
_STRANGE, _KNOWN, _FEW, _MANY = 0.16, 0.2, 0.3, 0.4
# One chunk of a message that a search returned: thread (encoded as in keys), sequence number, tokens of the whole
# message, author ("" when unnamed), similarity or BM25 score, number of the chunk (o and a number: an observation whose
# first source the message is), when it was stored (microseconds; 0 where the question names no time). Bytes as in keys. A tuple, because a turn ranks hundreds.
Candidate: TypeAlias = tuple[bytes, int, int, bytes, float, bytes, int]


class Ranked(NamedTuple):
    """A message to recall."""

    thread: bytes
    seq: int
    tokens: int
    score: float
    similarity: float
    worded: bool = False  # it has words of the question
    timely: bool = False  # it was stored at a time that the question names
    chunk: int = 0  # number of the chunk that matched best
    observation: bytes = b""  # name of the document of an observation that matched better than the message
    parts: tuple[float, ...] = ()  # of the score, in the order of PARTS, where it is to be explained


class Floor(NamedTuple):
    """The similarity below which a turn recalls nothing."""

    worded: float  # when a message has a word of the question, or words are not searched
    alone: float  # when none has


# By the model's name in LangChain integrations. Similarities of different models cannot be compared, so only measured
# models have a floor: docs/recall.md shows the cost of floors, and how to measure another model.
_FLOORS = (
    (re.compile(r"wordllama-l2-supercat-256"), Floor(0.2, 0.3)),
    (re.compile(r"(.*[/\\])?all-minilm(-l6-v2.*|:(latest|22m|l6-v2).*)?"), Floor(0.25, 0.32)),
)


def floor_of(model: str) -> Floor | None:
    """Return the floor of an embedding model, None when it was never measured."""
    return next((floor for pattern, floor in _FLOORS if pattern.fullmatch(model.lower())), None)


def floor_between(asked: Numbers, told: Numbers, distance: str) -> Floor:
    """Return the floor of a model by its vectors of questions and of their answers, in the same order.

    A question and the answer to another are similar by accident: what is to be shown stands out from that, by 2.5 and by 3.6
    standard deviations. For the two models above, this gives (.19, .27) and (.26, .34).
    """
    import numpy as np

    if distance == "cosine":
        asked, told = (one / np.linalg.norm(one, axis=1, keepdims=True).clip(1e-9) for one in (asked, told))
    by_accident = (asked @ told.T)[~np.eye(len(asked), dtype=bool)]
    mean, deviation = float(by_accident.mean()), float(by_accident.std())
    return Floor(mean + 2.5 * deviation, mean + 3.6 * deviation)


def reaches(ranked: Collection[Ranked], floor: Floor | None, *, hybrid: bool) -> bool:
    """Tell whether any message reaches the floor; then all count, since neighbours of an answer may be nearer.

    A message of a time that the question names needs no similarity: "What did I say yesterday?" resembles nothing.
    """
    if floor is None:
        return True
    least = floor.worded if not hybrid or any(one.worded for one in ranked) else floor.alone
    return any(one.timely or one.similarity >= least for one in ranked)


def trust_in_words(scores: Sequence[float], number: int, matching: int) -> float:
    """Return from 0 to 1 whether the words of a question tell where its answer stands, from BM25 scores, best first.

    A question shares words with its answer. What people say otherwise often shares none with the messages that matter
    to it, and then the best matches of its words are accidents. The two differ in the best score per word of the
    question, divided by the logarithm of how many chunks match at all: .24 to .91 for nine of ten questions of LoCoMo,
    .09 to .20 for nine of ten statements of Locomo-Plus. And an accident is one of many: of 99 of 100 statements, the
    20th score is more than .35 of the best. A match that stands out, such as that of an order number, always counts.
    """
    best = scores[0] if scores else 0.0
    if not best or not number:
        return 0.0
    share = best / number / math.log(2 + matching)
    others = scores[STANDING_OUT - 1] / best if len(scores) >= STANDING_OUT else 0.0
    known = (share - _STRANGE) / (_KNOWN - _STRANGE)
    alone = (_MANY - others) / (_MANY - _FEW)
    return min(1.0, max(0.0, known, alone))


def length_cost(tokens: int, weight: float) -> float:
    """Return what its length takes off a message: long answers match everything a little."""
    return weight * math.log(tokens / SHORT) if tokens > SHORT else 0.0


def rank(
    near: Iterable[Candidate],
    worded: Iterable[Candidate],
    limit: int | None,
    *,
    threshold: float,
    weights: HybridWeights,
    trust: float | None,
    authors: Collection[bytes] = USERS,
    several: bool = False,
    times: Collection[Span] = (),
    explained: bool = False,
) -> list[Ranked]:
    """Rank the messages of both lists, each list the best chunks first. `trust` in words is None without their search.

    The score is a fraction of the best possible one, or without a search for words on the scale of similarities. The
    similarity is 0 where only words were found. Where `several` persons talk, words tell more than the sense, and need not be near
    it. `explained` adds the parts of the score.
    """
    import numpy as np

    found: dict[tuple[bytes, int], Candidate] = {}
    for one in near:
        found.setdefault(one[:2], one)
    similarities = [one[4] for one in found.values()]
    scores: dict[tuple[bytes, int], float] = {}
    for one in worded:
        if (key := one[:2]) not in scores:
            scores[key] = one[4]
            found.setdefault(key, one)
    if not found:
        return []
    threads, seqs, tokens, written_by, _, _, stored_at = zip(*found.values(), strict=True)
    similarity = np.zeros(len(found))
    similarity[: len(similarities)] = similarities
    numbers = {thread: number for number, thread in enumerate(sorted({*threads}))}
    thread = np.array([numbers[one] for one in threads])

    top = similarity.max() or 1.0
    unit = top if trust is None else 1.0  # without a search for words, the score stays a similarity
    score = meaning = similarity if trust is None else similarity / top
    said = around = np.zeros(len(found))
    if trust:
        words = np.array([scores.get(key, 0.0) for key in found])
        trust *= 1.0 if several else _sense_of_words(words, meaning, len(similarities))
        said = words / (words.max() or 1)
        score = meaning + (1 - weights.dense) * trust * (said - meaning)
        # in a list of ordinary length, what is no nearer than most is evidence of nothing
        ordinary = meaning[min(ORDINARY, len(similarities)) - 1] if similarities else 0.0
        apart = np.maximum(0, meaning - ordinary) / (1 - ordinary) if ordinary < 1 else np.zeros(len(found))
        evidence = weights.dense * apart + (1 - weights.dense) * said
        around = trust * _around(thread, np.array(seqs), evidence, weights)
        score = score + around
    length = unit * weights.length * np.log(np.maximum(tokens, SHORT) / SHORT)
    score = score - length
    by_name = np.zeros(len(found))
    if authors:
        weight = BY_USER if authors is USERS else weights.author
        by_name = unit * weight * np.fromiter(map(authors.__contains__, written_by), np.float64, len(found))
        score = score + by_name
    near_times = np.array([nearness(at, times) for at in stored_at]) if times else np.zeros(len(found))
    score = score + unit * weights.time * near_times
    most = 1 + (weight if authors else 0) + (weights.time if times else 0)
    if trust is not None:
        most += 2 * weights.neighbours + weights.thread

    order = np.lexsort((thread, seqs, score))[::-1]  # of equals the newer first
    if threshold:
        order = order[similarity[order] >= threshold]
    keys = [*found]
    parts = None
    if explained:
        share = (1 - weights.dense) * (trust or 0.0)
        summands = (meaning * (1 - share), said * share, around, -length, by_name, unit * weights.time * near_times)
        parts = np.stack(summands, axis=1) / most
    return [
        Ranked(
            threads[at],
            seqs[at],
            tokens[at],
            min(1.0, max(0.0, float(score[at] / most))),
            min(1.0, float(similarity[at])),
            keys[at] in scores,
            bool(near_times[at] == 1),
            parts=() if parts is None else tuple(parts[at].tolist()),
        )
        for at in order[:limit].tolist()
    ]


def _sense_of_words(words: Numbers, meaning: Numbers, near: int) -> float:
    """Return from 0 to 1 how near the best three matches of words are: those that are far from the question's sense are accidents.

    What only words found is taken as near as the last of the `near` messages.
    """
    if not near:
        return 1.0
    best = (-words).argsort()[:3]
    return min(1.0, float(meaning[best].clip(meaning[near - 1]).mean()) / NEAR_ENOUGH)


def _around(thread: Places, seqs: Places, evidence: Numbers, weights: HybridWeights) -> Numbers:
    """Return what the evidence for other messages adds to each message: for its neighbours, and for its thread.

    So an answer is found by its question. Of a thread the best evidence counts, and the less of all candidates the
    thread holds, the more it counts: a thread that holds them all tells nothing.
    """
    import numpy as np

    position = (thread << 40) + seqs
    order = np.argsort(position)
    pairs = np.flatnonzero(np.diff(position[order]) == 1)
    first, second = order[pairs], order[pairs + 1]
    beside = np.zeros(len(evidence))
    beside[first] += evidence[second]
    beside[second] += evidence[first]
    best = np.zeros(thread.max() + 1)
    np.maximum.at(best, thread, evidence)
    rarity = (1 - np.bincount(thread) / len(thread)) ** 3
    lifted: Numbers = weights.neighbours * beside + weights.thread * (best * rarity)[thread]
    return lifted


def with_best_chunks(
    ranked: list[Ranked], chunk_tokens: int, dense: Iterable[Candidate], words: Iterable[Candidate], weight: float
) -> list[Ranked]:
    """Set the chunk of each long message that matches best in both searches together, and an observation that does."""
    dense, words = [*dense], [*words]
    observed = {one[:2] for one in (*dense, *words) if is_observation(one)}
    found: dict[tuple[bytes, int], dict[bytes, float]] = {
        one[:2]: {} for one in ranked if one.tokens > chunk_tokens or one[:2] in observed
    }
    if not found:
        return ranked
    for candidates, share in ((dense, weight), (words, 1 - weight)):
        own = [one for one in candidates if one[:2] in found]
        top = max((one[4] for one in own), default=0.0)
        for one in own:
            chunks = found[one[:2]]
            chunks[one[5]] = chunks.get(one[5], 0.0) + (share * one[4] / top if top else 0.0)

    def with_best(one: Ranked) -> Ranked:
        chunks = found.get(one[:2], {})
        own = {int(chunk): value for chunk, value in chunks.items() if chunk.isdigit()}
        best = max(own, key=lambda chunk: (own[chunk], -chunk), default=0)
        others = {chunk: value for chunk, value in chunks.items() if not chunk.isdigit()}
        name = max(others, key=lambda chunk: others[chunk], default=b"")
        return one._replace(chunk=best, observation=name if others and others[name] > own.get(best, 0.0) else b"")

    return [with_best(one) for one in ranked]


def is_observation(one: Candidate) -> bool:
    """Tell whether an observation matches, not the message itself."""
    return one[5].startswith(b"o")
