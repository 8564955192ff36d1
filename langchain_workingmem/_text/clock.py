"""Times as the store has them: microseconds since 1970, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from langchain_workingmem._text.nesting import shown
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_EPOCH = datetime.fromtimestamp(0, UTC)


def to_micros(at: datetime) -> int:
    """Convert a time; a naive one is local time."""
    if not isinstance(at, datetime):
        raise OptionError(f"{shown(at)} is of type {type(at).__name__}", remedy="pass a datetime")
    try:
        at = at.astimezone(UTC)
    except (OverflowError, ValueError):  # near the first or last possible time there is no conversion
        at = at.replace(tzinfo=UTC)
    return (at - _EPOCH) // timedelta(microseconds=1)  # integers: a float would round


def aware(at: datetime | None, zone: ZoneInfo | None = None, *, last: bool = False) -> datetime | None:
    """Return the time; one without a zone is in `zone`, as the times that the model is shown. None: UTC.

    Of a time that comes twice, when clocks are set back, the first one counts, or the `last`.
    """
    if at is None or at.tzinfo is not None:
        return at
    return (max if last else min)((at.replace(tzinfo=zone or UTC, fold=fold) for fold in (0, 1)), key=to_micros)


def from_micros(micros: int | bytes) -> datetime:
    """Convert microseconds to a time in UTC."""
    return _EPOCH + timedelta(0, 0, int(micros))  # positional arguments take a third less time
