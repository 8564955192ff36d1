"""What a record shows of itself, as plain text. `html` and `terminal` draw it."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, TypeAlias

from langchain_workingmem._text.nesting import as_json as as_json  # noqa: PLC0414 - for those who draw
from langchain_workingmem._text.observed import to_minute, zone_name
from langchain_workingmem.display.safe import cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo


BLOCK = {"characters": 10_000, "lines": 200}  # the most of a system block, a diff, working memory or a log
WIDE = frozenset({"message", "observation", "value"})  # columns of text, which may take many lines

Tone: TypeAlias = Literal["plain", "quiet", "added", "removed"]
# A record knows no user, so its times are UTC. Terminal and browser have one who looks: they say in which zone.
SHOWN_IN: ContextVar[ZoneInfo | None] = ContextVar("SHOWN_IN", default=None)
_TONES: dict[str, Tone] = {"+": "added", "-": "removed", "@": "quiet"}  # by the first character of a line of a diff


# plain classes: every program imports this module, and a dataclass takes longer to make than the module to load


class Table:
    """Rows: cells by column, and None, or how full the bar of a highlighted row is (0 to 1)."""

    def __init__(self, rows: Sequence[Row], caption: str = "") -> None:
        self.columns = tuple(rows[0][0]) if rows else ()
        self.rows, self.caption = rows, caption


class Lines:
    """Text, line by line."""

    def __init__(self, lines: Sequence[tuple[Tone, str]], caption: str = "") -> None:
        self.lines, self.caption = lines, caption


class Picture:
    """A title, a few facts, and the parts below them. Facts that are None are left out."""

    def __init__(self, title: str, facts: Mapping[str, str | None], parts: Sequence[Part] = ()) -> None:
        self.title, self.parts = title, parts
        self.facts = {name: value for name, value in facts.items() if value is not None}


Row: TypeAlias = "tuple[Mapping[str, str], float | None]"
Part: TypeAlias = Table | Lines | Picture


def label(text: str) -> str:
    """Shorten an id, a title or a name."""
    return cut(text, 80)


def excerpt(text: str) -> str:
    """Shorten a message."""
    return cut(text, 600, 12)


@contextmanager
def shown_in(zone: ZoneInfo | None) -> Iterator[None]:
    """Write the times of pictures in a zone, None: UTC."""
    token = SHOWN_IN.set(zone)
    try:
        yield
    finally:
        SHOWN_IN.reset(token)


def clock() -> str:
    """Return the name of the zone in which times are written."""
    return zone_name(SHOWN_IN.get())


def minutes(at: datetime) -> str:
    """Write a time to the minute, without its zone, which is `clock`."""
    return to_minute(at, SHOWN_IN.get())


def counted(number: int, noun: str) -> str:
    """Write a number with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def block(text: str, caption: str = "") -> Lines:
    """Show a text as it is."""
    return Lines([("plain", line) for line in cut(text.rstrip("\n"), **BLOCK).split("\n")], caption)


def changed(diff: Sequence[str]) -> Lines:
    """Show the lines of a unified diff."""
    most = BLOCK["lines"]
    lines = [(_TONES.get(line[:1], "plain"), cut(line, BLOCK["characters"])) for line in diff[:most]]
    if len(diff) > most:
        lines.append(("quiet", f"… [{len(diff) - most:,} more lines]"))
    return Lines(lines)
