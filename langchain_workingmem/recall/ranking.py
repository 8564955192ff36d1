"""Rank the candidates of a search: pure functions over columns, as an object for each of 400 took a third of a turn.

A hybrid search takes vectors and words, `neighbours`, author, length and `nearness`; a semantic one the last three.
docs/recall-measured.md has what each brings on public conversations, and what was left out because it brought less.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import orjson

from langchain_workingmem._redis.keys import THE_USER
from langchain_workingmem._text.messages import STRIDE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import numpy as np

    from langchain_workingmem.options import HybridWeights

    Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
    Places: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

Position: TypeAlias = tuple[bytes, int]  # of a message: thread (encoded as in keys), seq

CANDIDATES = 200  # of each search; 100 cost .014 of the evidence on BEAM
SHORT = 64  # tokens up to which length costs nothing
ORDINARY = 100  # the place in the list whose similarity says nothing about a message
USERS = frozenset({THE_USER.encode()})
BY_USER = 0.05  # for what a user without a name said: questions are about him more often than about the answers
_FADE = 10 * 86_400_000_000  # microseconds
_BITS, _SEQS = 40, (1 << 40) - 1  # of a seq in the place of a message in an array; see START in changing.lua


class Span(NamedTuple):
    """A time in microseconds, from `since` until just before `until`."""

    since: int
    until: int


@dataclass(frozen=True, slots=True)
class Candidates:
    """The chunks of messages that a search returned, the best first; a column for each value, in bytes as in keys."""

    near_count: int  # so many were found by vectors; those behind them by words
    threads: Sequence[bytes]  # encoded, in braces
    seqs: Places  # of the messages
    chunks: Sequence[bytes]  # their numbers in the messages
    lengths: Places  # tokens of the whole messages
    authors: Sequence[bytes]  # who said it, as in `author_tag`
    values: Numbers  # similarities, then BM25 scores
    times: Sequence[int] = ()  # when the messages were stored (microseconds), where the question names a time
    has_more: bool = False  # a deeper search by vectors may find others

    @classmethod
    def read(
        cls, keys: Sequence[bytes], values: Numbers, near: int, times: Sequence[int] = (), *, has_more: bool = False
    ) -> Self:
        """Read the keys of vectors, <prefix>:{thread}:seq:chunk:length:author; behind the prefix is no other colon."""
        import numpy as np

        parts = b":".join(keys).split(b":") if keys else []  # all at once: in a third of the time of one by one
        step = len(parts) // len(keys) if keys else 5
        threads, seqs, chunks, lengths, authors = (parts[index::step] for index in range(step - 5, step))
        integers = np.array(orjson.loads(b"[%b]" % b",".join(seqs + lengths)), np.int64).reshape(2, len(keys))
        return cls(near, threads, integers[0], chunks, integers[1], authors, values, times, has_more)


class Ranked(NamedTuple):
    """A message that was found."""

    position: Position
    tokens: int
    score: float  # a fraction of the best possible one; of a search by vectors alone on the scale of similarities
    similarity: float  # 0 where only words were found
    words: float = 0.0  # its BM25 score as a share of the best one; 0 without a word of the question
    timely: bool = False  # it was stored at a time that the question names
    chunk: int = 0  # number of the chunk that matched best


class Hidden(NamedTuple):
    """What a turn shows anyway, or must not show."""

    thread: bytes  # encoded
    seqs: Collection[int]  # of its messages
    end: float  # and all from this seq on


@dataclass(slots=True)
class Ranking:
    """The messages of a search; iterating makes them, the best first."""

    candidates: Candidates
    names: Sequence[bytes]  # of the threads, in braces
    places: Places  # of the messages, rising: the number of the thread's name, then the seq
    best: Places  # of each message, its best chunk
    scores: Numbers
    similarities: Numbers
    words: Numbers  # BM25 scores as shares of the best one
    timely: Numbers  # 1 at a time that the question names
    order: Places  # indexes of the messages, the best first

    def __iter__(self) -> Iterator[Ranked]:
        for index in self.order.tolist():
            place, chunk = self.places[index].item(), self.best[index].item()
            yield Ranked(
                (self.names[place >> _BITS][1:-1], place & _SEQS),
                self.candidates.lengths[chunk].item(),
                self.scores[index].item(),
                self.similarities[index].item(),
                self.words[index].item(),
                bool(self.timely[index] == 1),
                int(self.candidates.chunks[chunk]),
            )

    def hide(self, hidden: Hidden) -> None:
        """Leave out messages of a thread."""
        if (name := b"{%b}" % hidden.thread) in self.names:
            number = self.names.index(name)
            first, last = self.places.searchsorted((number << _BITS, (number + 1) << _BITS)).tolist()
            thread_seqs = enumerate((self.places[first:last] & _SEQS).tolist(), first)
            if indexes := [index for index, seq in thread_seqs if seq >= hidden.end or seq in hidden.seqs]:
                kept = self.places >= 0  # every one
                kept[indexes] = False
                self.order = self.order[kept[self.order]]


def rank(
    candidates: Candidates,
    weights: HybridWeights,
    *,
    hybrid: bool,
    numbered: bool = False,
    authors: Collection[bytes] = USERS,
    bonus: float = BY_USER,
    times: Collection[Span] = (),
    now: float = inf,
    threshold: float = 0.0,
) -> Ranking:
    """Rank the messages of a search: of several chunks the best counts. What these authors said gets the bonus."""
    import numpy as np

    names = sorted({*candidates.threads})
    numbers, count = {name: number for number, name in enumerate(names)}, len(candidates.threads)
    threads = np.fromiter(map(numbers.__getitem__, candidates.threads), np.int64, count)
    chunk_places = (threads << _BITS) + candidates.seqs
    # the chunks of a message stand together then, in the order of the search; `first` is the first one of each message
    by_place = chunk_places.argsort(kind="stable")
    places, values, is_near = chunk_places[by_place], candidates.values[by_place], by_place < candidates.near_count
    is_first = np.ones(count, bool)
    is_first[1:] = places[1:] != places[:-1]
    places, first, (starts,) = places[is_first], by_place[is_first], is_first.nonzero()
    similarity = np.maximum.reduceat(np.where(is_near, values, 0), starts)
    words = np.maximum.reduceat(np.where(is_near, 0, values), starts)
    score, best_score = similarity, 1.0
    wording = words / (words.max(initial=0) or 1)
    if hybrid and len(places):
        meaning = similarity / (similarity.max() or 1)
        # where the question has a number, the share of words doubles: to an embedding, numbers are alike
        dense = max(0, 2 * weights.dense - 1) if numbered else weights.dense
        score = dense * meaning + (1 - dense) * wording
        score += weights.neighbours * neighbours(places, meaning, wording, dense)
        best_score += 2 * weights.neighbours
    scale = 1.0 if hybrid else similarity.max(initial=0)  # else the score stays on the scale of similarities
    is_theirs = np.fromiter(map(authors.__contains__, candidates.authors), bool, count)[first]
    # long answers match everything a little
    lift = bonus * is_theirs - weights.length * np.log(np.maximum(candidates.lengths[first] / SHORT, 1))
    score = score + scale * lift  # not in place: it may be `similarity`
    timely = np.zeros(len(places))
    if times:
        timely = nearness(np.array(candidates.times, np.int64)[first], times, now)
        score, best_score = score + scale * weights.time * timely, best_score + weights.time
    order = np.lexsort((places & _SEQS, score))[::-1]  # of equals the newer first
    if threshold > 0:
        order = order[similarity[order] >= threshold]
    scores = (score / (best_score + bonus)).clip(0, 1) if hybrid else score.clip(0, 1)

    if numbered:  # an excerpt shows the chunk with the number of the question
        first_by_words = np.minimum.reduceat(np.where(is_near, count, by_place), starts)
        first = np.where(words > 0, first_by_words, first)
    return Ranking(candidates, names, places, first, scores, similarity, wording, timely, order)


def neighbours(places: Places, meaning: Numbers, wording: Numbers, dense: float) -> Numbers:
    """Return the evidence of what was said before and after each message, as questions lead to answers; places rise."""
    import numpy as np

    nearest = np.sort(meaning)[::-1]  # what is no nearer than an ordinary candidate is no evidence
    ordinary = nearest[min(ORDINARY, len(nearest)) - 1]
    excess = np.maximum(0, meaning - ordinary) / (1 - ordinary) if ordinary < 1 else np.zeros(len(places))
    evidence = dense * excess + (1 - dense) * wording
    following = np.minimum(places.searchsorted(places + STRIDE), len(places) - 1)  # between them tool traffic may lie
    is_next = places[following] == places + STRIDE
    sums = np.zeros(len(places))
    sums[is_next] += evidence[following[is_next]]
    sums[following[is_next]] += evidence[is_next]
    return sums


def nearness(created_at: Places, spans: Collection[Span], now: float = inf) -> Numbers:
    """Return for each time (microseconds) 1 in a span, less around it, and 0 far from all."""
    import numpy as np

    # People tell of a time more often after it than before, and longer of a long one. So it falls to 0 over ten days
    # and half the length of the span after it, at the latest until now, and twice as fast before it.
    nearest = np.zeros(len(created_at))
    for since, until in spans:
        fade = _FADE + (until - since) / 2
        after = np.maximum(0, created_at - until + 1) / min(fade, max(1, now - until))
        nearest = np.maximum(nearest, 1 - np.maximum(after, np.maximum(0, since - created_at) / (fade / 2)))
    return nearest
