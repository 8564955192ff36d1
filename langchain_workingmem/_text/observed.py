"""Observations as lines of text, grouped by day: escaped, dated, without invisible characters."""

from __future__ import annotations

import hashlib
from datetime import UTC
from functools import cached_property, lru_cache
from html import escape
from typing import TYPE_CHECKING, Protocol, TypeVar

from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem._text.unicode import visible

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from zoneinfo import ZoneInfo

SIGNS = {"high": "!", "normal": "-", "low": "~"}
_MOST_LINES = 8192  # that are kept: several logs of 40,000 tokens


class Observed(Protocol):
    """What is rendered of an `Observation`, whose module is in a higher layer."""

    @property
    def id(self) -> str:
        """Its id in the log."""

    @property
    def text(self) -> str:
        """One line."""

    @property
    def said_at(self) -> datetime:
        """The time of its first source."""

    @property
    def priority(self) -> str:
        """A key of SIGNS."""


def in_zone(at: datetime, zone: ZoneInfo | None) -> datetime:
    """Return a time in a zone, None: UTC."""
    try:
        return at.astimezone(zone or UTC)
    except (OverflowError, ValueError):  # near the first or last possible time
        return at


def to_minute(at: datetime, zone: ZoneInfo | None = None) -> str:
    """Write a time, in UTC as in `2026-11-20 17:47`; in half the time of `isoformat`, as a turn writes dozens."""
    at = at if at.tzinfo is (zone or UTC) else in_zone(at, zone)
    return f"{at.year:04}-{at.month:02}-{at.day:02} {at.hour:02}:{at.minute:02}"


def zone_name(zone: ZoneInfo | None) -> str:
    """Return the name of a zone, None: UTC."""
    return zone.key if zone else "UTC"


# Rendering a line takes 3 to 6 us, and each turn shows the whole log. The key is all that a line shows, so the cache cannot
# confuse two logs, and it needs no care when an observation changes.
@lru_cache(maxsize=_MOST_LINES)
def _rendered(said_at: datetime, priority: str, text: str) -> tuple[str, str, int]:
    """Return the day, the line and its tokens."""
    day, time = to_minute(said_at).split(" ")
    line = f"{SIGNS[priority]} {time} {escape(' '.join(visible(text).split()), quote=False)}"
    return day, line, count_tokens(line) + 1


@lru_cache(maxsize=_MOST_LINES)
def short_id(id: str) -> str:
    """Return the id by which a model names a line: in the log of a user, whose ids name threads, a part of its digest."""
    return hashlib.sha1(id.encode(), usedforsecurity=False).hexdigest()[:6] if ":" in id else id


def _text_of(observations: Iterable[Observed], *, with_ids: bool) -> str:
    lines: list[str] = []
    last = None
    for one in observations:
        text = f"[{short_id(one.id)}] {one.text}" if with_ids else one.text
        day, line, _ = _rendered(one.said_at, one.priority, text)
        if day != last:
            lines.append(day)
            last = day
        lines.append(line)
    return "\n".join(lines)


_T = TypeVar("_T", bound=Observed)


class Kept(tuple[_T, ...]):  # noqa: SLOT001 - cached_property keeps its values in a dict
    """Observations that are shown again and again, and are rendered once: a log of 40,000 tokens takes 0.5 ms."""

    @cached_property
    def text(self) -> str:
        """What `observed_text` returns."""
        return _text_of(self, with_ids=False)

    @cached_property
    def text_with_ids(self) -> str:
        """The same with the short id of each line."""
        return _text_of(self, with_ids=True)

    @cached_property
    def tokens(self) -> int:
        """What `tokens_of` returns."""
        return sum([_rendered(one.said_at, one.priority, one.text)[2] for one in self])


def observed_text(observations: Iterable[Observed], *, with_ids: bool = False) -> str:
    """Render observations in the order given: a line for the day when it changes, and a line for each, with its time.

    One more at the end changes nothing before it. `with_ids` also shows the id by which a model may name a line.
    """
    kept = observations if isinstance(observations, Kept) else Kept(observations)
    return kept.text_with_ids if with_ids else kept.text


def tokens_of(observations: Iterable[Observed]) -> int:
    """Estimate the tokens of observations in a prompt: the sum over their lines, without those of the days."""
    return (observations if isinstance(observations, Kept) else Kept(observations)).tokens
