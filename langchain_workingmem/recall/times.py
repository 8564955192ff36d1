"""Times that a question names ("on 7 May", "last spring", "two weeks ago"), and how near to them a message was stored.

`time_phrases` finds the phrases, in which each word has a role and a value. What remains is the calendar: a library that reads
dates took .3 s to import and 1 ms a phrase, read few of the ranges and distances, and "2023年" as the year 1.
"""

from __future__ import annotations

import re
from calendar import monthrange
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from langchain_workingmem._redis.codec import to_micros
from langchain_workingmem._redis.queries import MAX_QUERY_CHARACTERS
from langchain_workingmem._text.chunks import keep_ends
from langchain_workingmem._text.time_phrases import NUMERIC, UNSPACED, may_name_a_time, phrases_of
from langchain_workingmem._text.time_words import DAY, HOUR, MONTH, SAID, UNITS, WEEK, YEAR

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import Any

    import numpy as np

    from langchain_workingmem._text.time_phrases import Phrase

MOST_TIMES = 10  # of one question
_FADE = 10 * 86_400_000_000  # microseconds
_LONG_AGO = timedelta(days=183)  # from which on the coming date of that name is nearer
_DAY, _HOUR, _MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
_SATURDAY = 5
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}  # first months, of the northern half
_HOLIDAYS = {"christmas": (12, 25), "halloween": (10, 31)}
_NUMBER = re.compile(r"\d+")


class Span(NamedTuple):
    """A time in microseconds, from `since` until just before `until`."""

    since: int
    until: int


class _Period(NamedTuple):
    """A span on the clock of the place where the question is asked, where a day may have 23 or 25 hours."""

    since: datetime
    until: datetime


def named_times(question: str, now: datetime) -> list[Span]:
    """Return the past times that a question names. `now` is aware, and its zone is that of the question.

    Of a long question the beginning and the end count, as in the search.
    """
    text = keep_ends(question, MAX_QUERY_CHARACTERS)
    if not may_name_a_time(text):
        return []
    spans = (Span(*map(to_micros, period)) for period in _periods(text, now) if period is not None)
    asked = to_micros(now)
    return [*dict.fromkeys(islice((one for one in spans if one.since < min(asked, one.until)), MOST_TIMES))]


# ---------------------------------------------------------------------- from phrases to times


def _periods(text: str, now: datetime) -> Iterator[_Period | None]:
    """Read all dates and phrases of a question; None for what is no time of the calendar."""
    for match in NUMERIC.finditer(text):
        first, second, third = map(int, _NUMBER.findall(match[0]))
        if match["YMD"]:
            yield _date(now, first, second, third)
            continue
        if match["either"]:  # an American and a European read 3/4/2023 differently, so both days count
            yield _date(now, third, first, second)
        yield _date(now, third, second, first)
    for match in UNSPACED.finditer(text):
        if match["said"] or match["n"]:
            number, unit = SAID[match["said"]] if match["said"] else (int(match["n"]), UNITS[match["unit"]])
            with suppress(OverflowError, ValueError):
                yield _wide(now, unit, -number)
        else:
            parts = match["y"], match["m"] or match["month"], match["d"] or match["day"]
            yield _date(now, *(int(part) if part else None for part in parts))
    taken: list[range] = []
    for phrase in phrases_of(text):
        at = range(phrase.words[0].start, phrase.words[-1].end)
        is_free = all(at.stop <= other.start or other.stop <= at.start for other in taken)
        if is_free and (period := _named(phrase, now)):
            taken.append(at)
            yield period


def _named(phrase: Phrase, now: datetime) -> _Period | None:
    """Read a phrase that is meant as a past time."""
    period = None
    with suppress(OverflowError, ValueError):  # before the first year or after the last
        period = _read(phrase, now)
    if period is None or (now - period.until > _LONG_AGO and phrase.is_open()):
        return None  # "the trip begins on 24 March", said in January
    return _Period(period.since, max(period.until, now)) if phrase.is_since() else period


def _read(phrase: Phrase, now: datetime) -> _Period | None:  # noqa: PLR0912 - a case for each kind
    unit = phrase.value("u") or DAY
    match phrase.kind:
        case "between":
            first, last = phrase.split("c")
            end = _date_of(last, now)
            start = end and _date_of(first, end.until)
            return _Period(start.since, end.until) if start and end else None
        case "distant":
            return _distant(phrase, now)
        case "ago" if phrase.word("h"):
            return _Period(*(_passed(_ago(phrase, now), by) for by in (-_HOUR, _HOUR)))
        case "ago":
            return _wide(_ago(phrase, now), unit)
        case "lately":  # "this may last a week" is no time
            return None if phrase.value("nd") == 1 else _Period(_ago(phrase, now), now)
        case "unit" if phrase.language == "en" and phrase.is_trailing():
            return _Period(_later(now, unit, -1), now)
        case "unit":  # "the last day" is that of something
            return None if unit == DAY else _wide(now, unit, -1)
        case "this":
            return None if phrase.value("u") == DAY else _Period(_wide(now, unit).since, now)
        case "day":
            is_earlier = phrase.word("z") or [one.text for one in phrase.before[-1:]] == ["avant"]
            return _wide(now, DAY, -(phrase.value("t") or 1) - bool(is_earlier))
        case "weekday":
            return _wide(_last(now, (phrase.value("w") or 1) - 1), DAY)
        case "season":
            return _season(phrase, now)
        case "weekend":  # on a Sunday, the last weekend is that of the week before
            saturday = _last(_wide(now, WEEK).since if phrase.has("last", "past") else now, _SATURDAY)
            return _Period(saturday, saturday + 2 * _DAY)
        case "holiday":
            return _date(now, phrase.value("y"), *_HOLIDAYS[phrase.word("f")])
        case _:
            return _date_of(phrase, now)


def _date_of(phrase: Phrase, now: datetime) -> _Period | None:
    return _date(now, phrase.value("y"), phrase.value("mk"), phrase.value("do"))


def _date(now: datetime, year: int | None, month: int | None, day: int | None) -> _Period | None:
    """Return a year, a month or a day; without a year the last one that has begun. None if the calendar does not have it."""
    if month is None:
        return _wide(datetime(year, 1, 1, tzinfo=now.tzinfo), YEAR) if year else None
    for each in (year,) if year else range(now.year, max(0, now.year - 8), -1):  # 29 February
        with suppress(ValueError):
            first = datetime(each, month, day or 1, tzinfo=now.tzinfo)
            if year or first <= now:
                return _wide(first, DAY if day else MONTH)
    return None


def _distant(phrase: Phrase, now: datetime) -> _Period | None:
    """Read "two weeks before 3 June"; without a number, all of the week, or weekend, before."""
    distance, date = phrase.split("z")
    day = _date_of(date, now)
    if day is None:
        return None
    unit, number = distance.value("u"), distance.value("nd")
    is_before = phrase.word("z") == "before"
    if unit is None:
        saturday = _last(day.since if is_before else day.since + 7 * _DAY, _SATURDAY)
        return _Period(saturday, saturday + 2 * _DAY)
    base = day.since if is_before or number else day.until
    there = _later(base, unit, -(number or 1) if is_before else number or 1)
    return _wide(there, unit) if number else _Period(*sorted((base, there)))


def _season(phrase: Phrase, now: datetime) -> _Period:
    """Read a season: that of the year, else the last one that has begun, or with "last" has ended."""
    month, year = _SEASONS[phrase.word("s")], phrase.value("y")
    begin = datetime(year or now.year, month, 1, tzinfo=now.tzinfo)
    ended = phrase.has("last", "past", "previous") and not year
    while not year and (_later(begin, MONTH, 3) if ended else begin) > now:
        begin = begin.replace(year=begin.year - 1)
    return _Period(begin, _later(begin, MONTH, 3))


def _ago(phrase: Phrase, now: datetime) -> datetime:
    """Read "two weeks" as the moment so long before now."""
    number = phrase.value("nd") or 1
    if hours := phrase.value("h"):
        return _passed(now, -number * (_HOUR if hours == HOUR else _MINUTE))
    return _later(now, phrase.value("u") or DAY, -number)


def _passed(at: datetime, by: timedelta) -> datetime:
    """Return the time when so many hours have passed: on the nights of daylight saving, clocks show one more or less."""
    return (at.astimezone(UTC) + by).astimezone(at.tzinfo)


def _later(at: datetime, unit: int, number: int) -> datetime:
    """Return the same time so many units later."""
    if unit in (DAY, WEEK):
        return at + number * (_DAY if unit == DAY else 7 * _DAY)
    years, month = divmod(at.month - 1 + number * (1 if unit == MONTH else 12), 12)
    first = at.replace(year=at.year + years, month=month + 1, day=1)
    return first + _DAY * min(at.day - 1, monthrange(first.year, first.month)[1] - 1)


def _last(before: datetime, weekday: int) -> datetime:
    """Return the last such weekday before a day; Monday is 0."""
    return _wide(before, DAY).since - _DAY * ((before.weekday() - weekday) % 7 or 7)


def _wide(at: datetime, unit: int, later: int = 0) -> _Period:
    """Return the whole day, week, month or year of a time, or of the time so many of them later."""
    at = _later(at, unit, later).replace(hour=0, minute=0, second=0, microsecond=0)
    back = {DAY: 0, WEEK: at.weekday(), MONTH: at.day - 1, YEAR: at.timetuple().tm_yday - 1}[unit]
    return _Period(at - back * _DAY, _later(at - back * _DAY, unit, 1))


# ---------------------------------------------------------------------- near to a time


def nearness(created_at: Sequence[int] | np.ndarray[Any, Any], spans: Collection[Span]) -> np.ndarray[Any, Any]:
    """Return for each time 1 in a span, less around it, and 0 far from all; `created_at` in microseconds.

    People tell of a time more often after it than before, and of a long one for longer. So it falls to 0 over ten days
    and half the length of the span after it, and twice as fast before it. On the 116 such questions of LoCoMo's
    development half, it is .87 for the evidence and .21 for other messages.
    """
    import numpy as np

    created_at, nearest = np.asarray(created_at), np.zeros(len(created_at))
    for since, until in spans:
        fade = _FADE + (until - since) / 2
        away = np.maximum(np.maximum(0, created_at - until + 1), 2 * np.maximum(0, since - created_at)) / fade
        nearest = np.maximum(nearest, 1 - away)
    return nearest
