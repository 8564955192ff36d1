"""Days in the block of working memory, which tell since when each value holds. Pure functions."""

from __future__ import annotations

from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, TypeAlias

from langchain_workingmem._redis.codec import from_micros
from langchain_workingmem._text.observed import to_minute
from langchain_workingmem._text.unicode import visible

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    Starts: TypeAlias = tuple[tuple[int, int], ...]  # as in `WorkingMemoryState.starts`

RULE = "Days such as <2026-03-02> are added to it: what follows one holds since that day, up to the next."


@lru_cache(64)
def with_days(text: str, starts: Starts, zone: ZoneInfo | None) -> str:
    """Return a document, escaped, with a day in front of what was said on another day than the part before it.

    No text of a user can look like a day, because its < is escaped.
    """
    parts: list[str] = []
    end, before = 0, ""
    for at, said in starts:
        day = to_minute(from_micros(said), zone)[:10]
        if day != before:
            parts += [_shown(text[end:at]), f"<{day}>"]
            end, before = at, day
    return "".join([*parts, _shown(text[end:])])


def _shown(text: str) -> str:
    return escape(visible(text), quote=False)
