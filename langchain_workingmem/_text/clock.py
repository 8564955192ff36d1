"""Times as the store has them, in microseconds since 1970 UTC, and as prompts and pictures show them, in the zone of a user."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from langchain_workingmem._text.nesting import shown
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

EPOCH = datetime.fromtimestamp(0, UTC)
LATEST = (datetime(2250, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(
    microseconds=1
)  # a double must hold later times exactly


def to_micros(at: datetime) -> int:
    """Convert a time; a naive one is local time."""
    if not isinstance(at, datetime):
        raise OptionError(f"{shown(at)} is of type {type(at).__name__}", remedy="pass a datetime")
    try:
        at = at.astimezone(UTC)
    except (OverflowError, ValueError):  # near the first or last possible time there is no conversion
        at = at.replace(tzinfo=UTC)
    return (at - EPOCH) // timedelta(microseconds=1)  # integers: a float would round


def aware(at: datetime | None, zone: ZoneInfo | None = None, *, last: bool = False) -> datetime | None:
    """Return the time; one without a zone is in `zone`, as the times that the model is shown. None: UTC.

    Of a time that comes twice, when clocks are set back, the first one counts, or the `last`.
    """
    if at is None or at.tzinfo is not None:
        return at
    return (max if last else min)((at.replace(tzinfo=zone or UTC, fold=fold) for fold in (0, 1)), key=to_micros)


def from_micros(micros: int | bytes) -> datetime:
    """Convert microseconds to a time in UTC."""
    return EPOCH + timedelta(0, 0, int(micros))  # positional arguments take a third less time


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
