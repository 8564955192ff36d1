"""Times that questions name, and messages near them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage, message_to_dict

from langchain_workingmem import LocalEmbeddings, OptionError, RecallOptions
from langchain_workingmem._redis.queries import MAX_QUERY_CHARACTERS
from langchain_workingmem._text.unicode import keep_ends
from langchain_workingmem._text.values import to_micros
from langchain_workingmem.importers import header
from langchain_workingmem.recall.question import MOST_TIMES, named_times
from langchain_workingmem.recall.ranking import Span
from langchain_workingmem.recall.ranking import nearness as nearness_of
from tests.helpers.nights import DAYS, Day
from tests.helpers.types import Make

NOW = datetime(2024, 1, 12, 13, 55, tzinfo=UTC)  # a Friday
DAY = 86_400_000_000


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
        ("What did I do on 7 May?", "2023-05-07"),
        ("what did i do on may 7", "2023-05-07"),
        ("Who came on Aug 16th?", "2023-08-16"),
        ("Who came on Aug. 17?", "2023-08-17"),
        ("Who came on the 3rd of June 2022?", "2022-06-03"),
        ("Who came, December 2,2023?", "2023-12-02"),
        ("What happened on Friday, May 5th?", "2023-05-05"),
        ("2023-05-07", "2023-05-07"),
        ("What was on 7.5.2023?", "2023-05-07"),
        ("What happened in July 2023?", "2023-07-01..2023-07-31"),
        ("Where did I swim in mid-June 2023?", "2023-06-01..2023-06-30"),
        ("What did I buy in february?", "2023-02-01..2023-02-28"),
        ("Who called in the third week of April?", "2023-04-01..2023-04-30"),
        ("What happened in 2022?", "2022-01-01..2022-12-31"),
        ("What happened at the start of 2022?", "2022-01-01..2022-12-31"),
    ],
)
def test_dates_months_and_years_are_as_long_as_they_are(question: str, expected: str) -> None:
    assert named(question) == [expected]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What did we do yesterday?", "2024-01-11"),
        ("And the day before yesterday?", "2024-01-10"),
        ("Who called two weeks ago?", "2023-12-25..2023-12-31"),
        ("a few days ago", "2024-01-09"),
        ("What happened last week?", "2024-01-01..2024-01-07"),
        ("What happened in the last week?", "2024-01-05..2024-01-12"),
        ("in the past 3 months", "2023-10-12..2024-01-12"),
        ("last year", "2023-01-01..2023-12-31"),
        ("this month", "2024-01-01..2024-01-12"),
        ("What did I say on Monday?", "2024-01-08"),
        ("last Friday", "2024-01-05"),
        ("what did we plant in may 2023", "2023-05-01..2023-05-31"),
        ("since May", "2023-05-01..2024-01-12"),
        ("since 2023-12-30", "2023-12-30"),
    ],
)
def test_relative_times_are_before_now(question: str, expected: str) -> None:
    assert named(question) == [expected]


@pytest.mark.parametrize(
    "question",
    [
        "Is there a dog?",
        "May I go?",
        "we march on",
        "in 5 minutes",
        "version 3.11",
        "version 0.5.2023 or 2023-00-05",
        "next week",
        "next May",
        "this may last a day",
        "on 31 June",
        "¿Qué hice ayer?",
    ],
)
def test_other_questions_name_no_time(question: str) -> None:
    assert named(question) == []


def test_of_equal_texts_the_one_of_the_named_time_counts(make_memory: Make, local_model: LocalEmbeddings) -> None:
    memory = make_memory(embeddings=local_model, recall=RecallOptions(message_range=0))
    now = datetime.now(UTC)
    lines = [
        {
            "kind": "message",
            "thread_id": "runs",
            "message": message_to_dict(HumanMessage("Went for a run.", id=str(at))),
            "stored_at": (now - timedelta(days=days)).isoformat(),
        }
        for at, days in enumerate((3, 1))
    ]
    memory.users.load([header("u"), {"kind": "thread", "id": "runs"}, *lines])
    day = f"{now - timedelta(days=3):%Y-%m-%d}"
    (then,) = memory.recall.search(f"Did I run on {day}?", user_id="u").hits
    (newest,) = memory.recall.search("Did I run?", user_id="u").hits
    assert (then.message.id, newest.message.id) == ("0", "1")


def test_a_question_may_name_several_times() -> None:
    assert named("What did I do on 7 May and in June 2022?") == ["2023-05-07", "2022-06-01..2022-06-30"]
    assert named("3/4/2023") == ["2023-04-03", "2023-03-04"]  # as it can be read in two ways


def test_a_function_finds_times_of_another_language() -> None:
    def german(text: str, now: datetime) -> list[tuple[datetime, datetime]]:
        midnight = now.replace(hour=0, minute=0)
        return [(midnight - timedelta(days=1), midnight)] if "gestern" in text else []

    options = RecallOptions(when=german)
    assert named_times("Was war gestern?", NOW, options.when) == named_times("yesterday", NOW)
    with pytest.raises(OptionError, match="when is of type str"):
        RecallOptions(when="de")  # type: ignore[arg-type]


def test_days_are_those_of_the_zone_of_now() -> None:
    tokyo = datetime(2024, 1, 12, 1, tzinfo=ZoneInfo("Asia/Tokyo"))
    start = datetime(2024, 1, 11, tzinfo=ZoneInfo("Asia/Tokyo"))
    assert named_times("yesterday", tokyo) == [Span(to_micros(start), to_micros(start) + DAY)]


@DAYS
def test_yesterday_is_as_long_as_the_day_was(day: Day) -> None:
    for later in (1, 22):
        now = (day.until + timedelta(hours=later)).astimezone(day.zone)
        assert named_times("What did I do yesterday?", now) == [Span(to_micros(day.since), to_micros(day.until))]


# ---------------------------------------------------------------------- any text


@pytest.mark.parametrize(
    "question",
    [
        "on 7 May " * 100_000,
        "may " * 250_000,
        "2023-01-02 " * 90_000,
        "1" * 1_000_000,
        "\ud800 yesterday \ud800",
    ],
    ids=lambda question: ascii(question[:10]),
)
def test_any_text_names_few_times_and_takes_little(question: str) -> None:
    question = keep_ends(question, MAX_QUERY_CHARACTERS)
    begin = time.process_time()
    assert len(named_times(question, NOW)) <= MOST_TIMES
    assert time.process_time() - begin < 0.25


WORDS = [
    "in",
    "on",
    "since",
    "last",
    "past",
    "this",
    "next",
    "the",
    "of",
    "a",
    "few",
    "two",
    "ago",
    "day",
    "week",
    "month",
    "year",
    "may",
    "march",
    "june",
    "monday",
    "weekend",
    "yesterday",
]
ODD = [
    "7",
    "31",
    "99",
    "1900",
    "2099",
    "30th",
    "12.",
    "29.02.2023",
    "31/12/2023",
    "2023年13月45日",
    "99年前",
    "٣",
    "\0",
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


# ---------------------------------------------------------------------- near to a time

WEEK = Span(100 * DAY, 107 * DAY)


def nearness(created_at: int, spans: list[Span]) -> float:
    return float(nearness_of(np.array([created_at]), spans)[0])


def test_nearness_falls_on_both_sides_and_slower_afterwards() -> None:
    after = [nearness(WEEK.until + days * DAY, [WEEK]) for days in range(15)]
    before = [nearness(WEEK.since - days * DAY, [WEEK]) for days in range(1, 15)]
    assert after == sorted(after, reverse=True)
    assert before == sorted(before, reverse=True)
    assert nearness(WEEK.until + 3 * DAY, [WEEK]) > nearness(WEEK.since - 3 * DAY, [WEEK]) > 0
    assert after[-1] == before[-1] == nearness(0, [WEEK]) == nearness(10**18, [WEEK]) == 0


@given(st.integers(-(10**17), 10**17), st.lists(st.tuples(st.integers(-(10**17), 10**17), st.integers(0, 10**16))))
def test_nearness_is_a_share(created_at: int, starts: list[tuple[int, int]]) -> None:
    spans = [Span(since, since + length) for since, length in starts]
    assert 0 <= nearness(created_at, spans) <= 1
