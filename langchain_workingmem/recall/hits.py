"""From fetched messages to hits: what repeats, what fits into a budget, and excerpts of what is too long; pure functions."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem._redis.queries import words_of
from langchain_workingmem._text.chunks import CHARACTERS_PER_TOKEN, count_tokens, excerpt, piece
from langchain_workingmem._text.copies import from_memory
from langchain_workingmem._text.rendering import message_text, words_in
from langchain_workingmem.history import with_calls
from langchain_workingmem.models import RecallHit, RecallResult, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Ranked

Place: TypeAlias = tuple[bytes, int]  # of a fetched message: thread as keys spell it, rank in the thread

REACH = 12  # messages behind a repeated question among which its answer is looked for: tools may come in between
LEAST = 100  # tokens of an excerpt of a hit; half of it for a message beside one
_SHARE = 4  # a hit takes at most that part of a budget, a message beside it half of that
_WEIGHT = 3  # of a hit beside its neighbours, where what is left of a budget is shared out
_SURE = 0.8  # similarity from which on a message as long as the question may be the same question
_BETWEEN = re.compile(r"\W+")
_SPEAKING = 4  # letters of a word that says what a question is about
_ASKING = frozenset(
    re.findall(
        r"\w+",
        "about been could does from have know like long many much said should tell them they this told were what when where "
        "which whose will with would your",
    )
)


@dataclass(slots=True)
class Fetched:
    """What the server returned around candidates."""

    titles: dict[bytes, str | None] = field(default_factory=dict)
    ranks: dict[tuple[bytes, int], int] = field(default_factory=dict)  # (thread, sequence number) -> rank
    rows: dict[Place, StoredMessage] = field(default_factory=dict)
    found: set[tuple[bytes, int]] = field(default_factory=set)  # (thread, sequence number) of those still there
    size: int = 0  # bytes of the messages

    def answer_to(self, place: Place) -> Place | None:
        """Find the answer to a question: what the assistant said last before the user spoke again."""
        thread, rank = place
        answer = None
        for at in range(rank + 1, rank + REACH + 1):
            message = row.message if (row := self.rows.get((thread, at))) else None
            if message is None or isinstance(message, HumanMessage):
                break
            if isinstance(message, AIMessage) and not message.tool_calls and words_in(message).strip():
                answer = thread, at
        return answer


class Found(NamedTuple):
    """A hit before its window and its size are known."""

    one: Ranked
    place: Place
    asked: Place | None = None  # the repeated question that it answers


# ---------------------------------------------------------------------- which messages


def may_repeat(one: Ranked, query: Query) -> bool:
    """Tell whether a candidate may be the question itself, asked before; its text is not known yet."""
    return one.similarity >= _SURE and query.turn and abs(one.tokens - count_tokens(query.text)) <= 2


def is_crowded(ranked: Sequence[Ranked], query: Query) -> bool:
    """Tell whether candidates may take each other's places: then more of them are looked at."""
    if not query.turn:
        return query.apart
    return len({*map(_alike, ranked)}) < len(ranked) or any(may_repeat(one, query) for one in ranked)


def _alike(one: Ranked) -> object:
    return one.similarity or one[:2]  # the same text has the same vector


def picked(ranked: Iterable[Ranked], query: Query) -> list[Ranked]:
    """Take as many as give `top_k` hits within the budget: the best, and beside them those that may not count."""
    taken: list[Ranked] = []
    seen: set[object] = set()
    covered = _Covered(query.window)
    left = inf if query.max_tokens is None else query.max_tokens
    most = LEAST if query.turn else _most(query)
    number = 0
    for one in ranked:
        if number >= query.top_k:
            break
        alike = _alike(one) if query.turn else one[:2]
        if alike not in seen:
            size = min(one.tokens, most)
            if size > left:
                continue
            if not may_repeat(one, query):
                seen.add(alike)
                left -= size
                number += not (query.apart and covered.holds(one.thread, one.seq))
        taken.append(one)
    return taken


class _Covered:
    """Which places lie in the window of one that was taken before."""

    def __init__(self, window: tuple[int, int]) -> None:
        self._before, self._after = window
        self._taken: dict[bytes, list[int]] = {}

    def holds(self, thread: bytes, at: int) -> bool:
        """Tell so, and take the place if it does not."""
        taken = self._taken.setdefault(thread, [])
        next_one = bisect_left(taken, at - self._after)
        if next_one < len(taken) and taken[next_one] <= at + self._before:
            return True
        insort(taken, at)
        return False


def hits_of(
    query: Query, ranked: Iterable[Ranked], fetched: Fetched, wanted: Callable[[Ranked], bool]
) -> tuple[list[Found], set[tuple[bytes, int]]]:
    """Choose hits, the best first, and say which candidates were the question itself.

    In a turn the same text counts once, and of its copies the newest; what repeats the question gives its place to its
    answer. A search brings what it finds.
    """
    found: dict[object, Found] = {}
    repeated = set()
    question = query.text.strip()
    for one in ranked:
        hit = Found(one, (one.thread, fetched.ranks[one.thread, one.seq]))
        if query.turn and _repeats(fetched.rows[hit.place].message, question):
            repeated.add(one[:2])
            answer = fetched.answer_to(hit.place)
            if answer is None or not _is_open(query, one, fetched.rows[answer], wanted):
                continue
            hit = Found(one, answer, hit.place)
        row = fetched.rows[hit.place]
        text = (row.message.type, words_in(row.message).strip()) if query.turn else hit.place
        known = found.setdefault(text, hit)
        if fetched.rows[known.place].stored_at < row.stored_at:
            found[text] = Found(known.one, hit.place, hit.asked)
        elif known.place == hit.place and hit.asked:
            found[text] = known._replace(asked=hit.asked)
    hits = list(found.values())
    return (_apart(query, hits) if query.apart else hits[: query.top_k]), repeated


def _is_open(query: Query, one: Ranked, row: StoredMessage, wanted: Callable[[Ranked], bool]) -> bool:
    return row.message.id not in query.exclude and wanted(one._replace(seq=row.seq))


def _words(text: str) -> str:
    """Write a text such that those with the same words are the same."""
    return _BETWEEN.sub(" ", text.casefold()).strip() or text


def _repeats(message: BaseMessage, question: str) -> bool:
    if not isinstance(message, HumanMessage):
        return False
    text = words_in(message).strip()
    is_near = abs(len(text) - len(question)) <= 4 * CHARACTERS_PER_TOKEN  # who asks again may say "??"
    return is_near and _words(text) == _words(question)


def says(hit: Found, query: Query, fetched: Fetched, chunk_tokens: int) -> bool:
    """Tell whether a hit has most of the question's words: two at least, however little its vector is like the question's."""
    if not hit.one.worded:
        return False
    text = words_in(fetched.rows[hit.place].message)
    start, end = piece(text, chunk_tokens, hit.one.piece)
    words = [word for word in words_of(query.text) if len(word) >= _SPEAKING and word not in _ASKING]
    pattern = re.compile(
        "|".join(rf"\b({re.escape(word[: max(_SPEAKING, len(word) - 2)])})" for word in words) or r"(?!)"
    )
    said = {one.lastindex for one in pattern.finditer(text[start:end].lower())}
    return len(said) >= max(2, len(words) * 2 / 3)


def _apart(query: Query, hits: list[Found]) -> list[Found]:
    """Leave out hits that stand in a better one's window, unless there are too few others."""
    covered = _Covered(query.window)
    inside = [covered.holds(*hit.place) for hit in hits]
    room = max(0, query.top_k - inside.count(False))
    chosen = []
    for hit, is_inside in zip(hits, inside, strict=True):
        room -= is_inside
        if not is_inside or room >= 0:
            chosen.append(hit)
    return chosen[: query.top_k]


# ---------------------------------------------------------------------- how much of them


def _most(query: Query) -> int:
    return max(LEAST, (query.max_tokens or 0) // _SHARE)


def _fits(query: Query, fetched: Fetched) -> bool:
    """Tell at a glance whether all that was fetched fits whole, as it usually does."""
    total = longest = 0
    for row in fetched.rows.values():
        message = row.message
        if not isinstance(message.content, str) or (isinstance(message, AIMessage) and message.tool_calls):
            return False
        length = len(message.content)
        total += length + CHARACTERS_PER_TOKEN  # each is rounded up
        longest = max(longest, length)
    budget = (query.max_tokens or 0) * CHARACTERS_PER_TOKEN
    return total <= budget and longest <= _most(query) // 2 * CHARACTERS_PER_TOKEN


def _window(query: Query, hit: Found, fetched: Fetched) -> tuple[list[Place], list[Place]]:
    """Return the messages in front of a hit and behind it, the nearest first."""
    thread, rank = hit.place
    before, after = query.window
    front = [(thread, at) for at in range(rank - 1, rank - before - 1, -1) if (thread, at) in fetched.rows]
    back = [(thread, at) for at in range(rank + 1, rank + after + 1) if (thread, at) in fetched.rows]
    if hit.asked and hit.asked not in front:
        front.append(hit.asked)
    return front, back


class Sizes:
    """How many tokens each message that is shown may take."""

    def __init__(self, query: Query, hits: Sequence[Found], fetched: Fetched) -> None:
        self._query, self._fetched = query, fetched
        self._hits = {hit.place for hit in hits}
        self._tokens: dict[Place, int] = {}
        self.left = query.max_tokens or 0
        self.of: dict[Place, int] = {}

    def tokens(self, place: Place) -> int:
        """Count the tokens of a whole message, tool calls included."""
        if place not in self._tokens:
            self._tokens[place] = count_tokens(message_text(self._fetched.rows[place].message))
        return self._tokens[place]

    def most(self, place: Place) -> int:
        """Return how much a message may take at best."""
        most = _most(self._query)
        return min(self.tokens(place), most if place in self._hits else most // 2)

    def least(self, place: Place) -> int:
        """Return below which size a message is not shown at all."""
        return min(self.tokens(place), LEAST if place in self._hits else LEAST // 2)

    def take(self, places: Iterable[Place], need: Callable[[Place], int]) -> bool:
        """Take room for all of these, or for none of them."""
        new = {place: need(place) for place in places if place not in self.of}
        if (size := sum(new.values())) > self.left:
            return False
        self.of |= new
        self.left -= size
        return True

    def share_out(self) -> None:
        """Share out what is left, evenly, and more to hits: who needs less leaves more to the others."""
        weights = {place: _WEIGHT if place in self._hits else 1 for place in self.of}
        wishes = {place: self.most(place) - size for place, size in self.of.items()}
        total = sum(weights.values())
        for place in sorted(wishes, key=lambda place: wishes[place] / weights[place]):
            given = min(wishes[place], self.left * weights[place] // total)
            self.of[place] += given
            self.left -= given
            total -= weights[place]


def _sized(query: Query, hits: Sequence[Found], fetched: Fetched) -> tuple[list[Found], Sizes]:
    """Choose what fits into the budget.

    In a turn every hit gets its place before any window, and all are cut as far as it takes. A search that is given a budget
    fills it: each hit with its window, or alone.
    """
    sizes = Sizes(query, hits, fetched)
    kept = []
    if query.turn:
        kept = [hit for hit in hits if sizes.take([hit.place], sizes.least)]
        for hit in kept:
            for side in _window(query, hit, fetched):
                for place in side:
                    if not sizes.take([place], sizes.least):
                        break
        sizes.share_out()
        return kept, sizes
    for hit in hits:
        front, back = _window(query, hit, fetched)
        if sizes.take([hit.place, *front, *back], sizes.most) or sizes.take([hit.place], sizes.most):
            kept.append(hit)
    return kept, sizes


# ---------------------------------------------------------------------- what is shown


def result_of(query: Query, hits: Sequence[Found], fetched: Fetched, chunk_tokens: int) -> RecallResult:
    """Put the result together: hits with their windows, cut to the budget, and the windows merged."""
    sizes = None
    if query.max_tokens is not None and not _fits(query, fetched):
        hits, sizes = _sized(query, hits, fetched)
    rows = fetched.rows
    if sizes is not None:
        rows = _shortened(query, hits, fetched, sizes, chunk_tokens)
    found = []
    shown: dict[Place, StoredMessage] = {}
    for hit in hits:
        front, back = _window(query, hit, fetched)
        if sizes is not None:
            front, back = ([*takewhile(sizes.of.__contains__, side)] for side in (front, back))
        for place in (hit.place, *front, *back):
            shown[place] = rows[place]
        row = rows[hit.place]
        found.append(
            RecallHit(
                message=row.message,
                thread_id=row.thread_id,
                score=hit.one.score,
                similarity=hit.one.similarity,
                before=[rows[place].message for place in reversed(front)],
                after=[rows[place].message for place in back],
                stored_at=row.stored_at,
                thread_title=fetched.titles[hit.place[0]],
            )
        )
    return RecallResult(hits=found, rows=sorted(shown.values(), key=attrgetter("stored_at", "thread_id")))


def _shortened(
    query: Query, hits: Sequence[Found], fetched: Fetched, sizes: Sizes, chunk_tokens: int
) -> dict[Place, StoredMessage]:
    """Cut what is longer than its size."""
    rows = dict(fetched.rows)
    own = {hit.place: hit for hit in hits}
    fronts = {place for hit in hits for place in _window(query, hit, fetched)[0]}
    for place, size in sizes.of.items():
        if size < sizes.tokens(place):
            rows[place] = _cut(rows[place], size, query, own.get(place), chunk_tokens, front=place in fronts)
    return rows


def _cut(
    row: StoredMessage, tokens: int, query: Query, hit: Found | None, chunk_tokens: int, *, front: bool
) -> StoredMessage:
    """Copy a message with an excerpt in place of its text, marked, so that it is never saved in the message's place.

    A hit is cut around its best piece, what stands in front of it down to its end, what stands behind to its beginning.
    """
    message = row.message
    text = message_text(message)
    start = end = len(text) if front else 0
    if hit is not None:
        start, end = piece(words_in(message), chunk_tokens, 0 if hit.asked else hit.one.piece)
    short = excerpt(text, tokens, start, end, words_of(query.text))
    lean = with_calls(message) if isinstance(message, AIMessage) else message
    data = {"thread_id": row.thread_id, "excerpt": True}
    return StoredMessage(
        message=from_memory(lean, data, content=short), thread_id=row.thread_id, seq=row.seq, stored_at=row.stored_at
    )
