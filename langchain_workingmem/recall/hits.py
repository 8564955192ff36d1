"""Which fetched messages are hits: repetitions are dropped, and what lies in the window of a better one. Pure functions."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem._redis.queries import words_of
from langchain_workingmem._text.chunks import CHARACTERS_PER_TOKEN, count_tokens
from langchain_workingmem._text.said import answer_text
from langchain_workingmem._text.searched import asks
from langchain_workingmem.recall.query import TIMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from langchain_workingmem.models import StoredMessage
    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Ranked

Position: TypeAlias = tuple[bytes, int]  # of a message: thread (encoded as in keys), sequence number

REACH = 12  # of what was said after a repeated question, where its answer is looked for: several agents may answer
SHOWN_OF_QUESTION = 2  # hits of a text with a question mark that a turn shows, however far they are
LEAST = 100  # tokens of the shortest excerpt of a hit; half of it for another message of its window
_SHARE = 4  # a hit takes at most this fraction of a budget, another message of its window half of that
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


def hits_of(query: Query, ranked: Iterable[Ranked], fetched: Fetched, wanted: Callable[[Ranked], bool]) -> list[Found]:
    """Return all hits, the best first.

    Of messages with the same text only the newest counts. In a turn, an answer replaces a repeated question.
    """
    found: dict[object, Found] = {}
    question = query.text.strip()
    for one in ranked:
        hit = Found(one, one[:2])
        row = fetched.rows[hit.position]
        text = answer_text(row.message).strip()
        if query.turn and isinstance(row.message, HumanMessage) and _repeats(text, question):
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
    return list(found.values())


def _repeats(text: str, question: str) -> bool:
    is_near = abs(len(text) - len(question)) <= 4 * CHARACTERS_PER_TOKEN  # a repeated question may end with "??"
    return is_near and _normalized(text) == _normalized(question)


def _normalized(text: str) -> str:
    return _NOT_WORD.sub(" ", text.casefold()).strip() or text


def near_enough(query: Query, hits: Sequence[Found], fetched: Fetched, floor: float | None) -> list[Found]:
    """Return the hits that a turn shows: each for itself, and of a text that asks something at least the best two.

    A hit is near enough to the question, or of a time that the question names, or has a number of it, such as that of an order.
    """
    numbers = {word for word in words_of(query.text, whole=True) if any(map(str.isdigit, word))}

    def is_shown(hit: Found) -> bool:
        one = hit.ranked
        if floor is None or one.similarity >= floor or one.timely or hit.question:
            return True
        return one.worded and not numbers.isdisjoint(words_of(answer_text(fetched.rows[hit.position].message)))

    asked = SHOWN_OF_QUESTION if asks(query.text) else 0
    return [hit for at, hit in enumerate(hits) if at < asked or is_shown(hit)]


def best_of(query: Query, hits: list[Found], fetched: Fetched) -> list[Found]:
    """Take as many hits as come back; where they must lie apart, none in a better one's window unless they are few."""
    if not query.apart:
        return hits[: query.keep]
    covered = _Covered(query.window)
    inside = [hit.position for hit in hits if covered.holds(hit.position[0], fetched.ranks[hit.position])]
    dropped = {*inside[max(0, query.keep - len(hits) + len(inside)) :]}
    return [hit for hit in hits if hit.position not in dropped][: query.keep]
