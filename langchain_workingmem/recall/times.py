"""Past times that a question names, in numbers and in plain English, such as "last week" or "in May 2023"."""

from __future__ import annotations

import re
from calendar import monthrange
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from langchain_workingmem._text.values import to_micros
from langchain_workingmem.recall.ranking import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    _Period: TypeAlias = tuple[datetime, datetime]  # on the clock of the place where the question is asked
    When: TypeAlias = Callable[[str, datetime], Iterable[_Period]]

MOST_TIMES = 10  # of one question
_DAY = timedelta(days=1)


def _number(words: str) -> dict[str, int]:
    return {word: number for number, word in enumerate(words.split(), 1)}


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_NAMES = _number("january february march april may june july august september october november december")
_MONTHS = {name[:length]: number for name, number in _NAMES.items() for length in (3, 4, len(name))}
_WEEKDAYS = _number("monday tuesday wednesday thursday friday saturday sunday")
_NUMBERS = _number("one two three four five six seven eight nine ten") | {"a": 1, "an": 1, "a couple of": 2, "a few": 3}
_YEAR, _TH = r"(?:19|20)\d\d", r"(?:st|nd|rd|th)?"
_COUNT = rf"\d{{1,3}}|{_any(_NUMBERS)}"
_NUMERIC = re.compile(
    rf"(?<![\w./-])(?:(?P<ymd>{_YEAR}([-/.])\d\d?\2\d\d?)|(?P<dmy>\d\d?([-/.])\d\d?\4{_YEAR}))(?![\w/-])"
)
_PHRASE = re.compile(
    rf"\b(?P<since>since\s+)?(?:the\s+)?(?P<next>next\s+|coming\s+)?(?:"
    rf"(?P<ago>{_COUNT})\s+(?P<ago_unit>day|week|month|year)s?\s+ago"
    rf"|(?P<within>(?:in|over|during|within)\s+the\s+)?(?:last|past)\s+(?P<few>(?!an?\s)(?:{_COUNT}))?\s*(?P<unit>day|week|month|year)s?"
    rf"|this\s+(?P<part>week|month|year)|(?P<yesterday>day\s+before\s+yesterday|yesterday|last\s+night)"
    rf"|(?:last|past|on)\s+(?P<weekday>{_any(_WEEKDAYS)})\b(?!,?\s+(?:\d|{_any(_MONTHS)}))"
    rf"|(?:(?P<day>\d\d?){_TH}\s+(?:of\s+)?)?(?P<month>{_any(_MONTHS)})\b\.?(?:\s+(?P<after>\d\d?)(?![\d:]){_TH})?(?:,?\s+(?P<year>{_YEAR}))?"
    rf"|(?:in|during|of|from|until|till|around|by|(?<=since\s))\s*(?:the\s+year\s+)?(?P<alone>{_YEAR})(?![-/.]\d)"
    r")\b",
    re.IGNORECASE,
)
_HINTS = ("19", "20", "ago", "day", "last", "past", "this", *(name[:3] for name in _NAMES))  # each phrase has one
_BEFORE_MONTH = re.compile(
    r"(?i)\b(?:in|since|till|until|by|during|around|early|late|mid|last|past|from|of|this(?!\s+(?-i:may|mar|march)$))[\s-]+\w+$"
)


def named_times(question: str, now: datetime, when: When | None = None) -> list[Span]:
    """Return the past times that a question names, in the zone of `now`, and those that `RecallOptions.when` finds."""
    periods = list["_Period | None"]()
    for match in _NUMERIC.finditer(question):
        first, second, third = map(int, re.findall(r"\d+", match[0]))
        if match["ymd"]:
            periods.append(_date(now, first, second, third))
        else:
            periods.append(_date(now, third, second, first))
            if match[4] != ".":  # an American and a European read 3/4/2023 differently, so both days count
                periods.append(_date(now, third, first, second))
    for match in _PHRASE.finditer(question) if any(map(question.lower().__contains__, _HINTS)) else ():  # saves 15 us
        with suppress(OverflowError, ValueError, KeyError):  # no year of ours; a letter that `re` takes for another one
            if not match["next"]:
                periods.append(_read(match, now))
    periods += islice((when and when(question, now)) or (), MOST_TIMES)
    spans = [Span(*map(to_micros, period)) for period in periods if period is not None]
    return [*dict.fromkeys(span for span in spans if span.since < min(to_micros(now), span.until))][:MOST_TIMES]


def _read(match: re.Match[str], now: datetime) -> _Period | None:
    groups = {name: (value or "").lower() for name, value in match.groupdict().items()}
    number = groups["ago"] or groups["few"] or "one"
    count = int(number) if number.isdecimal() else _NUMBERS[number]
    period = None
    if unit := groups["ago_unit"]:
        period = _unit_around(_later(now, unit, -count), unit)
    elif unit := groups["unit"]:
        if groups["few"] or groups["within"]:
            period = _later(now, unit, -count), now
        elif unit != "day":  # "the last day" is that of something
            period = _unit_around(_later(now, unit, -1), unit)
    elif groups["part"]:
        period = _unit_around(now, groups["part"])[0], now
    elif groups["yesterday"]:
        period = _unit_around(now - _DAY * (2 if "before" in groups["yesterday"] else 1), "day")
    elif groups["weekday"]:
        days = (now.weekday() + 1 - _WEEKDAYS[groups["weekday"]]) % 7 or 7
        period = _unit_around(now - days * _DAY, "day")
    elif groups["alone"]:
        period = _date(now, int(groups["alone"]))
    else:
        day, year, (start, end) = groups["day"] or groups["after"], groups["year"], match.span("month")
        if day or year or _BEFORE_MONTH.search(match.string, max(0, start - 12), end):
            period = _date(now, int(year) if year else None, _MONTHS[groups["month"]], int(day) if day else None)
    return period and (period[0], max(period[1], now) if groups["since"] else period[1])


def _date(now: datetime, year: int | None, month: int | None = None, day: int | None = None) -> _Period | None:
    """Return a year, a month or a day; without a year the last one that has begun. None if there is no such day."""
    unit = "year" if month is None else "month" if day is None else "day"
    for tried_year in (year,) if year else range(now.year, max(0, now.year - 8), -1):  # 29 February
        with suppress(ValueError):
            start = datetime(tried_year, 1 if month is None else month, 1 if day is None else day, tzinfo=now.tzinfo)
            if year or start <= now:
                return _unit_around(start, unit)
    return None


def _later(moment: datetime, unit: str, number: int) -> datetime:
    if unit in ("day", "week"):
        return moment + number * (_DAY if unit == "day" else 7 * _DAY)
    years, month = divmod(moment.month - 1 + number * (1 if unit == "month" else 12), 12)
    first = moment.replace(year=moment.year + years, month=month + 1, day=1)
    return first + _DAY * (min(moment.day, monthrange(first.year, first.month)[1]) - 1)


def _unit_around(moment: datetime, unit: str) -> _Period:
    moment = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    days = {"day": 0, "week": moment.weekday(), "month": moment.day - 1, "year": moment.timetuple().tm_yday - 1}[unit]
    return moment - days * _DAY, _later(moment - days * _DAY, unit, 1)
