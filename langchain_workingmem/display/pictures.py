"""What a record shows of itself, as plain text that is safe to show. `html` and `terminal` draw it."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from langchain_workingmem._text.unicode import picture, replace_hidden
from langchain_workingmem._text.values import to_minute, zone_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

    Row: TypeAlias = Mapping[str, str]  # cells by column

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
        self.text, self.caption = whole(text.rstrip("\n")), caption


class Picture:
    """A title, a few facts, and the parts below them. Facts that are None are left out."""

    def __init__(self, title: str, facts: Mapping[str, str | None], *parts: Table | Block) -> None:
        self.title, self.parts = title, parts
        self.facts = {name: value for name, value in facts.items() if value is not None}


def clean(text: str) -> str:
    """Show visible signs for characters that control a terminal, change the reading direction or are invisible."""
    return replace_hidden(text.replace("\r\n", "\n"), _sign)


def _sign(char: str) -> str:
    return picture(char) if char <= "\xff" else f"\\u{ord(char):04x}"


def cut(text: str, characters: int, lines: int = 1) -> str:
    """Cut a long text, between two words if a space is near, and state how many characters are missing."""
    kept = "\n".join(text.split("\n", lines)[:lines])
    if len(kept) > characters:
        head, _, tail = kept[:characters].rpartition(" ")
        kept = head if len(tail) < characters / 5 else kept[:characters]
    missing = len(text) - len(kept)
    return f"{kept} … [{missing:,} more]" if missing else text


label = partial(cut, characters=80)  # an id, a title or a name
whole = partial(cut, characters=10_000, lines=200)  # what is shortened only if it is very long, such as a system block
excerpt = partial(cut, characters=600, lines=12)  # a message


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


def minutes(time: datetime) -> str:
    """Write a time to the minute, without its zone, which is `clock`."""
    return to_minute(time, SHOWN_IN.get())


def counted(number: int, noun: str) -> str:
    """Write a number with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
