"""Values from outside: JSON, how deep it may be and how it is shown; times, as in the store and as in prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson

from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from pydantic import ValidationError

MAX_DEPTH = 100  # levels, which Python can read back at any depth of its own stack; more are a mistake or an attack
WIDEST = 200  # characters of a value that an error shows
TOO_DEEP = f"it is nested deeper than {MAX_DEPTH} levels"


def check_depth(text: str) -> str:
    """Return a JSON text, or raise `ValueError` when it is nested too deep."""
    if text.count("[") + text.count("{") > MAX_DEPTH:  # a cheap first check
        try:
            check_nesting(json.loads(text))
        except RecursionError as error:
            raise ValueError(TOO_DEEP) from error
    return text


def parse_json(text: str) -> Any:
    """Return what a JSON text holds; None when it is not JSON, or nested too deep."""
    try:
        return json.loads(check_depth(text))
    except ValueError:
        return None


def check_nesting(value: object, depth: int = 0) -> None:
    """Raise `ValueError` for nesting of dicts and lists that is too deep or endless, and for keys that are not str."""
    if isinstance(value, Mapping | list | tuple):
        if depth == MAX_DEPTH:
            raise ValueError(TOO_DEEP)
        for key in value if isinstance(value, Mapping) else ():
            if not isinstance(key, str):
                msg = f"key {shown(key)} is no str"
                raise ValueError(msg)  # noqa: TRY004 - as json.dumps does
        for item in value.values() if isinstance(value, Mapping) else value:
            check_nesting(item, depth + 1)


def shown(value: object) -> str:
    """Write any value into an error: cut to WIDEST characters, or by its type if it has no repr."""
    try:
        text = repr(value[: WIDEST + 1] if isinstance(value, str) else value)  # a long text costs no more
    except (ValueError, RecursionError):  # such as an int with more digits than Python prints
        text = f"of type {type(value).__name__}"
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 4]} ..."


def canonical(value: Any) -> bytes | None:
    """Write a value as JSON, the same in whichever order its keys are; None if it is nested too deep."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    except TypeError:  # a lone surrogate, a large int
        try:
            return json.dumps(value, sort_keys=True, default=str).encode()
        except (TypeError, ValueError, RecursionError):
            return None


def problems_in(error: ValidationError) -> list[tuple[str, str]]:
    """Return each field that Pydantic refuses, with dots for nested ones, and what is wrong with it."""
    details = error.errors(include_url=False, include_input=False)
    return [(".".join(map(str, detail["loc"])), detail["msg"].removeprefix("Value error, ")) for detail in details]


# ---------------------------------------------------------------------- times, in microseconds since 1970 UTC

EPOCH = datetime.fromtimestamp(0, UTC)
LATEST = (datetime(2250, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(0, 0, 1)  # a double must hold later times exactly


def to_micros(moment: datetime) -> int:
    """Convert a time; a naive one is local time."""
    if not isinstance(moment, datetime):
        raise OptionError(f"{shown(moment)} is of type {type(moment).__name__}", remedy="pass a datetime")
    try:
        moment = moment.astimezone(UTC)
    except (OverflowError, ValueError):  # near the first or last possible time there is no conversion
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(microseconds=1)  # integers: a float would round


def aware(moment: datetime | None, zone: ZoneInfo | None = None, *, last: bool = False) -> datetime | None:
    """Return the time, in `zone` if it has none (None: UTC). Of one that comes twice, the first or the `last`."""
    if moment is None or moment.tzinfo is not None:
        return moment
    return (max if last else min)((moment.replace(tzinfo=zone or UTC, fold=fold) for fold in (0, 1)), key=to_micros)


def from_micros(micros: int | bytes) -> datetime:
    """Convert microseconds to a time in UTC."""
    return EPOCH + timedelta(0, 0, int(micros))  # positional arguments take a third less time


def in_zone(moment: datetime, zone: ZoneInfo | None) -> datetime:
    """Return a time in a zone, None: UTC."""
    try:
        return moment.astimezone(zone or UTC)
    except (OverflowError, ValueError):  # near the first or last possible time
        return moment


def to_minute(moment: datetime | int, zone: ZoneInfo | None = None) -> str:
    """Write a time, or microseconds, in UTC as in `2026-11-20 17:47`."""
    if isinstance(moment, int):
        moment = EPOCH + timedelta(0, 0, moment)
    moment = moment if moment.tzinfo is (zone or UTC) else in_zone(moment, zone)
    return moment.isoformat(" ", "minutes")[:16]


def zone_name(zone: ZoneInfo | None) -> str:
    """Return the name of a zone, None: UTC."""
    return zone.key if zone else "UTC"
