"""Build the result of a search: hits with their windows, fitted into a budget of tokens. Pure functions."""

from __future__ import annotations

from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, NamedTuple

from langchain_core.messages import AIMessage

from langchain_workingmem._redis.keys import STRIDE
from langchain_workingmem._redis.queries import words_of
from langchain_workingmem._text.chunks import chunk_span, count_tokens, excerpt
from langchain_workingmem._text.marks import as_shown
from langchain_workingmem._text.provider_valid import with_calls
from langchain_workingmem._text.rendering import attachments, message_text, row_text, words_in
from langchain_workingmem._text.said import structured_text
from langchain_workingmem.models import RecallHit, RecallResult, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Ranked
    from langchain_workingmem.recall.windows import Page, Position

LEAST = 100  # tokens of the shortest excerpt of a hit; half of it for another message of its window
_SHARE = 4  # a hit takes at most this fraction of a budget, another message of its window half of that

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


def result_of(query: Query, hits: Sequence[Found], page: Page, chunk_tokens: int) -> RecallResult:
    """Build the result: hits with their windows, cut to the budget, and all shown messages in order of time."""
    if query.max_tokens is None:
        return in_windows(hits, page, page.rows)
    sizes, cut = sized(query, hits, page)
    hits = [hit for hit in hits if hit.position in sizes]
    return in_windows(hits, page, _shortened(query, hits, page, cut, chunk_tokens) if cut else page.rows, sizes)


def in_windows(
    hits: Sequence[Found], page: Page, rows: Mapping[Position, StoredMessage], sizes: Collection[Position] | None = None
) -> RecallResult:
    """Build the result of hits with their windows; `rows` hold excerpts of the messages, `sizes` say which of a window stay."""
    windows = list[tuple["Found", list["Position"], list["Position"]]]()
    said = {at: (row.record["type"], str(row.record["data"]["content"])) for at, row in page.rows.items()}
    known = {said[hit.position]: hit.position for hit in hits}  # no message beside a hit repeats another hit
    for hit in hits:
        front, back = ([at for at in side if known.get(said[at], at) == at] for side in page.windows[hit.position])
        if sizes is not None:
            front, back = ([*takewhile(sizes.__contains__, side)] for side in (front, back))
        windows.append((hit, front[::-1], back))
    runs = [[*front, hit.position, *back] for hit, front, back in windows]
    shown = dict.fromkeys(position for run in runs for position in run)
    ordered = [rows[at] for _, at in sorted([(page.rows[at].record["at"], at) for at in shown])]
    pairs = {pair for run in runs for pair in pairwise(run)}
    pairs |= {(at, after) for at in shown if (after := (at[0], at[1] + STRIDE)) in shown}
    adjacent = frozenset((rows[one].thread_id, one[1], other[1]) for one, other in pairs)
    titles = {row.thread_id: page.titles[position[0]] for position, row in rows.items() if position in shown}

    def make() -> list[RecallHit]:
        return [as_hit(hit, page, front, back, rows) for hit, front, back in windows]

    return RecallResult.of(ordered, titles, adjacent, make)


def as_hit(
    hit: Found,
    page: Page,
    front: Iterable[Position],
    back: Iterable[Position],
    rows: Mapping[Position, StoredMessage],
) -> RecallHit:
    """Build a hit with its window, in order; `rows` hold excerpts of its messages."""
    row = rows[hit.position]
    return RecallHit(
        message=row.message,
        thread_id=row.thread_id,
        score=hit.ranked.score if hit.relevance is None else hit.relevance,
        similarity=min(hit.ranked.similarity, 1.0),  # long vectors by "ip" have more
        before=[rows[position].message for position in front],
        after=[rows[position].message for position in back],
        stored_at=row.stored_at,
        thread_title=page.titles[hit.position[0]],
    )


# ---------------------------------------------------------------------- the budget


def sized(query: Query, hits: Sequence[Found], page: Page) -> tuple[dict[Position, int], dict[Position, int]]:
    """Return how many tokens each message may take, until nothing more fits: a hit, then what stands beside it, then the next hit.

    And those of it that are too long.

    A hit takes at most a quarter of the budget, a message beside one an eighth. A turn takes all hits first, cut as short as may
    be, then what stands beside them, and shares out what is left: three parts for a hit, one for another message.
    """
    most, left = most_of(query), query.max_tokens or 0
    shares = {hit.position: _WEIGHT for hit in hits}
    sizes, needs, lengths = dict["Position", int](), dict["Position", int](), dict["Position", int]()

    def take(*run: Position) -> None:
        nonlocal left
        for at in run:
            if at not in sizes:
                parts = 1 if at in shares else 2
                lengths[at] = count_tokens(row_text(page.rows[at]))
                whole = min(lengths[at], most // parts)
                size = min(whole, LEAST // parts) if query.turn else whole
                if size > left:
                    return
                sizes[at], needs[at], left = size, whole - size, left - size

    for run in [hits] if query.turn else [[hit] for hit in hits]:
        for hit in run:
            take(hit.position)
        for side in (side for hit in run if hit.position in sizes for side in page.windows[hit.position]):
            take(*side)
    total = sum(shares.get(at, 1) for at in sizes)
    for at in sorted(needs, key=lambda at: needs[at] / shares.get(at, 1)):  # what one does not need goes to the others
        given = min(needs[at], left * shares.get(at, 1) // total)
        sizes[at], left, total = sizes[at] + given, left - given, total - shares.get(at, 1)
    return sizes, {at: size for at, size in sizes.items() if size < lengths[at]}


def _shortened(
    query: Query, hits: Sequence[Found], page: Page, cuts: Mapping[Position, int], chunk_tokens: int
) -> dict[Position, StoredMessage]:
    """Cut what is too long: a hit around its best chunk; a message before it keeps its end, one after it its beginning."""
    rows = dict(page.rows)
    by_position = {hit.position: hit for hit in hits}
    fronts = {position for hit in hits for position in page.windows[hit.position][0]}
    words = [word for word in words_of(query.text) if len(word) > _COMMON or not word.isascii()]
    for position, size in cuts.items():
        row = rows[position]
        start = end = len(row_text(row)) if position in fronts else 0
        if hit := by_position.get(position):
            start, end = chunk_span(words_in_row(row), chunk_tokens, hit.ranked.chunk)
        copy = cut(row.message, row.thread_id, size, (start, end), words)
        rows[position] = row.with_message(copy)
    return rows


def cut(
    message: BaseMessage, thread_id: str, tokens: int, span: tuple[int, int], words: Collection[str]
) -> BaseMessage:
    """Copy a message with an excerpt around a span of its text; the copy is marked, so that it is never saved."""
    lean = with_calls(message) if isinstance(message, AIMessage) else message
    data = {"thread_id": thread_id, "excerpt": True}
    names = attachments(message)
    text = excerpt(message_text(message), tokens - count_tokens("\n".join(names)), *span, words)
    return as_shown(lean, data, "\n".join([text, *(name for name in names if name not in text)]))
