"""Which fetched messages are hits: repetitions are dropped, and what lies in the window of a better one. Pure functions."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem._text.chunks import CHARACTERS_PER_TOKEN, chunk_span, count_tokens
from langchain_workingmem._text.said import answer_text
from langchain_workingmem._text.telling import (
    asks_about_you,
    count_shared,
    is_order,
    is_question,
    is_thanks,
    telling_words,
    without_times,
)
from langchain_workingmem.recall.query import TIMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from langchain_workingmem.models import StoredMessage
    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Floor, Ranked

Kind: TypeAlias = Literal["question", "statement", "order"]
Position: TypeAlias = tuple[bytes, int]  # of a message: thread (encoded as in keys), sequence number

REACH = 12  # of what was said after a repeated question, where its answer is looked for: several agents may answer
MOST_WORDS = 64  # of a question that are looked for in a hit
LEAST = 100  # tokens of the shortest excerpt of a hit; half of it for another message of its window
_SHARE = 4  # a hit takes at most this fraction of a budget, another message of its window half of that
_HALF, _MOST = 0.5, 0.66  # of the words of a statement or an order, and of a question whose sense is far
_MANY = 3  # words of an order, unless it has no others
NEAR, FAR = 0.3, 0.4  # parts of the way from an ordinary similarity to 1, for questions and for statements
_SURE = 0.8  # similarity from which a message that is as long as the question may be the same question
_SAME_LENGTH = 2  # tokens by which it may be longer or shorter
_NOT_WORD = re.compile(r"\W+")


@dataclass(slots=True)
class Fetched:
    """What the server returned around candidates: hits, and what was said before and after them."""

    titles: dict[bytes, str | None] = field(default_factory=dict)
    found: set[Position] = field(default_factory=set)  # candidates that exist
    rows: dict[Position, StoredMessage] = field(default_factory=dict)
    said: dict[tuple[bytes, int], Position] = field(default_factory=dict)  # by thread and rank in what was said there
    ranks: dict[Position, int] = field(default_factory=dict)  # how many messages before it were said
    size: int = 0  # bytes of the messages
    has_media: bool = False  # some of them refer to media

    def window(self, position: Position, before: int, after: int) -> tuple[list[Position], list[Position]]:
        """Return what was said before and after a message, the nearest first."""
        thread, rank = position[0], self.ranks[position]
        following = rank + (self.said.get((thread, rank)) == position)
        front, back = range(rank - 1, rank - before - 1, -1), range(following, following + after)
        return self._said_at(thread, front), self._said_at(thread, back)

    def _said_at(self, thread: bytes, ranks: Iterable[int]) -> list[Position]:
        return [self.said[at] for at in takewhile(self.said.__contains__, ((thread, rank) for rank in ranks))]

    def content(self, position: Position) -> object:
        """Return who said a message, and what: no message beside a hit repeats another hit."""
        message = self.rows[position].message
        return (message.type, message.content) if isinstance(message.content, str) else position

    def answer_to(self, position: Position) -> Position | None:
        """Find the answer to a question: the last words of the assistant before the user's next message."""
        answer = None
        for at in self.window(position, 0, REACH)[1]:
            message = self.rows[at].message
            if isinstance(message, HumanMessage):
                break
            if isinstance(message, AIMessage) and answer_text(message).strip():
                answer = at
        return answer


class Found(NamedTuple):
    """A hit before its window and its size are known."""

    ranked: Ranked
    position: Position
    question: Position | None = None  # the repeated question that this hit answers
    relevance: float | None = None  # as a reranker has it

    def window(self, query: Query, fetched: Fetched) -> tuple[list[Position], list[Position]]:
        """Return what is shown before and after the hit, the nearest first."""
        front, back = fetched.window(self.position, *query.window)
        if self.question and self.question not in front:
            front.append(self.question)
        return front, back


# ---------------------------------------------------------------------- which messages


def repeating(ranked: Iterable[Ranked], query: Query) -> set[Position]:
    """Return the candidates that may be earlier copies of the question; their texts are not fetched yet."""
    found = [one for one in ranked if one.similarity >= _SURE] if query.turn else ()
    tokens = count_tokens(query.text) if found else 0
    return {one[:2] for one in found if abs(one.tokens - tokens) <= _SAME_LENGTH}


def is_crowded(ranked: Sequence[Ranked], query: Query) -> bool:
    """Tell whether some candidates may not count as hits, so that more of them are needed."""
    return query.apart or len({*_text_keys(ranked)}) < len(ranked) or bool(repeating(ranked, query))


def _text_keys(ranked: Sequence[Ranked]) -> list[object]:
    # The same text has the same vector and length. Redis 8 rounds what it computes in float16, so that half of the
    # candidates have the similarity of another text.
    return [(one.similarity, one.tokens) if one.similarity else one[:2] for one in ranked]


def most_of(query: Query) -> int:
    """Return the most tokens of a budget that one hit takes."""
    return max(LEAST, (query.max_tokens or 0) // _SHARE)


def picked(ranked: Sequence[Ranked], query: Query) -> list[Ranked]:
    """Take the best candidates that give `top_k` hits within the budget, and those among them that may not count."""
    taken: list[Ranked] = []
    repeated = repeating(ranked, query)
    seen: set[object] = set()
    covered = _Covered(query.window)
    left = inf if query.max_tokens is None else query.max_tokens * (TIMES if query.reranked else 1)
    most = LEAST if query.turn else most_of(query)
    number = 0
    for one, key in zip(ranked, _text_keys(ranked), strict=True):
        if number >= query.top_k:
            break
        if key not in seen:
            size = min(one.tokens, most)
            if size > left:
                continue
            if one[:2] not in repeated:
                seen.add(key)
                left -= size
                number += not (query.apart and covered.holds(one.thread, one.seq))
        taken.append(one)
    return taken


class _Covered:
    """The messages that lie in the window of a hit taken before."""

    def __init__(self, window: tuple[int, int]) -> None:
        self._before, self._after = window
        self._taken: dict[bytes, list[int]] = {}

    def holds(self, thread: bytes, at: int) -> bool:
        """Tell whether a message is covered; if it is not, take it as a hit."""
        taken = self._taken.setdefault(thread, [])
        following = bisect_left(taken, at - self._after)
        if following < len(taken) and taken[following] <= at + self._before:
            return True
        insort(taken, at)
        return False


def hits_of(
    query: Query, ranked: Iterable[Ranked], fetched: Fetched, wanted: Callable[[Ranked], bool]
) -> tuple[list[Found], set[tuple[bytes, int]]]:
    """Return all hits, the best first, and the candidates that repeat the question.

    Of messages with the same text only the newest counts. In a turn, an answer replaces a repeated question.
    """
    found: dict[object, Found] = {}
    repeated = set()
    question = query.text.strip()
    for one in ranked:
        hit = Found(one, one[:2])
        row = fetched.rows[hit.position]
        text = answer_text(row.message).strip()
        if query.turn and isinstance(row.message, HumanMessage) and _repeats(text, question):
            repeated.add(one[:2])
            answer = fetched.answer_to(hit.position)
            if answer is None:
                continue
            row = fetched.rows[answer]
            if row.message.id in query.exclude or not wanted(one._replace(seq=row.seq)):
                continue
            hit, text = Found(one, answer, hit.position), answer_text(row.message).strip()
        known = found.setdefault(key := (row.message.type, text), hit)
        if fetched.rows[known.position].stored_at < row.stored_at:
            found[key] = hit._replace(ranked=known.ranked)
        elif known.position == hit.position and hit.question:
            found[key] = known._replace(question=hit.question)
    return list(found.values()), repeated


def _repeats(text: str, question: str) -> bool:
    is_near = abs(len(text) - len(question)) <= 4 * CHARACTERS_PER_TOKEN  # a repeated question may end with "??"
    return is_near and _normalized(text) == _normalized(question)


def _normalized(text: str) -> str:
    return _NOT_WORD.sub(" ", text.casefold()).strip() or text


@dataclass(frozen=True, slots=True)
class Gate:
    """What a message must have in common with what the user says, to be shown in a turn.

    An answer shares words with its question, or its sense. Small talk shares both with much that was said, so what is no question
    needs more of them; and an order ("sort this list"), thanks, and "how was your day?" are about themselves.
    """

    words: Sequence[str]  # of the question, that tell something
    kind: Kind
    floor: Floor | None  # similarities of the embedding model; None: its scale is not known
    ordinary: float | None  # similarity of what is ordinary in this memory; None: it is too small to tell

    @classmethod
    def of(cls, text: str, floor: Floor | None, ordinary: float | None) -> Gate:
        """Make the gate of a question."""
        is_about_itself = is_order(text) or is_thanks(text) or asks_about_you(text)
        kind: Kind = "order" if is_about_itself else "question" if is_question(text) else "statement"
        return cls(telling_words(text)[:MOST_WORDS], kind, floor, ordinary)

    def admits(self, hit: Found, fetched: Fetched, chunk_tokens: int) -> bool:
        """Tell whether a hit is shown: for itself, whatever the others are."""
        similarity = hit.ranked.similarity
        if hit.question or hit.ranked.timely or hit.relevance is not None:
            return True
        if not self.words:
            return False
        if self.kind != "order" and (self._is_near if self.kind == "question" else self._stands_out)(similarity):
            return True  # without a look at its words
        text = answer_text(fetched.rows[hit.position].message)
        start, end = chunk_span(text, chunk_tokens, hit.ranked.chunk)
        return self.shares_enough(text[start:end], similarity)

    def admits_text(self, text: str, similarity: float) -> bool:
        """Tell whether a text that is no message is shown."""
        if not self.words:
            return False
        is_alike = self._is_near if self.kind == "question" else self._stands_out
        return (self.kind != "order" and is_alike(similarity)) or self.shares_enough(text, similarity)

    def shares_enough(self, text: str, similarity: float) -> bool:
        """Tell whether a text has enough of the words."""
        shared = count_shared(self.words, text)
        if shared < 1:
            return False
        share, is_similar = shared / len(self.words), not self.floor or similarity >= self.floor.worded
        if self.kind == "question":
            return is_similar or share >= _MOST
        timeless = without_times(self.words)
        telling = shared if len(timeless) == len(self.words) else count_shared(timeless, text)
        if self.kind == "order":
            least = _MANY if share < 1 else 1 if self._names_one else 2
            return telling >= 1 and share >= _HALF and shared >= least
        is_half = share > _HALF or (share == _HALF and not self._is_foreign)
        return is_similar and (telling >= 2 or (telling >= 1 and is_half))

    @property
    def _names_one(self) -> bool:
        """Tell whether the only word is no plain number: "3-5" may be a sum, and also a score or days of a month."""
        only = self.words[0]
        return len(self.words) == 1 and any(map(str.isdigit, only)) and not only.isdigit()

    @property
    def _is_foreign(self) -> bool:
        """Tell whether most messages are so similar that the model seems not to know their language."""
        return self.floor is not None and (self.ordinary or 0.0) >= self.floor.alone

    def _is_near(self, similarity: float) -> bool:
        """Tell whether a similarity reaches the floor, or else that part of the way from what is ordinary to 1."""
        if self.floor is not None and not self._is_foreign:
            return similarity >= (self.floor.worded + self.floor.alone) / 2
        return self.ordinary is None or similarity >= self.ordinary + NEAR * (1 - self.ordinary)

    def _stands_out(self, similarity: float) -> bool:
        """Tell whether a similarity alone speaks for a message: in a foreign language none does."""
        if self._is_foreign:
            return False
        far = 0.0 if self.ordinary is None else self.ordinary + FAR * (1 - self.ordinary)
        return similarity >= max(far, self.floor.alone if self.floor else 0.0)


def best_of(query: Query, hits: list[Found], fetched: Fetched) -> list[Found]:
    """Take as many hits as come back; where they must lie apart, none in a better one's window unless they are few."""
    if not query.apart:
        return hits[: query.keep]
    covered = _Covered(query.window)
    inside = [hit.position for hit in hits if covered.holds(hit.position[0], fetched.ranks[hit.position])]
    dropped = {*inside[max(0, query.keep - len(hits) + len(inside)) :]}
    return [hit for hit in hits if hit.position not in dropped][: query.keep]
