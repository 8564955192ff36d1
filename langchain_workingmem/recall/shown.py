"""Build the result of a search: hits with their windows, fitted into a budget of tokens. Pure functions."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count, pairwise, takewhile
from math import inf, log
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from langchain_core.messages import AIMessage

from langchain_workingmem._redis.queries import words_of
from langchain_workingmem._text.chunks import CHARACTERS_PER_TOKEN, chunk_span, count_tokens, excerpt, length
from langchain_workingmem._text.marks import as_shown
from langchain_workingmem._text.provider_valid import with_calls
from langchain_workingmem._text.rendering import attachments, message_text, row_text, words_in
from langchain_workingmem._text.said import structured_text
from langchain_workingmem.models import RecallHit, RecallResult, StoredMessage
from langchain_workingmem.recall.ranking import SHORT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Ranked, Ranking
    from langchain_workingmem.recall.windows import Page

Position: TypeAlias = tuple[bytes, int]  # of a message: thread (encoded as in keys), sequence number
LEAST = 100  # tokens of the shortest excerpt of a hit; half of it for another message of its window
_SHARE = 4  # a hit takes at most this fraction of a budget, another message of its window half of that

# What a message around a hit is worth, beside its own score. Tuned at 500 to 2,000 tokens as docs/recall.md says.
_NEIGHBOUR = 0.3  # of what the hit's score exceeds that of an ordinary candidate by
_LENGTH = 0.04  # subtracted per ln(tokens / 64) of longer messages
_WEIGHT = 3  # of a hit when the rest of a budget is shared out; the weight of another message is 1
_COMMON = 3  # characters of words that are everywhere


class Found(NamedTuple):
    """A hit before its window and its size are known."""

    ranked: Ranked
    position: Position
    said: tuple[str, str] = ("", "")  # who said what: of equal ones, one is a hit
    relevance: float | None = None  # as a reranker has it


def words_in_row(row: StoredMessage) -> str:
    """Return the text of a row by which it is found; most rows tell it without making the message."""
    data = row.record["data"]
    content = data["content"]
    if isinstance(content, str) and not data.get("tool_calls"):
        return content
    return structured_text(row.message) if row.record["kind"] == "a" else words_in(row.message)


def most_of(query: Query) -> int:
    """Return the most tokens of a budget that one hit takes."""
    return max(LEAST, (query.max_tokens or 0) // _SHARE)


def result_of(
    query: Query, hits: Sequence[Found], fetched: Page, chunk_tokens: int, ranking: Ranking
) -> RecallResult:
    """Build the result: hits with their windows, cut to the budget, and all shown messages in order of time."""
    sizes, rows = None, fetched.rows
    if query.max_tokens is not None and not fits(query, fetched):
        hits, sizes = sized(query, hits, fetched, ranking.score_of, ranking.ordinary())
        rows = _shortened(query, hits, fetched, sizes, chunk_tokens)
    return in_windows(hits, fetched, rows, sizes)


def in_windows(
    hits: Sequence[Found], fetched: Page, rows: Mapping[Position, StoredMessage], sizes: Sizes | None = None
) -> RecallResult:
    """Build the result of hits with their windows; `rows` hold excerpts of the messages, `sizes` say which of a window stay."""
    windows = list[tuple["Found", list["Position"], list["Position"]]]()
    said = {at: (row.record["type"], str(row.record["data"]["content"])) for at, row in fetched.rows.items()}
    known = {said[hit.position]: hit.position for hit in hits}  # no message beside a hit repeats another hit
    for hit in hits:
        front, back = ([at for at in side if known.get(said[at], at) == at] for side in fetched.windows[hit.position])
        if sizes is not None:
            front, back = ([*takewhile(sizes.of.__contains__, side)] for side in (front, back))
        windows.append((hit, front[::-1], back))
    runs = [[*front, hit.position, *back] for hit, front, back in windows]
    shown = dict.fromkeys(position for run in runs for position in run)
    ordered = [rows[at] for _, at in sorted([(fetched.rows[at].record["at"], at) for at in shown])]
    adjacent = frozenset((rows[one].thread_id, one[1], other[1]) for run in runs for one, other in pairwise(run))
    titles = {row.thread_id: fetched.titles[position[0]] for position, row in rows.items() if position in shown}

    def make() -> list[RecallHit]:
        return [as_hit(hit, fetched, front, back, rows) for hit, front, back in windows]

    return RecallResult.of(ordered, titles, adjacent, make)


def as_hit(
    hit: Found,
    fetched: Page,
    front: Iterable[Position],
    back: Iterable[Position],
    rows: Mapping[Position, StoredMessage] | None = None,
) -> RecallHit:
    """Build a hit with its window, in order; `rows` hold excerpts of its messages."""
    rows = fetched.rows if rows is None else rows
    row = rows[hit.position]
    return RecallHit(
        message=row.message,
        thread_id=row.thread_id,
        score=hit.ranked.score if hit.relevance is None else hit.relevance,
        similarity=hit.ranked.similarity,
        before=[rows[position].message for position in front],
        after=[rows[position].message for position in back],
        stored_at=row.stored_at,
        thread_title=fetched.titles[hit.position[0]],
    )


def cut(
    message: BaseMessage, thread_id: str, tokens: int, span: tuple[int, int], words: Collection[str]
) -> BaseMessage:
    """Copy a message with an excerpt around a span of its text; the copy is marked, so that it is never saved."""
    lean = with_calls(message) if isinstance(message, AIMessage) else message
    data = {"thread_id": thread_id, "excerpt": True}
    names = attachments(message)
    text = excerpt(message_text(message), tokens - count_tokens("\n".join(names)), *span, words)
    return as_shown(lean, data, "\n".join([text, *(name for name in names if name not in text)]))


def _shortened(
    query: Query, hits: Sequence[Found], fetched: Page, sizes: Sizes, chunk_tokens: int
) -> dict[Position, StoredMessage]:
    """Cut what is too long: a hit around its best chunk; a message before it keeps its end, one after it its beginning."""
    rows = dict(fetched.rows)
    by_position = {hit.position: hit for hit in hits}
    fronts = {position for hit in hits for position in fetched.windows[hit.position][0]}
    words = [word for word in words_of(query.text) if len(word) > _COMMON or not word.isascii()]
    for position, size in sizes.of.items():
        if size >= sizes.tokens(position):
            continue
        row = rows[position]
        start = end = len(row_text(row)) if position in fronts else 0
        if hit := by_position.get(position):
            start, end = chunk_span(words_in_row(row), chunk_tokens, hit.ranked.chunk)
        copy = cut(row.message, row.thread_id, size, (start, end), words)
        rows[position] = row.with_message(copy)
    return rows


# ---------------------------------------------------------------------- the budget


def fits(query: Query, fetched: Page) -> bool:
    """Tell cheaply whether all fetched messages fit uncut, as they usually do."""
    longest = 0
    total = 0
    for row in fetched.rows.values():
        data = row.record["data"]
        if not isinstance(data["content"], str) or data.get("tool_calls"):
            return False
        size = length(data["content"])
        total += size + CHARACTERS_PER_TOKEN  # each is rounded up
        longest = max(longest, size)
    budget = (query.max_tokens or 0) * CHARACTERS_PER_TOKEN
    return total <= budget and longest <= most_of(query) // 2 * CHARACTERS_PER_TOKEN


class Sizes:
    """The number of tokens that each shown message may take."""

    def __init__(self, query: Query, fetched: Page) -> None:
        self._most, self._fetched = most_of(query), fetched
        self._hits: set[Position] = set()  # messages that were taken as hits, not as what stands around one
        self._tokens: dict[Position, int] = {}
        self.left = query.max_tokens or 0
        self.of: dict[Position, int] = {}

    def tokens(self, position: Position) -> int:
        """Count the tokens of a whole message, tool calls included."""
        if position not in self._tokens:
            self._tokens[position] = count_tokens(row_text(self._fetched.rows[position]))
        return self._tokens[position]

    def most(self, position: Position) -> int:
        """Return the largest size of a message."""
        return min(self.tokens(position), self._most if position in self._hits else self._most // 2)

    def least(self, position: Position) -> int:
        """Return the size below which a message is not shown at all."""
        return min(self.tokens(position), LEAST if position in self._hits else LEAST // 2)

    def take(self, position: Position, size_of: Callable[[Position], int], *, as_hit: bool) -> bool:
        """Reserve tokens for a message, unless it has some; tell whether it has."""
        if position in self.of:
            return True
        if as_hit:
            self._hits.add(position)
        if (size := size_of(position)) > self.left:
            self._hits.discard(position)
            return False
        self.of[position] = size
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


def sized(
    query: Query,
    hits: Sequence[Found],
    fetched: Page,
    score_of: Callable[[bytes, int], float],
    ordinary: float,
) -> tuple[list[Found], Sizes]:
    """Choose by score what fits: one more hit, or one more message around a hit that is shown. `ordinary` is a score that says nothing.

    A turn takes the hits first, all cut, then the messages around them, and shares out what is left.
    """
    sizes = Sizes(query, fetched)
    size_of = sizes.least if query.turn else sizes.most
    number = count()  # of equals the first counts
    queue: list[tuple[float, int, list[Position], Found]] = [
        (-inf if query.turn else -hit.ranked.score, next(number), [hit.position], hit) for hit in hits
    ]
    heapify(queue)
    kept = []
    while queue:
        _, _, (position, *farther), hit = heappop(queue)
        is_hit = position == hit.position
        if not sizes.take(position, size_of, as_hit=is_hit):
            continue
        if is_hit:
            kept.append(hit)
        for side in filter(None, fetched.windows[hit.position] if is_hit else [farther]):
            score = score_of(*side[0]) + _NEIGHBOUR * max(0.0, hit.ranked.score - ordinary)
            score -= _LENGTH * log(max(sizes.tokens(side[0]), SHORT) / SHORT)
            heappush(queue, (-score, next(number), side, hit))
    if query.turn:
        sizes.share_out()
    return kept, sizes
