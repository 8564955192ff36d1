"""Checks of options and arguments that all modules share: each raises `OptionError` with a remedy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias, TypeVar, get_args
from zoneinfo import ZoneInfo, available_timezones

from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem._text.values import shown
from langchain_workingmem.errors import OptionError

Role: TypeAlias = Literal["human", "ai", "tool", "function", "chat"]
T = TypeVar("T")

LARGEST = 2**53  # the largest integer that Lua holds exactly
WIDEST = 10_000  # messages on one side of a hit
_ALIASES = {"user": "human", "assistant": "ai"}


def one_of(value: T, choices: Iterable[object], name: str) -> T:
    """Check that a value is one of the choices."""
    if value not in (allowed := tuple(choices)):
        raise OptionError(f"{name}={shown(value)}", remedy=f"use one of {', '.join(map(repr, allowed))}")
    return value


def at_least(value: object, least: int, name: str, most: int = LARGEST) -> int:
    """Check that a value is an int, and neither smaller nor larger."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise OptionError(f"{name}={shown(value)}", remedy=f"use an int of at least {least}")
    if value > most:
        raise OptionError(f"{name}={shown(value)}", remedy=f"use at most {most}")
    return value


def check_type(value: T, kind: type[Any], name: str) -> T:
    """Check the type of a value."""
    if not isinstance(value, kind):
        raise wrong_type(value, name, f"pass {kind.__name__}(...)")
    return value


def wrong_type(value: object, name: str, remedy: str) -> OptionError:
    """Return the error for a value of another type than wanted."""
    return OptionError(f"{name} is of type {type(value).__name__}", remedy=remedy)


def check_list(value: object, name: str, wanted: str) -> None:
    """Raise `OptionError` for what is no list, or other iterable of several things."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise wrong_type(value, name, f"pass {wanted}")


def check_time(value: object, name: str) -> int:
    """Return a timedelta of at least a millisecond in milliseconds."""
    if not isinstance(value, timedelta) or value < timedelta(milliseconds=1):
        remedy = "use a positive timedelta of at least a millisecond, such as timedelta(seconds=10)"
        raise OptionError(f"{name}={shown(value)}", remedy=remedy)
    return value // timedelta(milliseconds=1)


def check_ttl(ttl: timedelta | None) -> int | None:
    """Return a time to live in milliseconds; None: what stays."""
    return None if ttl is None else check_time(ttl, "ttl")


def check_now(now: object) -> datetime:
    """Check that a time is a datetime with a time zone."""
    if not isinstance(now, datetime) or now.utcoffset() is None:
        raise OptionError(f"now={shown(now)}", remedy="pass a datetime with a time zone, such as datetime.now(UTC)")
    return now


def check_zone(name: object, where: str) -> ZoneInfo | None:
    """Return the time zone of an IANA name, None for "UTC", which needs no database."""
    if name == "UTC":
        return None
    remedy = "use an IANA name such as 'Europe/Berlin', or 'UTC'"
    if not isinstance(name, str):
        raise wrong_type(name, where, remedy)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # no such name; an impossible one; that of a folder
        if not available_timezones():
            remedy = "run `pip install tzdata`: this system has no database of time zones"
        raise OptionError(f"{where} is {shown(name)}", remedy=remedy) from None


def as_tuple(values: Any, name: str, what: str = "values") -> tuple[Any, ...]:
    """Return a list as a tuple; a str is none."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise OptionError(f"{name}={shown(values)}", remedy=f"use a list of {what}")
    return tuple(values)


def check_keys(keys: Any, name: str) -> tuple[str, ...]:
    """Check keys of metadata that filters may name: none may begin as operators do."""
    names = as_tuple(keys, name, "metadata keys")
    for key in names:
        if not is_utf8(key) or key.startswith("$"):
            remedy = "use strings of valid Unicode that do not begin with $"
            raise OptionError(f"{name} names {shown(key)}", remedy=remedy)
    return names


def is_named(key: str, keys: Collection[str]) -> bool:
    """Tell whether a key of a filter is one of these keys of metadata, or a path with dots from one."""
    return key in keys or key.partition(".")[0] in keys


def check_roles(roles: Sequence[str] | str, name: str = "roles") -> tuple[str, ...]:
    """Return message types; "user" and "assistant" are understood."""
    names = (roles,) if isinstance(roles, str) else as_tuple(roles, name)
    if not names:
        raise OptionError(f"{name} is empty", remedy="name at least one role, or leave it out")
    return tuple(_ALIASES.get(one_of(role, (*get_args(Role), *_ALIASES), name), role) for role in names)


def check_range(message_range: int | tuple[int, int]) -> tuple[int, int]:
    """Return the numbers of messages before and after a hit."""
    is_int = isinstance(message_range, int)
    pair = (message_range, message_range) if is_int else as_tuple(message_range, "message_range")
    if len(pair) != 2:
        raise OptionError(f"message_range={shown(message_range)}", remedy="use an int, or a pair (before, after)")
    before, after = (at_least(number, 0, "message_range", WIDEST) for number in pair)
    return before, after


def check_share(value: object, name: str) -> float:
    """Check that a value is a number from 0 to 1."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise OptionError(f"{name}={shown(value)}", remedy="use a number from 0 to 1")
    return value
