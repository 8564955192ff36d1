"""Times that questions name, and messages near them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem import Memory
from langchain_workingmem._redis.queries import MAX_QUERY_CHARACTERS
from langchain_workingmem._text.unicode import keep_ends
from langchain_workingmem._text.values import from_micros, to_micros
from langchain_workingmem.recall.ranking import Span
from langchain_workingmem.recall.ranking import nearness as nearness_of
from langchain_workingmem.recall.times import MOST_TIMES, named_times

NOW = datetime(2024, 1, 12, 13, 55, tzinfo=UTC)  # a Friday


def named(question: str, now: datetime = NOW) -> list[str]:
    """Write the days of each span, the last one included: `2023-05-07` or `2023-05-01..2023-05-31`."""
    written = []
    for since, until in named_times(question, now):
        first, last = (datetime.fromtimestamp(at / 1e6, now.tzinfo).date() for at in (since, until - 1))
        written.append(str(first) if first == last else f"{first}..{last}")
    return written


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("what did i do on may 7", "2023-05-07"),
        ("Who came on the 3rd of June 2022?", "2022-06-03"),
        ("Who came, December 2,2023?", "2023-12-02"),
        ("What was on 7.5.2023?", "2023-05-07"),
        ("What happened in July 2023?", "2023-07-01..2023-07-31"),
        ("What did I buy in february?", "2023-02-01..2023-02-28"),
        ("Who called in the third week of April?", "2023-04-01..2023-04-30"),
        ("What happened in 2022?", "2022-01-01..2022-12-31"),
        ("What did we do yesterday?", "2024-01-11"),
        ("Who called two weeks ago?", "2023-12-25..2023-12-31"),
        ("What happened last week?", "2024-01-01..2024-01-07"),
        ("What happened in the last week?", "2024-01-05..2024-01-12"),
        ("in the past 3 months", "2023-10-12..2024-01-12"),
        ("last year", "2023-01-01..2023-12-31"),
        ("What did I say on Monday?", "2024-01-08"),
        ("since May", "2023-05-01..2024-01-12"),
        ("in may", "2023-05-01..2023-05-31"),
        ("this June", "2023-06-01..2023-06-30"),
        ("this year", "2024-01-01..2024-01-12"),
        *((other, "") for other in ("May I go?", "in 5 minutes", "version 0.5.2023 or 2023-00-05", "next May")),
        *((other, "") for other in ("this may last a day", "¿Qué hice ayer?", "last fr\u0131day in apr\u0131l")),
    ],
)
def test_a_question_names_times_before_now_as_long_as_they_are_or_none(question: str, expected: str) -> None:
    assert named(question) == ([expected] if expected else [])


AUCKLAND, ANGELES, KATHMANDU = "Pacific/Auckland", "America/Los_Angeles", "Asia/Kathmandu"
SANTIAGO = "America/Santiago"  # clocks change at midnight


def at_utc(zone: str, local: str) -> str:
    return from_micros(to_micros(datetime.fromisoformat(local).replace(tzinfo=ZoneInfo(zone)))).isoformat()


@pytest.mark.parametrize(
    ("zone", "now", "question", "since", "until"),
    [
        # just after midnight, and just before: UTC has another day
        (AUCKLAND, "2026-11-23T23:59", "What did I say yesterday?", "2026-11-22", "2026-11-23"),
        (ANGELES, "2026-11-24T00:01", "What did I say last night?", "2026-11-23", "2026-11-24"),
        (KATHMANDU, "2026-11-24T05:44", "What did I say last night?", "2026-11-23", "2026-11-24"),
        (ANGELES, "2026-11-23T23:59", "What did I say on Monday?", "2026-11-16", "2026-11-17"),
        (AUCKLAND, "2027-01-01T08:00", "What did we do last year?", "2026-01-01", "2027-01-01"),
        # days of 23 and of 25 hours
        (ANGELES, "2026-03-09T09:00", "What did I say yesterday?", "2026-03-08", "2026-03-09"),
        (ANGELES, "2026-11-02T09:00", "What did I say yesterday?", "2026-11-01", "2026-11-02"),
        (ANGELES, "2026-11-04T09:00", "What did we talk about last week?", "2026-10-26", "2026-11-02"),
        (SANTIAGO, "2026-09-07T10:00", "What did I say yesterday?", "2026-09-06T01:00", "2026-09-07"),
        (SANTIAGO, "2026-04-05T10:00", "What did I say yesterday?", "2026-04-04", "2026-04-05"),
    ],
)
def test_a_phrase_means_the_time_of_the_place(zone: str, now: str, question: str, since: str, until: str) -> None:
    asked = datetime.fromisoformat(at_utc(zone, now)).astimezone(ZoneInfo(zone))
    (span,) = named_times(question, asked)
    assert [from_micros(one).isoformat() for one in span] == [at_utc(zone, since), at_utc(zone, until)]


@pytest.mark.parametrize(
    "question", ["on 7 May " * 100_000, "1" * 1_000_000, "\ud800 yesterday \ud800"], ids=lambda one: ascii(one[:10])
)
def test_any_text_names_few_times_and_takes_little(question: str) -> None:
    question = keep_ends(question, MAX_QUERY_CHARACTERS)
    begin = time.process_time()
    assert len(named_times(question, NOW)) <= MOST_TIMES
    assert time.process_time() - begin < 0.25


WORDS = [
    *("in", "on", "since", "last", "past", "this", "next", "the", "of", "a", "few", "two", "ago", "day"),
    *("week", "month", "year", "may", "march", "june", "monday", "weekend", "yesterday"),
]
ODD = [
    *("7", "31", "99", "1900", "2099", "30th", "12.", "29.02.2023", "31/12/2023", "2023年13月45日", "99年前"),
    *("٣", "\0"),
]
PLACES = [UTC, timezone(timedelta(hours=14)), timezone(-timedelta(hours=12)), ZoneInfo("Europe/Berlin")]


@given(
    st.lists(st.sampled_from(WORDS) | st.sampled_from(ODD) | st.text(max_size=3), max_size=9),
    st.sampled_from([" ", ", ", "-", ". ", ""]),
    st.datetimes(timezones=st.sampled_from(PLACES))
    | st.sampled_from([datetime.min, datetime.max]).map(lambda at: at.replace(tzinfo=UTC)),
)
def test_spans_begin_before_now_whatever_is_asked(words: list[str], gap: str, now: datetime) -> None:
    for since, until in named_times(gap.join(words), now):
        assert since <= until
        assert since < to_micros(now)


def nearness(created_at: int, spans: list[Span]) -> float:
    return float(nearness_of(np.array([created_at]), spans)[0])


def test_what_was_said_today_does_not_hide_what_was_said_yesterday(memory: Memory) -> None:
    now = datetime.now(UTC)
    for text, at in (("we planted tomatoes", now - timedelta(days=1)), ("what can we do", now)):
        memory.history.append([("human", text)], thread_id=text, user_id="maya", said_at=[at])
    found = memory.recall.search("what did we do yesterday?", user_id="maya")
    assert found.hits[0].message.text == "we planted tomatoes"


def test_of_copies_the_one_of_the_time_that_is_asked_for_is_the_hit(memory: Memory) -> None:
    now = datetime.now(UTC)
    for thread, at in {"yesterday": now - timedelta(days=1), "today": now}.items():
        memory.history.append([("human", "we planted tomatoes")], thread_id=thread, user_id="maya", said_at=[at])
    for asked, thread in (("what did we plant yesterday?", "yesterday"), ("what did we plant?", "today")):
        assert [hit.thread_id for hit in memory.recall.search(asked, user_id="maya")] == [thread]


@given(st.integers(-(10**17), 10**17), st.lists(st.tuples(st.integers(-(10**17), 10**17), st.integers(0, 10**16))))
def test_nearness_is_a_share(created_at: int, starts: list[tuple[int, int]]) -> None:
    spans = [Span(since, since + length) for since, length in starts]
    assert 0 <= nearness(created_at, spans) <= 1
