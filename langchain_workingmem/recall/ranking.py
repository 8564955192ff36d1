"""Read and rank the candidates of a search: pure functions.

A turn ranks hundreds of candidates and shows a few of them; an object for each took a third of the client's time, so they come in
columns. What is odd in `Candidates.read` was measured with 200 of them: to join all keys and split them at once takes 40 us, one
expression for each key 115.

The steps and their weights were tuned on the development halves of public conversations with gold evidence;
docs/recall.md shows what each step brings, and how to measure it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, cast

from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.facts import STRIDE
from langchain_workingmem._redis.keys import THE_USER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import numpy as np

    from langchain_workingmem.options import HybridWeights
    from langchain_workingmem.recall.times import Span

    Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
    Positions: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

CANDIDATES = 200  # of each search; 100 cost 2 to 3 points of the evidence on LoCoMo
NEAREST = 100  # of a search by vectors alone; 200 cost it another fifth of its time
SHORT = 64  # tokens up to which length costs nothing
ORDINARY = CANDIDATES // 2  # the place in the list whose similarity says nothing about a message
STANDING_OUT = 5  # see `trust_in_words`
SOLE = 20  # see `lead_of_words`
NEAR_ENOUGH = 0.5  # similarity of the best three matches of words, as a share of the best of all, for full trust
USERS = frozenset({THE_USER.encode()})
BY_USER = 0.05  # added to what a user without a name said: questions are about him more often than about the answers
_FADE = 10 * 86_400_000_000  # microseconds
_BITS, _SEQS = 40, (1 << 40) - 1  # of a sequence number in a position of an array
_STRANGE, _KNOWN, _FEW, _MANY = 0.16, 0.2, 0.3, 0.4

# wm:vector:{thread}:seq:chunk:tokens~author; ids and names are encoded, so no other colon stands behind the prefix
_KEY = re.compile(rb"\{[^:}]*\}:\d{1,18}:\d+:\d+(?:~[^:]*)?")
_PARTS, _BEYOND, _MOST_SIZES = 4, 10**18, 4096
_PAIR = 2  # of a name and a value, where one field is asked for


@dataclass(frozen=True, slots=True)
class Candidates:
    """The chunks of messages that a search returned, the best first; each column holds a value of each, in bytes as in keys."""

    near: int  # so many were found by vectors; those behind them by words
    threads: list[bytes]  # encoded, in braces
    seqs: Positions  # sequence numbers of the messages
    tokens: Sequence[int]  # of the whole messages
    authors: Sequence[bytes]  # "" without a name
    values: Numbers  # similarities, then BM25 scores
    chunks: list[bytes]  # their numbers in the messages
    times: Sequence[int] = ()  # when the messages were stored (microseconds), where the question names a time

    @classmethod
    def read(
        cls, keys: Sequence[bytes], values: Numbers, near: int, rows: Sequence[Any] = (), *, timed: bool = False
    ) -> tuple[Self, Sequence[Any]]:
        """Read the keys of vectors, and return their rows too; those of another application under the prefix are left out."""
        import numpy as np

        if not keys:
            return cls(0, [], np.zeros(0, np.int64), (), (), np.zeros(0), []), ()
        parts = b":".join(keys).split(b":")
        step = keys[0].count(b":") + 1
        threads, seqs, chunks, sizes = (parts[at::step] for at in range(step - _PARTS, step))
        try:
            numbers = _integers(seqs)
            tokens, authors = zip(*map(_SIZES.__getitem__, sizes), strict=True)
            are_ours = (
                b"".join(chunks).isdigit()
                and len(parts) == step * len(keys)
                and all(one[:1] + one[-1:] == b"{}" for one in {*threads})
            )
        except ValueError:
            are_ours = False
        if not are_ours:
            ours = [bool(_KEY.fullmatch(key, key.find(b"{"))) for key in keys]
            rows = [*compress(rows, ours)]
            return cls.read([*compress(keys, ours)], values[ours], sum(ours[:near]), rows, timed=timed)
        times = [*map(_created_at, rows)] if timed else ()
        return cls(near, threads, numbers, tokens, authors, values, chunks, times), rows

    def messages(self) -> Iterable[tuple[bytes, int, int]]:
        """Return the message of each: thread, sequence number and tokens."""
        return zip((one[1:-1] for one in self.threads), self.seqs.tolist(), self.tokens, strict=True)

    def where(self, kept: Iterable[bool]) -> Candidates:
        """Return those that are kept."""
        kept = [*kept]
        names = ("threads", "tokens", "authors", "chunks", "times")
        columns: dict[str, Any] = {name: [*compress(getattr(self, name), kept)] for name in names}
        return replace(self, near=sum(kept[: self.near]), seqs=self.seqs[kept], values=self.values[kept], **columns)


def _created_at(row: Any) -> int:
    return int(row[1]) if isinstance(row, list) and len(row) == _PAIR else int(as_dict(row or {}).get(b"created_at", 0))


def _integers(texts: Sequence[bytes]) -> Positions:
    """Read numbers of at most 18 digits: for 400 of them in 11 us, and `int` takes 29. `ValueError` for anything else."""
    import numpy as np

    if b"".join(texts).isdigit():
        found: Positions = np.fromstring(b" ".join(texts), np.int64, sep=" ")  # what is larger becomes the largest one
        if len(found) == len(texts) and np.maximum.reduce(found) < _BEYOND:
            return found
    raise ValueError


class _Sizes(dict[bytes, tuple[int, bytes]]):
    """Tokens and author by the last part of a key: most messages of a memory have one of some hundred."""

    def __missing__(self, size: bytes) -> tuple[int, bytes]:
        if len(self) >= _MOST_SIZES:
            self.clear()
        tokens, _, author = size.partition(b"~")
        self[size] = found = int(tokens), author
        return found


_SIZES = _Sizes()


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


# of all fields: the constructor takes .4 us, this .15, and a turn ranks dozens
_ranked = partial(tuple.__new__, Ranked)


def trust_in_words(scores: Sequence[float], number: int, matching: int) -> float:
    """Return from 0 to 1 whether the words of a question tell where its answer stands, from BM25 scores, best first.

    A question shares words with its answer. What people say otherwise often shares none with the messages that matter
    to it, and then the best matches of its words are accidents. The two differ in the best score per word, divided by the
    logarithm of how many chunks match. Of a question, the words that tell something count, and the chunks that have one of
    them: .57 to 2.75 for eight of ten questions of LoCoMo. Of a statement, all words count, and all candidates, since no
    word tells what it is about: .07 to .17 for eight of ten statements of Locomo-Plus. And an accident is one of many: of 95
    of 100 statements, the 5th score is at least .35 of the best. A match that stands out, such as that of an order number,
    always counts.
    """
    best = scores[0] if scores else 0.0
    if not best or not number:
        return 0.0
    share = best / number / math.log(2 + matching)
    others = scores[STANDING_OUT - 1] / best if len(scores) >= STANDING_OUT else 0.0
    known = (share - _STRANGE) / (_KNOWN - _STRANGE)
    alone = (_MANY - others) / (_MANY - _FEW)
    return min(1.0, max(0.0, known, alone))


def lead_of_words(scores: Sequence[float], number: int, matching: int) -> float:
    """Return the BM25 score above which messages come first, infinite for none; the arguments are those of `trust_in_words`.

    All lead that have a question's only word, if they are few, and matches that stand out: to an embedding, numbers are alike.
    """
    if number == 1 and matching < SOLE:
        return 0.0
    others = scores[STANDING_OUT - 1] if len(scores) >= STANDING_OUT else 0.0
    return scores[0] / 2 if scores and others <= _FEW * scores[0] else math.inf


def length_cost(tokens: int, weight: float) -> float:
    """Return what its length takes off a message: long answers match everything a little."""
    return weight * math.log(tokens / SHORT) if tokens > SHORT else 0.0


def rank(
    found: Candidates,
    limit: int | None,
    *,
    threshold: float,
    weights: HybridWeights,
    trust: float | None,
    authors: Collection[bytes] = USERS,
    several: bool = False,
    times: Collection[Span] = (),
    lead: float = math.inf,
) -> list[Ranked]:
    """Rank the messages of both searches. `trust` in words is None without their search, and `lead` that of `lead_of_words`.

    The score is a fraction of the best possible one, or without a search for words on the scale of similarities. The
    similarity is 0 where only words were found. Where `several` persons talk, words tell more than the sense, and need not be near
    it.
    """
    import numpy as np

    near, values = found.near, found.values
    if not len(values):
        return []
    names, positions, first, position_of = _messages(found)
    similarity, words = np.zeros(len(positions)), np.zeros(len(positions))
    similarity[position_of[:near][::-1]] = values[:near][::-1]
    words[position_of[near:][::-1]] = values[near:][::-1]
    has_words = dict.fromkeys(position_of[near:].tolist())

    top = np.maximum.reduce(similarity) or 1.0
    unit = top if trust is None else 1.0  # without a search for words, the score stays a similarity
    score = meaning = similarity if trust is None else similarity / top
    author = BY_USER if authors is USERS else weights.author if authors else 0.0
    said = leading = around = by_name = by_time = cast("Any", 0.0)
    if trust:
        nearest = np.sort(meaning[first < near])[::-1]
        trust *= 1.0 if several or lead < math.inf else _sense_of_words(meaning[[*has_words][:3]], nearest)
        said = words / (np.maximum.reduce(words) or 1)
        score = meaning + (1 - weights.dense) * trust * (said - meaning)
        # in a list of ordinary length, what is no nearer than most is evidence of nothing
        ordinary = nearest[min(ORDINARY, len(nearest)) - 1] if len(nearest) else 0.0
        apart = np.maximum(0, meaning - ordinary) / (1 - ordinary) if ordinary < 1 else 0.0
        around = trust * _around(positions, weights.dense * apart + (1 - weights.dense) * said, weights)
        leading = (weights.dense < 1) * (1 - author) * (words > lead)
        score = score + around + leading
    tokens = np.array(found.tokens)[first]
    length = unit * weights.length * np.log(np.maximum(tokens, SHORT) / SHORT)
    score = score - length
    most = 1.0 if trust is None else 1 + 2 * weights.neighbours + weights.thread + np.max(leading)
    timely: Collection[int] = ()
    if authors:
        by_name = unit * author * np.fromiter(map(authors.__contains__, found.authors), np.float64, len(values))[first]
        score = score + by_name
        most += author
    if times:
        nearby = nearness(np.array(found.times)[first], times)
        timely = {*np.flatnonzero(nearby == 1).tolist()}
        by_time = unit * weights.time * nearby
        score = score + by_time
        most += weights.time

    order = np.lexsort((positions >> _BITS, positions & _SEQS, score))[::-1]  # of equals the newer first
    order = (order if threshold <= 0 else order[similarity[order] >= threshold])[:limit]
    scores = (score[order] / most).clip(0, 1)
    near_by = np.minimum(similarity[order], 1)
    rows = zip(*map(np.ndarray.tolist, (order, positions[order], tokens[order], scores, near_by)), strict=True)
    return [
        _ranked((names[at >> _BITS][1:-1], at & _SEQS, size, value, near, one in has_words, one in timely, 0))
        for one, at, size, value, near in rows
    ]


def _messages(found: Candidates) -> tuple[list[bytes], Positions, Positions, Positions]:
    """Return the messages of the chunks by position: thread, as its place among the names, then sequence number.

    And the first chunk of each, which is its best, and the place of each chunk's message. `np.unique` takes twice the time.
    """
    import numpy as np

    names = sorted({*found.threads})
    numbers = {name: number for number, name in enumerate(names)}
    threads = np.fromiter(map(numbers.__getitem__, found.threads), np.int64, len(found.threads))
    positions = (threads << _BITS) + found.seqs
    order = positions.argsort(kind="stable")
    ordered = positions[order]
    is_new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    message_of = np.empty_like(order)
    message_of[order] = is_new.cumsum() - 1
    return names, ordered[is_new], order[is_new], message_of


def _sense_of_words(best: Numbers, nearest: Numbers) -> float:
    """Return from 0 to 1 how near the best matches of words are: those that are far from the question's sense are accidents.

    What only words found is taken as near as the last of the `nearest` messages.
    """
    if not len(nearest) or not len(best):
        return 1.0
    sense: list[float] = [max(one, nearest[-1].item()) for one in best.tolist()]
    return min(1.0, sum(sense) / len(sense) / NEAR_ENOUGH)


def _around(positions: Positions, evidence: Numbers, weights: HybridWeights) -> Numbers:
    """Return what the evidence for other messages adds to each message: for its neighbours, and for its thread.

    So an answer is found by its question. Of a thread the best evidence counts, and the less of all candidates the
    thread holds, the more it counts: a thread that holds them all tells nothing. Messages are given in the order of positions.
    """
    import numpy as np

    beside = np.zeros(len(evidence))
    is_next = positions[1:] - positions[:-1] == STRIDE
    beside[:-1] = evidence[1:] * is_next
    beside[1:] += evidence[:-1] * is_next
    thread = positions >> _BITS
    counts = np.bincount(thread)
    best = np.maximum.reduceat(evidence, counts.cumsum() - counts)
    rarity = (1 - counts / len(thread)) ** 3
    lifted: Numbers = weights.neighbours * beside + weights.thread * (best * rarity)[thread]
    return lifted


def with_best_chunks(ranked: list[Ranked], chunk_tokens: int, found: Candidates, weight: float) -> list[Ranked]:
    """Set the chunk of each long message that matches best in both searches together."""
    matches: dict[tuple[bytes, int], dict[bytes, float]] = {one[:2]: {} for one in ranked if one.tokens > chunk_tokens}
    if not matches:
        return ranked
    rows = [*zip(found.messages(), found.chunks, found.values.tolist(), strict=True)]
    for part, share in ((rows[: found.near], weight), (rows[found.near :], 1 - weight)):
        # each once: two searches for vectors may have found the same
        own = dict.fromkeys((message[:2], chunk, value) for message, chunk, value in part if message[:2] in matches)
        top = max((value for *_, value in own), default=0.0)
        for message, chunk, value in own:
            matches[message][chunk] = matches[message].get(chunk, 0.0) + (share * value / top if top else 0.0)
    best = {at: max(own, key=lambda chunk: (own[chunk], -int(chunk))) for at, own in matches.items() if own}
    return [one._replace(chunk=int(best.get(one[:2], 0))) for one in ranked]


def nearness(created_at: Sequence[int] | np.ndarray[Any, Any], spans: Collection[Span]) -> np.ndarray[Any, Any]:
    """Return for each time 1 in a span, less around it, and 0 far from all; `created_at` in microseconds.

    People tell of a time more often after it than before, and of a long one for longer. So it falls to 0 over ten days
    and half the length of the span after it, and twice as fast before it.
    """
    import numpy as np

    created_at, nearest = np.asarray(created_at), np.zeros(len(created_at))
    for since, until in spans:
        fade = _FADE + (until - since) / 2
        away = np.maximum(np.maximum(0, created_at - until + 1), 2 * np.maximum(0, since - created_at)) / fade
        nearest = np.maximum(nearest, 1 - away)
    return nearest
