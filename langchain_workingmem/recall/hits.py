"""Which fetched messages are hits: repetitions are dropped, and what lies in the window of a better one. Pure functions."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from langchain_workingmem._redis.queries import words_of
from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem._text.rendering import words_in
from langchain_workingmem._text.said import structured_text
from langchain_workingmem._text.searched import asks
from langchain_workingmem.recall.query import TIMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_workingmem.models import StoredMessage
    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Ranked

Position: TypeAlias = tuple[bytes, int]  # of a message: thread (encoded as in keys), sequence number

SHOWN_OF_QUESTION = 2  # hits of a text with a question mark that a turn shows, however far they are
LEAST = 100  # tokens of the shortest excerpt of a hit; half of it for another message of its window
_SHARE = 4  # a hit takes at most this fraction of a budget, another message of its window half of that


class Page(Protocol):
    """What was read around candidates, as `windows.py` reads it."""

    titles: dict[bytes, str | None]
    rows: dict[Position, StoredMessage]
    windows: dict[Position, tuple[list[Position], list[Position]]]  # what was said before and after, the nearest first


def words_in_row(row: StoredMessage) -> str:
    """Return the text of a row by which it is found; most rows tell it without making the message."""
    data = row.record["data"]
    content = data["content"]
    if isinstance(content, str) and not data.get("tool_calls"):
        return content
    return structured_text(row.message) if row.record["kind"] == "a" else words_in(row.message)


class Found(NamedTuple):
    """A hit before its window and its size are known."""

    ranked: Ranked
    position: Position
    relevance: float | None = None  # as a reranker has it


# ---------------------------------------------------------------------- which messages


def is_crowded(ranked: Sequence[Ranked]) -> bool:
    """Tell whether some candidates may not count as hits, so that more of them are needed."""
    return len({*_text_keys(ranked)}) < len(ranked)


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
    seen: set[object] = set()
    left = inf if query.max_tokens is None else query.max_tokens * (TIMES if query.reranked else 1)
    most = LEAST if query.turn else most_of(query)
    for one, key in zip(ranked, _text_keys(ranked), strict=True):
        if len(seen) >= query.top_k:
            break
        if key not in seen:
            size = min(one.tokens, most)
            if size > left:
                continue
            seen.add(key)
            left -= size
        taken.append(one)
    return taken


def hits_of(ranked: Iterable[Ranked], fetched: Page) -> list[Found]:
    """Return all hits, the best first; of messages with the same text only the newest counts.

    What is gone is left out, and so is a vector of another text: that of an expired thread of the same id.
    """
    found: dict[object, Found] = {}
    for one in ranked:
        row = fetched.rows.get(one[:2])
        if row is None or count_tokens(text := words_in_row(row)) != one.tokens:
            continue
        hit = Found(one, one[:2])
        known = found.setdefault(key := (row.record["type"], text.strip()), hit)
        if fetched.rows[known.position].record["at"] < row.record["at"]:
            found[key] = hit._replace(ranked=known.ranked)
    return list(found.values())


def near_enough(query: Query, hits: Sequence[Found], fetched: Page, floor: float | None) -> list[Found]:
    """Return the hits that a turn shows: each for itself, and of a text that asks something at least the best two.

    A hit is near enough to the question, or of a time that the question names, or has a number of it, such as that of an order.
    """
    numbers = {word for word in words_of(query.text, whole=True) if any(map(str.isdigit, word))}

    def is_shown(hit: Found) -> bool:
        one = hit.ranked
        if floor is None or one.similarity >= floor or one.timely:
            return True
        return one.worded and not numbers.isdisjoint(words_of(words_in_row(fetched.rows[hit.position])))

    asked = SHOWN_OF_QUESTION if asks(query.text) else 0
    return [hit for at, hit in enumerate(hits) if at < asked or is_shown(hit)]
