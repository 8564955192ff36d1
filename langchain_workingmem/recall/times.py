"""Times that a question names ("on 7 May", "last spring", "two weeks ago"), and how near to them a message was stored.

`time_phrases` finds phrases that may name a time, and dateparser reads them. Own code adds what dateparser does not
know: how long a time is, and in English seasons, weekends, ranges ("between March and May") and distances from a date
("the week before 3 June").
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from langchain_workingmem._redis.codec import to_micros
from langchain_workingmem._redis.queries import MAX_QUERY_CHARACTERS
from langchain_workingmem._text.chunks import keep_ends
from langchain_workingmem._text.time_phrases import NUMERIC, UNSPACED, may_name_a_time, phrases_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from langchain_workingmem._text.time_phrases import Phrase

MOST_READ, MOST_READS = 200, 10  # characters and phrases of one question that the library reads, each for about 1 ms
# what odd text might raise in the library, or a time at the end of the calendar: recall then goes without the time
_DEFECTS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_FADE = 10 * 86_400_000_000  # microseconds
_LONG_AGO = timedelta(days=183)  # from which on the coming date of that name is nearer
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}  # first months, of the northern half
_HOLIDAYS = {"christmas": "december 25", "halloween": "october 31"}


class Span(NamedTuple):
    """A time in microseconds, from `since` until just before `until`."""

    since: int
    until: int


class _Period(NamedTuple):
    """A span on the clock of the place where the question is asked."""

    since: datetime
    until: datetime


def named_times(question: str, now: datetime) -> list[Span]:
    """Return the past times that a question names. `now` is aware, and its zone is that of the question.

    Of a long question the beginning and the end count, as in the search.
    """
    text = keep_ends(question, MAX_QUERY_CHARACTERS)
    if not may_name_a_time(text):
        return []
    here = now.replace(tzinfo=None)
    past = [period for period in _Reader(here).periods(text) if period.since < min(here, period.until)]
    return [*dict.fromkeys(Span(*(to_micros(at.replace(tzinfo=now.tzinfo)) for at in period)) for period in past)]


# ---------------------------------------------------------------------- from phrases to times


@dataclass(slots=True)
class _Reader:
    """Reads the times of one question."""

    now: datetime
    left: int = MOST_READ
    reads: int = MOST_READS

    def periods(self, text: str) -> Iterator[_Period]:
        """Read all dates and phrases of a question."""
        for match in NUMERIC.finditer(text):
            # an American and a European read 3/4/2023 differently, so both days count
            for order in ("MDY", "DMY") if match["either"] else (match.lastgroup or "",):
                if period := self.read(match[0], "en", order=order):
                    yield period
        for match in UNSPACED.finditer(text):
            if period := self.read(match[0], match.lastgroup or ""):
                yield period
        taken: list[range] = []
        for phrase in phrases_of(text):
            at = range(phrase.words[0].start, phrase.words[-1].end)
            is_free = all(at.stop <= other.start or other.stop <= at.start for other in taken)
            if is_free and (period := self.period(phrase)):
                taken.append(at)
                yield period

    def period(self, phrase: Phrase) -> _Period | None:
        """Read a phrase."""
        try:
            period = self._period(phrase)
        except (OverflowError, ValueError):  # a season or a weekend before the first year or after the last
            return None
        if period is None or (self.now - period.until > _LONG_AGO and phrase.is_open()):
            return None  # "the trip begins on 24 March", said in January
        return _Period(period.since, max(period.until, self.now)) if phrase.is_since() else period

    def _period(self, phrase: Phrase) -> _Period | None:
        language = phrase.language
        match phrase.kind:
            case "between":
                first, last = phrase.split("c")
                end = self.read(last.without("g").said(), language)
                start = end and self.read(first.without("gq").said(), language, base=end.until)
                return _Period(start.since, end.until) if start and end else None
            case "distant":
                return self._distant(phrase)
            case "lately":
                number = phrase.word("nd")  # "this may last a week" is no time
                return None if number == "1" else self._lately(f"{number} {phrase.word('uh')}", language)
            case "unit" if language == "en" and phrase.is_trailing():
                return self._lately(f"1 {phrase.word('u')}", language)
            case "this":
                this = self.read("today" if phrase.word("v") else phrase.said(), language)
                return this and _Period(this.since, self.now)
            case "season":
                return self._season(phrase)
            case "weekend":
                # on a Sunday, the last weekend is that of the week before
                monday = self.now - _DAY * self.now.weekday()
                saturday = self.read("saturday", language, base=monday if phrase.has("last", "past") else None)
                return saturday and _Period(saturday.since, saturday.until + _DAY)
            case "holiday":
                return self.read(f"{_HOLIDAYS[phrase.word('f')]} {phrase.word('y')}", language)
            case "month" | "weekday" | "year":
                return self.read(phrase.word("mkwy"), language)
            case _:
                wide, plain = phrase.said(wide=language != "en"), phrase.said()
                return self.read(wide, language) or (self.read(plain, language) if plain != wide else None)

    def _distant(self, phrase: Phrase) -> _Period | None:
        """Read "two weeks before 3 June"; without a number, all of the week, or weekend, before."""
        distance, date = phrase.split("z")
        day = self.read(date.said(), phrase.language)
        if day is None:
            return None
        unit, number = distance.word("ue"), distance.word("nd")
        is_before = phrase.word("z") == "before"
        if unit == "weekend":
            days = (day.since.weekday() - 5) % 7 or 7  # since the Saturday before
            saturday = day.since - _DAY * (days if is_before else days - 7)
            return _Period(saturday, saturday + 2 * _DAY)
        base = day.since if is_before or number else day.until
        text = f"{number or 1} {unit} ago" if is_before else f"in {number or 1} {unit}"
        there = self.read(text, phrase.language, base=base, exact=not number)
        return there if there is None or number else _Period(*sorted((base, there.since)))

    def _lately(self, text: str, language: str) -> _Period | None:
        """Read "the last two weeks", which end now."""
        start = self.read(f"{text} ago", language, exact=True)
        return start and _Period(start.since, self.now)

    def _season(self, phrase: Phrase) -> _Period | None:
        """Read a season: that of the year, else the last one that has begun, or with "last" has ended."""
        month, year = _SEASONS[phrase.word("s")], phrase.word("y")
        begin = datetime(int(year) if year else self.now.year, month, 1)
        ended = phrase.has("last", "past", "previous") and not year
        while not year and (_months_after(begin, 3) if ended else begin) > self.now:
            begin = begin.replace(year=begin.year - 1)
        return _Period(begin, _months_after(begin, 3))

    def read(
        self, text: str, language: str, *, base: datetime | None = None, order: str = "", exact: bool = False
    ) -> _Period | None:
        """Let the library read a phrase, and give the time its width, or none if it is to be `exact`."""
        if len(text) > self.left or not self.reads:
            return None
        self.left -= len(text)
        self.reads -= 1
        base = base or self.now
        day = base.replace(hour=0, minute=0, second=0, microsecond=0)
        with suppress(*_DEFECTS):
            at, unit = _parse(text, language, day, order)
            if unit == "time":  # an hour or a minute, so the time of the day counts
                at, unit = _parse(text, language, base, order)
            elif at is not None and exact:
                at += base - day
            if at is not None:
                return _Period(at, at) if exact else _with_width(at, unit)
        return None


@lru_cache(1024)  # people say "yesterday", and a phrase means the same all day long
def _parse(text: str, language: str, base: datetime, order: str) -> tuple[datetime | None, str]:
    """Let the library read a phrase: 1 to 2 ms."""
    from dateparser.date import DateDataParser

    settings = {
        "RELATIVE_BASE": base,
        "TIMEZONE": "UTC",  # not that of the machine; `base` has none
        "RETURN_AS_TIMEZONE_AWARE": False,
        "PREFER_DATES_FROM": "past",
        "PREFER_DAY_OF_MONTH": "first",
        "PREFER_MONTH_OF_YEAR": "first",
        "RETURN_TIME_AS_PERIOD": True,
        "PARSERS": ["relative-time", "absolute-time"],
        **({"DATE_ORDER": order} if order else {}),
    }
    found = DateDataParser(languages=[language], settings=settings).get_date_data(text)
    return found.date_obj, found.period or ""


def _with_width(at: datetime, unit: str) -> _Period | None:
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    match unit:
        case "time":
            return _Period(at - _HOUR, at + _HOUR)
        case "day" | "part_of_day":
            return _Period(day, day + _DAY)
        case "week":
            monday = day - _DAY * day.weekday()
            return _Period(monday, monday + 7 * _DAY)
        case "month" | "year":
            first = day.replace(day=1) if unit == "month" else day.replace(month=1, day=1)
            return _Period(first, _months_after(first, 1 if unit == "month" else 12))
    return None


def _months_after(first: datetime, months: int) -> datetime:
    years, month = divmod(first.month - 1 + months, 12)
    return first.replace(year=first.year + years, month=month + 1)


# ---------------------------------------------------------------------- near to a time


def nearness(created_at: int, spans: Collection[Span]) -> float:
    """Return 1 in a span, less around it, and 0 far from all; `created_at` in microseconds.

    People tell of a time more often after it than before, and of a long one for longer. So it falls to 0 over ten days
    and half the length of the span after it, and twice as fast before it. On the 116 such questions of LoCoMo's
    development half, it is .87 for the evidence and .21 for other messages.
    """
    nearest = 0.0
    for since, until in spans:
        fade = _FADE + (until - since) / 2
        away = (created_at - until + 1) / fade if created_at >= until else max(0, since - created_at) / fade * 2
        nearest = max(nearest, 1 - away)
    return nearest
