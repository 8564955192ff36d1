"""Rank the candidates of a search: pure functions, one per step of the recipe.

The recipe was tuned on the development halves of public conversations with gold evidence; docs/recall.md shows its
effect and how to measure it. The three figures of a step below are the share of the evidence that is lost without it:
on LoCoMo at 500 tokens, RealMem at 1,000 and BEAM-100K at 2,000 (LocalEmbeddings; the recipe finds .664, .254, .569,
similarity alone .443, .147, .375).
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from langchain_workingmem.options import HybridWeights

CANDIDATES = 200  # of each search; 100 cost 2 to 3 points of the evidence on LoCoMo
SHORT = 64  # tokens up to which length costs nothing
Scores: TypeAlias = dict[bytes, dict[int, float]]  # thread (encoded as in keys) -> sequence number -> value
# One chunk of a message that a search returned: thread, sequence number, tokens of the whole message, author ("" when
# unnamed), similarity or BM25 score, number of the chunk; bytes as in keys. A tuple, because a turn ranks hundreds.
Candidate: TypeAlias = tuple[bytes, int, int, bytes, float, bytes]


class Ranked(NamedTuple):
    """A message to recall."""

    thread: bytes
    seq: int
    tokens: int
    score: float
    similarity: float
    worded: bool = False  # it has words of the question
    chunk: int = 0  # number of the chunk that matched best


class Floor(NamedTuple):
    """The similarity below which a turn recalls nothing."""

    worded: float  # when a message has a word of the question, or words are not searched
    alone: float  # when none has


# By the model's name in LangChain integrations. Similarities of different models cannot be compared, so only measured
# models have a floor: docs/recall.md shows the cost of floors, and how to measure another model.
_FLOORS = (
    (re.compile(r"wordllama-l2-supercat-256"), Floor(0.22, 0.3)),
    (re.compile(r"(.*[/\\])?all-minilm(-l6-v2.*|:(latest|22m|l6-v2).*)?"), Floor(0.25, 0.32)),
)


def floor_of(model: str) -> Floor | None:
    """Return the floor of an embedding model, None when it was never measured."""
    return next((floor for pattern, floor in _FLOORS if pattern.fullmatch(model.lower())), None)


def reaches(ranked: Collection[Ranked], floor: Floor | None, *, hybrid: bool) -> bool:
    """Tell whether any message reaches the floor; then all count, since neighbours of an answer may be nearer."""
    if floor is None:
        return True
    least = floor.worded if not hybrid or any(one.worded for one in ranked) else floor.alone
    return any(one.similarity >= least for one in ranked)


def best(candidates: Iterable[Candidate]) -> Scores:
    """Keep the value of each message's best chunk."""
    found: Scores = defaultdict(dict)
    for thread, seq, _, _, value, _ in candidates:
        seqs = found[thread]
        if value > seqs.get(seq, -math.inf):
            seqs[seq] = value
    return found


def fuse(dense: Scores, words: Scores, weight: float) -> Scores:
    """Add the values of both searches, each divided by its best; a message that one lacks has 0 there.

    Words: +.022, +.019, -.002. This sum is .01 to .05 better than reciprocal ranks.
    """
    fused: Scores = {}
    for scores, share in ((dense, weight), (words, 1 - weight)):
        top = max((max(seqs.values()) for seqs in scores.values()), default=0.0)
        for thread, seqs in scores.items():
            sums = fused.setdefault(thread, {})
            for seq, value in seqs.items():
                sums[seq] = sums.get(seq, 0.0) + (share * (value / top) if top else 0.0)
    return fused


def lift_by_neighbours(scores: Scores, weight: float) -> Scores:
    """Raise a message by its neighbours in the thread, such as an answer by its question: +.043, +.038, +.004."""
    return {
        thread: {seq: score + weight * (seqs.get(seq - 1, 0.0) + seqs.get(seq + 1, 0.0)) for seq, score in seqs.items()}
        for thread, seqs in scores.items()
    }


def length_cost(tokens: int, weight: float) -> float:
    """Return what length takes off a score, as long answers match everything a little: +.002, +.064, +.246."""
    return weight * math.log(tokens / SHORT) if tokens > SHORT else 0.0


def rank_semantic(dense: Iterable[Candidate], limit: int | None, threshold: float = 0.0) -> list[Ranked]:
    """Rank by similarity alone. The candidates are sorted, so those after the last needed one are skipped."""
    found: dict[tuple[bytes, int], tuple[float, int, bytes, int]] = {}
    lowest = 0.0
    for thread, seq, tokens, _, value, _ in dense:
        if value < threshold or (limit is not None and len(found) >= limit and value < lowest):
            break
        if (thread, seq) not in found:  # else a worse chunk of the same message
            found[thread, seq] = value, seq, thread, tokens
            lowest = value
    return [
        Ranked(thread, seq, tokens, min(1.0, value), min(1.0, value))
        for value, seq, thread, tokens in sorted(found.values(), reverse=True)[:limit]  # of equals the newer first
    ]


def rank_hybrid(
    dense: list[Candidate],
    words: list[Candidate],
    limit: int | None,
    threshold: float,
    weights: HybridWeights,
    authors: Collection[bytes] = (),
) -> list[Ranked]:
    """Rank by the recipe: fuse, raise by neighbours and by a named author (+.016, 0, 0), subtract for length.

    Scores are fractions of the best possible one; the similarity is 0 where only words were found.
    """
    similarities, worded = best(dense), best(words)
    scores = lift_by_neighbours(fuse(similarities, worded, weights.dense), weights.neighbours)
    messages = {one[:2]: one for one in (*dense, *words)}
    ranked = []
    for thread, seq, tokens, author, _, _ in messages.values():
        if threshold and similarities.get(thread, {}).get(seq, 0.0) < threshold:
            continue
        score = scores[thread][seq] - length_cost(tokens, weights.length)
        ranked.append((score + weights.author if author in authors else score, seq, thread, tokens))
    ranked.sort(reverse=True)  # of equals the newer first
    top = 1 + 2 * weights.neighbours + (weights.author if authors else 0)
    found = []
    for score, seq, thread, tokens in ranked[:limit]:
        similarity = min(1.0, similarities.get(thread, {}).get(seq, 0.0))
        found.append(Ranked(thread, seq, tokens, max(0.0, score / top), similarity, seq in worded.get(thread, ())))
    return found


def with_best_chunks(
    ranked: list[Ranked], chunk_tokens: int, dense: Iterable[Candidate], words: Iterable[Candidate], weight: float
) -> list[Ranked]:
    """Set the chunk of each long message that matches best in both searches together."""
    found: dict[tuple[bytes, int], dict[bytes, float]] = {
        (one.thread, one.seq): {} for one in ranked if one.tokens > chunk_tokens
    }
    if not found:
        return ranked
    for candidates, share in ((dense, weight), (words, 1 - weight)):
        own = [one for one in candidates if one[:2] in found]
        top = max((one[4] for one in own), default=0.0)
        for one in own:
            chunks = found[one[:2]]
            chunks[one[5]] = chunks.get(one[5], 0.0) + (share * one[4] / top if top else 0.0)

    def best_of(chunks: dict[bytes, float]) -> int:
        return int(max(chunks, key=lambda chunk: (chunks[chunk], -int(chunk)), default=b"0"))

    return [one._replace(chunk=best_of(found.get(one[:2], {}))) for one in ranked]
