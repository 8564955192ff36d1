"""Days in the block of working memory, which tell since when each value holds. Pure functions."""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from langchain_workingmem._redis.codec import from_micros
from langchain_workingmem._text.observed import to_minute
from langchain_workingmem._text.unicode import visible

if TYPE_CHECKING:
    from collections.abc import Sequence
    from zoneinfo import ZoneInfo

    Starts: TypeAlias = tuple[tuple[int, int], ...]  # as in `WorkingMemoryState.starts`

RULE = (
    "Days such as <2026-03-02> are added to it: what follows one holds since that day, up to the next. "
    "<05-17> is of the same year, <older> before all days that stand here."
)
SHARE = 10  # the days take at most one part of so many of a block
_LEAST = 400  # characters that they may take in any case
_OLDER = "<older>"  # no text of a user can look like a day, because its < is escaped


class _Day(NamedTuple):
    at: int  # where in the text what was said on that day begins
    day: str


@lru_cache(64)
def with_days(text: str, starts: Starts, zone: ZoneInfo | None, size: int) -> str:
    """Return a document, escaped, with a day in front of what was said on another day than the part before it.

    `size` is the length of the block without days. Where days of all values would take more than their share of it, the oldest are
    shown as `<older>`: the newest days tell the most.
    """
    days: list[_Day] = []
    for at, said in starts:
        day = to_minute(from_micros(said), zone)[:10]
        if not days or days[-1].day != day:
            days.append(_Day(at, day))
    room = max(_LEAST, size // SHARE) - len(RULE) - 1
    known = sorted({one.day for one in days})
    # the fewer days are shown, the shorter the signs are
    first = bisect_left(range(len(known)), -room, key=lambda at: -_length(_signs(days, known[at])))
    signs = _signs(days, known[first] if first < len(known) else "9999-12-31")
    ends = [*(at for at, _ in signs), len(text)]
    data = "".join(f"{sign}{_shown(text[at:end])}" for (_, sign), (at, end) in zip(signs, pairwise(ends), strict=True))
    return f"{_shown(text[: ends[0]])}{data}"


def _shown(text: str) -> str:
    return escape(visible(text), quote=False)


def _length(signs: Sequence[tuple[int, str]]) -> int:
    return sum(len(sign) for _, sign in signs)


def _signs(days: Sequence[_Day], first: str) -> list[tuple[int, str]]:
    """Return where a mark stands, and the mark; days before `first` are not named."""
    signs: list[tuple[int, str]] = []
    year, before = "", ""
    for at, day in days:
        named = day if day >= first else _OLDER
        if named == before:
            continue
        before = named
        sign = named if named is _OLDER else f"<{day[5:] if day[:4] == year else day}>"
        year = year if named is _OLDER else day[:4]
        signs.append((at, sign))
    return signs
