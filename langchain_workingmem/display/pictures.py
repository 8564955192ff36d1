"""What a record shows of itself, as plain text. `html` and `terminal` draw it."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

from langchain_workingmem._text.values import to_minute, zone_name
from langchain_workingmem.display.safe import cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

    Row: TypeAlias = Mapping[str, str]  # cells by column

BLOCK = {"characters": 10_000, "lines": 200}  # the most of a system block, a diff or working memory
WIDE = frozenset({"message"})  # columns of text, which may take many lines

# A record knows no user, so its times are UTC. Terminal and browser have one who looks: they say in which zone.
SHOWN_IN: ContextVar[ZoneInfo | None] = ContextVar("SHOWN_IN", default=None)


# plain classes: every program imports this module, and a dataclass takes longer to make than the module to load


class Table:
    """Rows of cells."""

    def __init__(self, rows: Sequence[Row], caption: str = "") -> None:
        self.columns = tuple(rows[0]) if rows else ()
        self.rows, self.caption = rows, caption


class Block:
    """A text as it is."""

    def __init__(self, text: str, caption: str = "") -> None:
        self.text, self.caption = cut(text.rstrip("\n"), **BLOCK), caption


class Picture:
    """A title, a few facts, and the parts below them. Facts that are None are left out."""

    def __init__(self, title: str, facts: Mapping[str, str | None], *parts: Table | Block) -> None:
        self.title, self.parts = title, parts
        self.facts = {name: value for name, value in facts.items() if value is not None}


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
