"""Observations as lines of text, grouped by day: escaped, dated, without invisible characters."""

from __future__ import annotations

from datetime import UTC
from functools import cached_property, lru_cache
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar

from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem._text.unicode import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

SIGNS = {"high": "!", "normal": "-", "low": "~"}
_MOST_LINES = 8192  # that are kept: several logs of 40,000 tokens
_LONGEST_TITLE = 80


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

    @property
    def sources(self) -> Sequence[tuple[str, str]]:
        """Thread and id of each message behind it."""


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
def _rendered(said_at: datetime, priority: str, text: str, zone: ZoneInfo | None) -> tuple[str, str, int]:
    """Return the day, the line and its tokens."""
    day, time = to_minute(said_at, zone).split(" ")
    line = f"{SIGNS[priority]} {time} {escape(' '.join(visible(text).split()), quote=False)}"
    return day, line, count_tokens(line) + 1


class _Names:
    """The names of the conversations of a user's log, in the order in which its lines come from them."""

    def __init__(self, titles: Mapping[str, str | None]) -> None:
        self._titles = titles
        self._found: dict[str, str] = {}
        self._taken: set[str] = set()

    def beside_day(self, thread_id: str) -> str:
        """Return what stands beside a day whose lines come from a thread; "" until they come from a second one.

        Only the lines before decide it, so that one more at the end changes nothing before it.
        """
        known = len(self._found)
        name = self._found.get(thread_id) or self._found.setdefault(thread_id, self._name_of(thread_id))
        if len(self._found) == 1:
            return ""
        first = f"; the lines above: {next(iter(self._found.values()))}" if known == 1 else ""
        return f" ({name}{first})"

    def _name_of(self, thread_id: str) -> str:
        letters, number = "", len(self._found) + 1  # no digits: recalled messages have "conversation 1"
        while number:
            number, rest = divmod(number - 1, 26)
            letters = f"{chr(ord('A') + rest)}{letters}"
        title = " ".join(visible(self._titles.get(thread_id) or "").split())
        if not title:
            return f"conversation {letters}"
        title = title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 1]}…"
        name = f'conversation "{escape(title, quote=False)}"'
        name = f"{name} ({letters})" if name in self._taken else name
        self._taken.add(name)
        return name


_T = TypeVar("_T", bound=Observed)


class Kept(tuple[_T, ...]):  # noqa: SLOT001 - cached_property keeps its values in a dict
    """Observations that are shown again and again, and are rendered once: a log of 40,000 tokens takes 0.5 ms."""

    titles: Mapping[str, str | None] = MappingProxyType({})  # of the threads, in the log of a user
    zone: ZoneInfo | None = None  # in which it was rendered last

    _text: str | None = None

    def text(self, zone: ZoneInfo | None = None) -> str:
        """Return what `observed_text` does."""
        if self._text is None or self.zone is not zone:
            self.zone, self._text = zone, self._rendered_in(zone)
        return self._text

    def _rendered_in(self, zone: ZoneInfo | None) -> str:
        lines: list[str] = []
        last, names, thread = None, _Names(self.titles), ""
        for one in self:
            day, line, _ = _rendered(one.said_at, one.priority, one.text, zone)
            if self.titles:
                thread = one.sources[0][0]
            if (day, thread) != last:
                lines.append(f"{day}{names.beside_day(thread)}" if thread else day)
                last = day, thread
            lines.append(line)
        return "\n".join(lines)

    @cached_property
    def tokens(self) -> int:
        """What `tokens_of` returns."""
        return sum([_rendered(one.said_at, one.priority, one.text, self.zone)[2] for one in self])


def observed_text(observations: Iterable[Observed], zone: ZoneInfo | None = None) -> str:
    """Render observations in the order given: a line for the day when it changes, and a line for each, with its time.

    Where the log of a user tells of several conversations, their names stand beside the days. One more observation at the end
    changes nothing before it. Times are in `zone`, None: UTC.
    """
    kept = observations if isinstance(observations, Kept) else Kept(observations)
    return kept.text(zone)


def tokens_of(observations: Iterable[Observed]) -> int:
    """Estimate the tokens of observations in a prompt: the sum over their lines, without those of the days."""
    return (observations if isinstance(observations, Kept) else Kept(observations)).tokens
