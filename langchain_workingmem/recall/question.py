"""What is asked: the checked arguments of a search, and the authors and times that a question names.

In a chat between persons, "What is Caroline's dog called?" is answered by Caroline, who wrote "my dog". So a name that
a question has as messages do is left out of words and vector, and the messages of its author get a bonus.
"""

from __future__ import annotations

import re
from calendar import monthrange
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_workingmem._redis.filters import DECLARED, Filter, check_declared, labels_of
from langchain_workingmem._redis.keys import FROM_WHERE, check_id, decode
from langchain_workingmem._redis.queries import MAX_QUERY_CHARACTERS, build_filter, distinct_words
from langchain_workingmem._redis.state import Recent
from langchain_workingmem._text.unicode import UNSPACED, WORD, keep_ends, to_utf8
from langchain_workingmem._text.values import in_zone, to_micros
from langchain_workingmem.checks import (
    as_tuple,
    at_least,
    check_now,
    check_range,
    check_roles,
    check_share,
    is_named,
    one_of,
)
from langchain_workingmem.errors import IdError, OptionError
from langchain_workingmem.options import MOST_HITS, RecallArguments, Scope
from langchain_workingmem.recall.ranking import CANDIDATES, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Unpack
    from zoneinfo import ZoneInfo

    from langchain_workingmem.options import RecallOptions

    _Period: TypeAlias = tuple[datetime, datetime]  # on the clock of the place where the question is asked
    When: TypeAlias = Callable[[str, datetime], Iterable[_Period]]

TIMES = 4  # a reranker is given so many times the hits, or the tokens of a budget, that come back
LEAST_RERANKED, MOST_RERANKED = 20, 100  # hits that it is given, unless `top_k` is larger
LEAST = 100  # tokens of the shortest excerpt of a hit; half of it for another message of its window
SHARE = 4  # a hit takes at most this fraction of a budget, another message of its window half of that


def checked_filter(options: RecallOptions, metadata: Any, thread_filters: Collection[str]) -> Filter:
    """Return a filter of metadata; `OptionError` for a wrong operator, and for a key that neither option declares."""
    wanted = Filter.of(metadata, "metadata")
    check_declared(wanted.keys, (*options.filterable, *thread_filters), DECLARED)
    return wanted


def check_argument_names(arguments: Mapping[str, Any]) -> None:
    """Raise `TypeError`, as Python does, for an argument that recall does not take."""
    if unknown := arguments.keys() - RecallArguments.__optional_keys__:
        known = ", ".join(sorted(RecallArguments.__optional_keys__))
        msg = f"unexpected keyword arguments {sorted(unknown)}: beside those in the signature, use some of {known}"
        raise TypeError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A checked search of messages."""

    text: str
    thread_id: str | None
    user_id: str | None
    scope: Scope
    top_k: int  # hits that come back
    sought: int  # hits that are looked for: `top_k`, or more of them for a reranker to choose from
    reranked: bool
    window: tuple[int, int]  # messages before and after a hit
    threshold: float | None
    max_tokens: int | None  # of the whole result
    most_of_a_hit: int  # tokens of these that one hit takes at most
    where: Mapping[str, Any]  # filters besides the scope, as `build_filter` takes them
    threads: Filter | None = None  # of their metadata; None: any thread
    unsure: Filter | None = None  # what the index leaves to be checked of messages
    exclude: frozenset[str]  # message ids
    exclude_in: str | None = None  # their thread; None: any thread
    now: datetime  # aware; days and weeks of the question are those of its zone
    timezone: str | None = None  # which the call names, instead of that of the memory
    turn: bool = False  # for a prompt
    before: str = ""  # what it follows up

    @classmethod
    def of(
        cls,
        options: RecallOptions,
        text: str,
        *,
        thread_id: str | None = None,
        user_id: str | None = None,
        thread_filters: Collection[str] = (),
        turn: bool = False,
        zone: ZoneInfo | None = None,
        **arguments: Unpack[RecallArguments],
    ) -> Query:
        """Check the arguments of a search, or of a `turn`; those that are None or missing come from the options.

        A turn has both limits of the options; `max_tokens` of a search is its only one. Days are of `zone` or `now`.
        """
        check_argument_names(arguments)
        if not isinstance(text, str):
            raise OptionError(f"query is of type {type(text).__name__}", remedy="pass a str")
        given: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
        given |= {name: CHECKS[name](value, name) for name, value in given.items() if name in CHECKS}
        for name, id in (("thread_id", thread_id), ("user_id", user_id)):
            if id is not None:
                check_id(id, name)
        scope, max_tokens = given.get("scope", options.scope), given.get("max_tokens")
        if thread_id is None and (scope == "thread" or user_id is None):
            missing = "thread_id" if scope == "thread" else "user_id"
            raise IdError(f"recall over a {scope} needs a {missing}", remedy=FROM_WHERE.format(missing))
        where: dict[str, Any] = {name: given[name] for name in ("since", "until", "roles") if name in given}
        of_threads = unsure = None
        if "metadata" in given:
            wanted = checked_filter(options, given["metadata"], thread_filters)
            of_threads, unsure = wanted.apart(thread_filters)
            if mixed := sorted(key for key in unsure.keys if is_named(key, thread_filters)):
                raise OptionError(
                    f"metadata: one condition names {mixed} of threads and keys of messages",
                    remedy="join what you want of threads and of messages by $and, or search twice",
                )
            where["metadata"], is_decided = unsure.condition(
                lambda names, value: labels_of(names, value) if names[0] in options.filterable else None
            )
            of_threads, unsure = of_threads if of_threads.parts else None, None if is_decided else unsure
        reranked = options.reranker is not None
        now = given.get("now") or datetime.now(UTC)
        many = MOST_RERANKED if reranked else CANDIDATES
        top_k = given.get("top_k", options.top_k if turn or max_tokens is None else many)
        budget = options.max_tokens if turn and max_tokens is None else max_tokens
        return cls(
            text=text,
            thread_id=thread_id,
            user_id=user_id,
            scope=scope,
            top_k=top_k,
            sought=max(top_k, min(max(LEAST_RERANKED, TIMES * top_k), MOST_RERANKED)) if reranked else top_k,
            reranked=reranked,
            window=given.get("message_range", options.message_range),
            threshold=given.get("threshold", options.threshold),
            max_tokens=budget,
            most_of_a_hit=max(LEAST, (budget or 0) // SHARE),
            turn=turn,
            now=now if zone is None else in_zone(now, zone),
            exclude=given.get("exclude_message_ids", frozenset()),
            where=where,
            threads=of_threads,
            unsure=unsure,
        )

    def filter(self, times: Collection[Span] = ()) -> str:
        """Build the filter, always with the owner; with times from the first to the last of them."""
        where = dict(self.where)
        if times:
            since, until = min(one.since for one in times), max(one.until for one in times) - 1
            where["since"] = max(since, where.get("since", since))
            where["until"] = min(until, where.get("until", until))
        return build_filter(user_id=self.user_id, thread_id=self.thread_id if self.scope == "thread" else None, **where)


def _checked_ids(ids: Any, name: str) -> frozenset[str]:
    ids = (ids,) if isinstance(ids, str) else as_tuple(ids, name, "message ids")
    return frozenset(check_id(id, "message id") for id in ids)


# what each argument has to be, and becomes
CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "scope": lambda value, name: one_of(value, ("user", "thread"), name),
    "top_k": lambda value, name: at_least(value, 1, name, MOST_HITS),
    "max_tokens": lambda value, name: at_least(value, 1, name),
    "message_range": lambda value, _: check_range(value),
    "threshold": check_share,
    "now": lambda value, _: check_now(value),
    "since": lambda value, _: to_micros(value),
    "until": lambda value, _: to_micros(value),
    "roles": lambda value, _: check_roles(value),
    "exclude_message_ids": _checked_ids,
}


_RUN = re.compile(f"[{UNSPACED}]{{2,}}")  # one character may be part of any word
# `\b`, but for words that are written without spaces; and "'s" belongs to a name
_NAME = rf"(?<![^\W{UNSPACED}])({{}})(?:['\u2019]s)?(?![^\W{UNSPACED}])"
_COUPLE, _MOST_AUTHORS = 2, 200  # authors of a user; among more, as in a public channel, names tell nothing
_USERS = 10_000  # whose authors are remembered


# ---------------------------------------------------------------------- authors


class Authors(Recent[str, frozenset[str]]):
    """The authors of each user, as tags, from the messages that searches have returned; "" is a user without a name."""

    def __init__(self) -> None:
        super().__init__(_USERS)

    def note(self, user_id: str, seen: set[str]) -> frozenset[str]:
        """Remember authors of a user, and return all that are known."""
        return self.change(user_id, lambda known: frozenset(seen).union(known or ()) or None) or frozenset()


@dataclass(frozen=True, slots=True)
class Terms:
    """What is searched for: a question without the authors whom it names, and the times that it names."""

    authors: frozenset[str]  # whom it names by the whole or the first name, as tags
    text: str  # to embed
    words: list[str]  # for a hybrid search
    times: list[Span]

    @classmethod
    def of(cls, options: RecallOptions, query: Query, known: Collection[str]) -> Terms:
        """Divide a question; `known` are the authors of the user, as tags."""
        question = keep_ends(query.text, MAX_QUERY_CHARACTERS)
        text = embedded = keep_ends(f"{query.before}\n{query.text}", MAX_QUERY_CHARACTERS) if query.before else question
        names, meant = frozenset(filter(None, known)), frozenset[str]()
        if 0 < len(names) <= _MOST_AUTHORS:
            pattern, bearers = _name_pattern(names)
            meant = meant.union(*(bearers.get(_key(found[1]), ()) for found in pattern.finditer(text)))
            others = pattern.sub(" ", text)
            text = others if WORD.search(others) else text
            embedded = text if len(names) <= _COUPLE else embedded  # as it was asked: that finds .05 more there
        words = distinct_words(text, whole=True) if options.search == "hybrid" else []
        return cls(meant, to_utf8(embedded), words, named_times(question, query.now, options.when))


def _key(name: str) -> str:
    return "".join(WORD.findall(name.lower()))


@lru_cache(1024)
def _name_pattern(authors: frozenset[str]) -> tuple[re.Pattern[str], dict[str, set[str]]]:
    """Return what finds the names of authors in a text, whole names before first ones, and who bears each."""
    bearers: dict[str, set[str]] = {}
    patterns: dict[str, None] = {}
    for author in authors:
        words = WORD.findall(decode(author))
        for name in (words, words[:1]) if words else ():
            bearers.setdefault(_key(" ".join(name)), set()).add(author)
            patterns[(r"\W*" if _RUN.search(name[0]) else r"\W+").join(map(re.escape, name))] = None
    either = "|".join(sorted(patterns, key=len, reverse=True)) or r"(?!)"
    return re.compile(_NAME.format(either), re.IGNORECASE), bearers


# ---------------------------------------------------------------------- times

MOST_TIMES = 10  # of one question
_DAY = timedelta(days=1)


def _places(words: str) -> dict[str, int]:
    return {word: at for at, word in enumerate(words.split(), 1)}


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_NAMES = _places("january february march april may june july august september october november december")
_MONTHS = {name[:length]: at for name, at in _NAMES.items() for length in (3, 4, len(name))}
_WEEKDAYS = _places("monday tuesday wednesday thursday friday saturday sunday")
_NUMBERS = _places("one two three four five six seven eight nine ten") | {"a": 1, "an": 1, "a couple of": 2, "a few": 3}
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
_BEFORE_MONTH = re.compile(
    r"\b(?:in|since|till|until|by|during|around|early|late|mid|last|past|this|from|of)[\s-]+$", re.IGNORECASE
)


def named_times(question: str, now: datetime, when: When | None = None) -> list[Span]:
    """Return the past times that a question names, in the zone of `now`, and those that `RecallOptions.when` finds."""
    found = list["_Period | None"]()
    for match in _NUMERIC.finditer(question):
        first, second, third = map(int, re.findall(r"\d+", match[0]))
        if match["ymd"]:
            found.append(_date(now, first, second, third))
        else:
            found.append(_date(now, third, second, first))
            if match[4] != ".":  # an American and a European read 3/4/2023 differently, so both days count
                found.append(_date(now, third, first, second))
    for match in _PHRASE.finditer(question):
        with suppress(OverflowError, ValueError, KeyError):  # no year of ours; a letter that `re` takes for another one
            if not match["next"]:
                found.append(_read(match, now))
    found += islice((when and when(question, now)) or (), MOST_TIMES)
    spans = [Span(*map(to_micros, period)) for period in found if period is not None]
    return [*dict.fromkeys(one for one in spans if one.since < min(to_micros(now), one.until))][:MOST_TIMES]


def _read(match: re.Match[str], now: datetime) -> _Period | None:
    word = {name: (value or "").lower() for name, value in match.groupdict().items()}
    number = word["ago"] or word["few"] or "one"
    count = int(number) if number.isdecimal() else _NUMBERS[number]
    period = None
    if unit := word["ago_unit"]:
        period = _wide(_later(now, unit, -count), unit)
    elif unit := word["unit"]:
        if word["few"] or word["within"]:
            period = _later(now, unit, -count), now
        elif unit != "day":  # "the last day" is that of something
            period = _wide(_later(now, unit, -1), unit)
    elif word["part"]:
        period = _wide(now, word["part"])[0], now
    elif word["yesterday"]:
        period = _wide(now - _DAY * (2 if "before" in word["yesterday"] else 1), "day")
    elif word["weekday"]:
        days = (now.weekday() + 1 - _WEEKDAYS[word["weekday"]]) % 7 or 7
        period = _wide(now - days * _DAY, "day")
    elif word["alone"]:
        period = _date(now, int(word["alone"]))
    else:
        day, year, start = word["day"] or word["after"], word["year"], match.start("month")
        is_named = day or year or _BEFORE_MONTH.search(match.string, max(0, start - 12), start)
        is_verb = word["month"] in ("may", "mar", "march") and not (day or year) and match["month"].islower()
        if is_named and not is_verb:
            period = _date(now, int(year) if year else None, _MONTHS[word["month"]], int(day) if day else None)
    return period and (period[0], max(period[1], now) if word["since"] else period[1])


def _date(now: datetime, year: int | None, month: int | None = None, day: int | None = None) -> _Period | None:
    """Return a year, a month or a day; without a year the last one that has begun. None if there is no such day."""
    unit = "year" if month is None else "month" if day is None else "day"
    for each in (year,) if year else range(now.year, max(0, now.year - 8), -1):  # 29 February
        with suppress(ValueError):
            first = datetime(each, 1 if month is None else month, 1 if day is None else day, tzinfo=now.tzinfo)
            if year or first <= now:
                return _wide(first, unit)
    return None


def _later(at: datetime, unit: str, number: int) -> datetime:
    if unit in ("day", "week"):
        return at + number * (_DAY if unit == "day" else 7 * _DAY)
    years, month = divmod(at.month - 1 + number * (1 if unit == "month" else 12), 12)
    first = at.replace(year=at.year + years, month=month + 1, day=1)
    return first + _DAY * (min(at.day, monthrange(first.year, first.month)[1]) - 1)


def _wide(at: datetime, unit: str) -> _Period:
    at = at.replace(hour=0, minute=0, second=0, microsecond=0)
    back = {"day": 0, "week": at.weekday(), "month": at.day - 1, "year": at.timetuple().tm_yday - 1}[unit]
    return at - back * _DAY, _later(at - back * _DAY, unit, 1)
