"""Turn fetched messages into hits: drop repetitions, fit them into a token budget and cut excerpts. Pure functions."""

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
from langchain_workingmem._text.chunks import CHARACTERS_PER_TOKEN, chunk_span, count_tokens, excerpt
from langchain_workingmem._text.copies import from_memory
from langchain_workingmem._text.rendering import message_text, words_in
from langchain_workingmem.history import with_calls
from langchain_workingmem.models import RecallHit, RecallResult, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Ranked

Position: TypeAlias = tuple[bytes, int]  # of a fetched message: thread (encoded as in keys), rank in the thread

REACH = 12  # messages after a repeated question that may hold its answer: tool traffic may lie between
LEAST = 100  # tokens of the shortest excerpt of a hit; half of it for another message of its window
_SHARE = 4  # a hit takes at most this fraction of a budget, another message of its window half of that
_WEIGHT = 3  # of a hit when the rest of a budget is shared out; the weight of another message is 1
_SURE = 0.8  # similarity from which a message that is as long as the question may be the same question
_NOT_WORD = re.compile(r"\W+")
_SUBJECT = 4  # letters of the shortest word that tells the subject of a question
_ASKING = frozenset(  # words of a question that do not tell its subject
    re.findall(
        r"\w+",
        "about been could does from have know like long many much said should tell them they this told were what when "
        "where which whose will with would your",
    )
)


@dataclass(slots=True)
class Fetched:
    """What the server returned around candidates."""

    titles: dict[bytes, str | None] = field(default_factory=dict)
    ranks: dict[tuple[bytes, int], int] = field(default_factory=dict)  # of candidates that exist, by (thread, seq)
    rows: dict[Position, StoredMessage] = field(default_factory=dict)
    size: int = 0  # bytes of the messages

    def answer_to(self, position: Position) -> Position | None:
        """Find the answer to a question: the last words of the assistant before the user's next message."""
        thread, rank = position
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

    ranked: Ranked
    position: Position
    question: Position | None = None  # the repeated question that this hit answers


# ---------------------------------------------------------------------- which messages


def may_repeat(one: Ranked, query: Query) -> bool:
    """Tell whether a candidate may be an earlier copy of the question; its text is not fetched yet."""
    return one.similarity >= _SURE and query.turn and abs(one.tokens - count_tokens(query.text)) <= 2


def is_crowded(ranked: Sequence[Ranked], query: Query) -> bool:
    """Tell whether some candidates may not count as hits, so that more of them are needed."""
    if not query.turn:
        return query.apart
    return len({*map(_text_key, ranked)}) < len(ranked) or any(may_repeat(one, query) for one in ranked)


def _text_key(one: Ranked) -> object:
    return one.similarity or one[:2]  # the same text has the same vector


def picked(ranked: Iterable[Ranked], query: Query) -> list[Ranked]:
    """Take the best candidates that give `top_k` hits within the budget, and those among them that may not count."""
    taken: list[Ranked] = []
    seen: set[object] = set()
    covered = _Covered(query.window)
    left = inf if query.max_tokens is None else query.max_tokens
    most = LEAST if query.turn else _most(query)
    number = 0
    for one in ranked:
        if number >= query.top_k:
            break
        key = _text_key(one) if query.turn else one[:2]
        if key not in seen:
            size = min(one.tokens, most)
            if size > left:
                continue
            if not may_repeat(one, query):
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
    """Return hits, the best first, and the candidates that repeat the question.

    In a turn, of messages with the same text only the newest counts, and an answer replaces a repeated question.
    """
    found: dict[object, Found] = {}
    repeated = set()
    question = query.text.strip()
    for one in ranked:
        hit = Found(one, (one.thread, fetched.ranks[one.thread, one.seq]))
        row = fetched.rows[hit.position]
        if query.turn and _repeats(row.message, question):
            repeated.add(one[:2])
            answer = fetched.answer_to(hit.position)
            if answer is None:
                continue
            row = fetched.rows[answer]
            if row.message.id in query.exclude or not wanted(one._replace(seq=row.seq)):
                continue
            hit = Found(one, answer, hit.position)
        text = (row.message.type, words_in(row.message).strip()) if query.turn else hit.position
        known = found.setdefault(text, hit)
        if fetched.rows[known.position].stored_at < row.stored_at:
            found[text] = hit._replace(ranked=known.ranked)
        elif known.position == hit.position and hit.question:
            found[text] = known._replace(question=hit.question)
    hits = list(found.values())
    return (_apart(query, hits) if query.apart else hits[: query.top_k]), repeated


def _repeats(message: BaseMessage, question: str) -> bool:
    if not isinstance(message, HumanMessage):
        return False
    text = words_in(message).strip()
    is_near = abs(len(text) - len(question)) <= 4 * CHARACTERS_PER_TOKEN  # a repeated question may end with "??"
    return is_near and _normalized(text) == _normalized(question)


def _normalized(text: str) -> str:
    return _NOT_WORD.sub(" ", text.casefold()).strip() or text


def says(hit: Found, query: Query, fetched: Fetched, chunk_tokens: int) -> bool:
    """Tell whether a hit has two thirds of the question's words, and at least two; its similarity does not matter."""
    if not hit.ranked.worded:
        return False
    text = words_in(fetched.rows[hit.position].message)
    start, end = chunk_span(text, chunk_tokens, hit.ranked.chunk)
    words = [word for word in words_of(query.text) if len(word) >= _SUBJECT and word not in _ASKING]
    stems = (word[: max(_SUBJECT, len(word) - 2)] for word in words)
    pattern = re.compile("|".join(rf"\b({re.escape(stem)})" for stem in stems) or r"(?!)")
    said = {match.lastindex for match in pattern.finditer(text[start:end].lower())}
    return len(said) >= max(2, len(words) * 2 / 3)


def _apart(query: Query, hits: list[Found]) -> list[Found]:
    """Drop hits that lie in a better one's window, unless there are too few others."""
    covered = _Covered(query.window)
    inside = [hit.position for hit in hits if covered.holds(*hit.position)]
    dropped = {*inside[max(0, query.top_k - len(hits) + len(inside)) :]}
    return [hit for hit in hits if hit.position not in dropped][: query.top_k]


# ---------------------------------------------------------------------- how much of them


def _most(query: Query) -> int:
    return max(LEAST, (query.max_tokens or 0) // _SHARE)


def _fits(query: Query, fetched: Fetched) -> bool:
    """Tell cheaply whether all fetched messages fit uncut, as they usually do."""
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


def _window(query: Query, hit: Found, fetched: Fetched) -> tuple[list[Position], list[Position]]:
    """Return the messages before and after a hit, the nearest first."""
    thread, rank = hit.position
    before, after = query.window
    front = [(thread, at) for at in range(rank - 1, rank - before - 1, -1) if (thread, at) in fetched.rows]
    back = [(thread, at) for at in range(rank + 1, rank + after + 1) if (thread, at) in fetched.rows]
    if hit.question and hit.question not in front:
        front.append(hit.question)
    return front, back


class Sizes:
    """The number of tokens that each shown message may take."""

    def __init__(self, query: Query, hits: Sequence[Found], fetched: Fetched) -> None:
        self._most, self._fetched = _most(query), fetched
        self._hits = {hit.position for hit in hits}
        self._tokens: dict[Position, int] = {}
        self.left = query.max_tokens or 0
        self.of: dict[Position, int] = {}

    def tokens(self, position: Position) -> int:
        """Count the tokens of a whole message, tool calls included."""
        if position not in self._tokens:
            self._tokens[position] = count_tokens(message_text(self._fetched.rows[position].message))
        return self._tokens[position]

    def most(self, position: Position) -> int:
        """Return the largest size of a message."""
        return min(self.tokens(position), self._most if position in self._hits else self._most // 2)

    def least(self, position: Position) -> int:
        """Return the size below which a message is not shown at all."""
        return min(self.tokens(position), LEAST if position in self._hits else LEAST // 2)

    def take(self, positions: Iterable[Position], size_of: Callable[[Position], int]) -> bool:
        """Reserve tokens for all of these messages, or for none of them."""
        new = {position: size_of(position) for position in positions if position not in self.of}
        if (size := sum(new.values())) > self.left:
            return False
        self.of |= new
        self.left -= size
        return True

    def share_out(self) -> None:
        """Share out what is left by weight; what a message does not need goes to the others."""
        weights = {position: _WEIGHT if position in self._hits else 1 for position in self.of}
        needs = {position: self.most(position) - size for position, size in self.of.items()}
        total = sum(weights.values())
        for position in sorted(needs, key=lambda position: needs[position] / weights[position]):
            given = min(needs[position], self.left * weights[position] // total)
            self.of[position] += given
            self.left -= given
            total -= weights[position]


def _sized(query: Query, hits: Sequence[Found], fetched: Fetched) -> tuple[list[Found], Sizes]:
    """Choose what fits: a turn puts hits before windows and cuts all; a search takes a hit with its window or alone."""
    sizes = Sizes(query, hits, fetched)
    if query.turn:
        kept = [hit for hit in hits if sizes.take([hit.position], sizes.least)]
        for hit in kept:
            for side in _window(query, hit, fetched):
                for position in side:
                    if not sizes.take([position], sizes.least):
                        break
        sizes.share_out()
        return kept, sizes
    kept = []
    for hit in hits:
        front, back = _window(query, hit, fetched)
        if sizes.take([hit.position, *front, *back], sizes.most) or sizes.take([hit.position], sizes.most):
            kept.append(hit)
    return kept, sizes


# ---------------------------------------------------------------------- what is shown


def result_of(query: Query, hits: Sequence[Found], fetched: Fetched, chunk_tokens: int) -> RecallResult:
    """Build the result: hits with their windows, cut to the budget, and all shown messages in order of time."""
    sizes, rows = None, fetched.rows
    if query.max_tokens is not None and not _fits(query, fetched):
        hits, sizes = _sized(query, hits, fetched)
        rows = _shortened(query, hits, fetched, sizes, chunk_tokens)
    found = []
    shown: set[Position] = set()
    for hit in hits:
        front, back = _window(query, hit, fetched)
        if sizes is not None:
            front, back = ([*takewhile(sizes.of.__contains__, side)] for side in (front, back))
        shown.update([hit.position], front, back)
        row = rows[hit.position]
        found.append(
            RecallHit(
                message=row.message,
                thread_id=row.thread_id,
                score=hit.ranked.score,
                similarity=hit.ranked.similarity,
                before=[rows[position].message for position in reversed(front)],
                after=[rows[position].message for position in back],
                stored_at=row.stored_at,
                thread_title=fetched.titles[hit.position[0]],
            )
        )
    ordered = sorted((rows[position] for position in shown), key=attrgetter("stored_at", "thread_id"))
    return RecallResult(hits=found, rows=ordered)


def _shortened(
    query: Query, hits: Sequence[Found], fetched: Fetched, sizes: Sizes, chunk_tokens: int
) -> dict[Position, StoredMessage]:
    """Cut what is too long: a hit around its best chunk; a message before it keeps its end, one after it its beginning.

    The copies are marked so that they are never saved over the original.
    """
    rows = dict(fetched.rows)
    by_position = {hit.position: hit for hit in hits}
    fronts = {position for hit in hits for position in _window(query, hit, fetched)[0]}
    words = words_of(query.text)
    for position, size in sizes.of.items():
        if size >= sizes.tokens(position):
            continue
        row = rows[position]
        text = message_text(row.message)
        start = end = len(text) if position in fronts else 0
        if hit := by_position.get(position):
            start, end = chunk_span(words_in(row.message), chunk_tokens, 0 if hit.question else hit.ranked.chunk)
        lean = with_calls(row.message) if isinstance(row.message, AIMessage) else row.message
        data = {"thread_id": row.thread_id, "excerpt": True}
        copy = from_memory(lean, data, content=excerpt(text, size, start, end, words))
        rows[position] = StoredMessage(message=copy, thread_id=row.thread_id, seq=row.seq, stored_at=row.stored_at)
    return rows
