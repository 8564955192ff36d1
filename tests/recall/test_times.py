"""Times that questions name, and messages near them."""

from __future__ import annotations

import importlib
import os
import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from dateparser.date import DateDataParser
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem._redis.codec import to_micros
from langchain_workingmem._text import time_words
from langchain_workingmem._text.time_words import ROLES
from langchain_workingmem.recall.times import MOST_TIMES, Span, named_times
from langchain_workingmem.recall.times import nearness as nearness_of
from tests.helpers.nights import DAYS, Day
from tests.helpers.programs import run

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
        ("What did I eat yesterday?", "2024-01-11"),
        ("What did I eat the day before yesterday?", "2024-01-10"),
        ("Where were we last night?", "2024-01-11"),
        ("What did we decide last Tuesday?", "2024-01-09"),
        ("What did we decide on Tuesday?", "2024-01-09"),
        ("What did Ann say two weeks ago?", "2023-12-25..2023-12-31"),
        ("What did Ann say a couple of weeks ago?", "2023-12-25..2023-12-31"),
        ("What did I start three years ago?", "2021-01-01..2021-12-31"),
        ("What did I start a few years ago?", "2021-01-01..2021-12-31"),
        ("What did we talk about last week?", "2024-01-01..2024-01-07"),
        ("What did we talk about last month?", "2023-12-01..2023-12-31"),
        ("Where did we go last year?", "2023-01-01..2023-12-31"),
        ("Who came last May?", "2023-05-01..2023-05-31"),
        ("What did I say this morning?", "2024-01-12"),
        ("What did I say an hour ago?", "2024-01-12"),
    ],
)
def test_relative_times_are_before_now(question: str, expected: str) -> None:
    assert named(question) == [expected]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What did we do last spring?", "2023-03-01..2023-05-31"),
        ("What did we do in the summer of 2022?", "2022-06-01..2022-08-31"),
        ("What did we do last winter?", "2022-12-01..2023-02-28"),  # this one lasts
        ("What did we do during the winter?", "2023-12-01..2024-02-29"),
        ("Where were we in fall 2021?", "2021-09-01..2021-11-30"),
        ("Who called last weekend?", "2024-01-06..2024-01-07"),
        ("What did we do over the weekend?", "2024-01-06..2024-01-07"),
        ("What did they give me last Christmas?", "2023-12-25"),
        ("What did I wear at Halloween 2022?", "2022-10-31"),
        ("Who called the week before 20 April 2023?", "2023-04-13..2023-04-19"),
        ("Who called the day after May 3, 2023?", "2023-05-04"),
        ("Who called the weekend before 14 June 2023?", "2023-06-10..2023-06-11"),
        ("Who called the weekend after 14 June 2023?", "2023-06-17..2023-06-18"),
        ("Who called two weeks before March 15, 2023?", "2023-02-27..2023-03-05"),
        ("Who called two weeks after March 15, 2023?", "2023-03-27..2023-04-02"),
        ("What did I do between March and May?", "2023-03-01..2023-05-31"),
        ("Who called between June 2 and June 9 2023?", "2023-06-02..2023-06-09"),
        ("Where was I from 2019 to 2021?", "2019-01-01..2021-12-31"),
        ("What did we talk about in the last two weeks?", "2023-12-29..2024-01-12"),
        ("Who visited me in the last year?", "2023-01-12..2024-01-12"),
        ("What have I done since May 3, 2023?", "2023-05-03..2024-01-12"),
        ("What have I done since 2022?", "2022-01-01..2024-01-12"),
    ],
)
def test_own_code_reads_seasons_weekends_ranges_and_distances_in_english(question: str, expected: str) -> None:
    assert named(question) == [expected]


def test_the_last_weekend_is_over_even_on_a_sunday() -> None:
    sunday = NOW + timedelta(days=2)
    assert named("What did we do last weekend?", sunday) == ["2024-01-06..2024-01-07"]
    assert named("What did we do over the weekend?", sunday) == ["2024-01-13..2024-01-14"]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Was habe ich gestern gegessen?", "2024-01-11"),
        ("Wo war ich am 7. Mai?", "2023-05-07"),
        ("Was war im Mai 2023?", "2023-05-01..2023-05-31"),
        ("Was sagte ich vor zwei Wochen?", "2023-12-25..2023-12-31"),
        ("Wo war ich letzten Dienstag?", "2024-01-09"),
        ("Was war im Jahr 2022?", "2022-01-01..2022-12-31"),
        ("¿Qué hice el 7 de mayo?", "2023-05-07"),
        ("¿Qué hice hace dos semanas?", "2023-12-25..2023-12-31"),
        ("¿Qué hice el martes pasado?", "2024-01-09"),
        ("¿Qué hice la semana pasada?", "2024-01-01..2024-01-07"),
        ("Qu'ai-je fait hier ?", "2024-01-11"),
        ("Qu'ai-je fait avant-hier ?", "2024-01-10"),
        ("Qu'ai-je fait il y a deux semaines ?", "2023-12-25..2023-12-31"),
        ("Qu'ai-je fait l'année dernière ?", "2023-01-01..2023-12-31"),
        ("Qu'ai-je fait en 2022 ?", "2022-01-01..2022-12-31"),
        ("Cosa ho fatto due settimane fa?", "2023-12-25..2023-12-31"),
        ("Cosa ho fatto l'anno scorso?", "2023-01-01..2023-12-31"),
        ("O que fiz na semana passada?", "2024-01-01..2024-01-07"),
        ("O que fiz terça-feira passada?", "2024-01-09"),
        ("Wat deed ik twee weken geleden?", "2023-12-25..2023-12-31"),
        ("Co robiłem w zeszłym tygodniu?", "2024-01-01..2024-01-07"),
        ("Co robiłem w maju 2023?", "2023-05-01..2023-05-31"),
        ("Что я делал в мае 2023?", "2023-05-01..2023-05-31"),
        ("Что я делал в прошлом году?", "2023-01-01..2023-12-31"),
        ("我昨天吃了什么", "2024-01-11"),
        ("2023年5月我在哪里", "2023-05-01..2023-05-31"),
        ("3日前に何をした", "2024-01-09"),
        ("2023년 5월 7일에 뭐 했어?", "2023-05-07"),
    ],
)
def test_other_languages_name_times(question: str, expected: str) -> None:
    assert named(question) == [expected]


@pytest.mark.parametrize(
    "question",
    [
        "",
        "How long ago was that?",
        "How many weeks lie between our holidays?",
        "When did I buy it? In which month, on what day of the week?",
        "May I march on?",
        "Which of the 3 may be wrong?",
        "This may last a week",
        "I sat in the sun for a second",
        "Remind me in 5 minutes",
        "I ran for two weeks",
        "He is 31 years old, she has a one-year-old child, and it costs $2023",
        "Python 3.11, version 1.5, chapter 2.5.3",
        "Call 555-1234-2023, or 07-05-2023-12",
        "the last minute, the last time, the last season",
        "Today is the day, now",
        "What do I wear on Mondays?",
        "I meet Ann on Friday",
        "What are my plans for the summer? What are my plans for this summer?",
        "Will I be there on May 7?",
        "What shall we do next week, and in March?",
        "What did April and May say to June?",
        "Is there life on Mars?",
        "5 Mars bars",
        "I ate 5 mars bars on a train, as you know",
        "Was ist hier los?",
        "What will happen on 7 May 2031?",
        "What happened on 31 Feb 2023, the week before 30 Feb 2023, 2023-13-45 and 31/31/2023?",
        "between 31 Feb 2023 and 3 June 2031",
        "in the year 99999, 99999999999 years ago, on day 99999",
    ],
)
def test_other_questions_name_no_time(question: str) -> None:
    assert named(question) == []


def test_the_sentence_tells_past_from_future() -> None:
    assert named("I will call Ann. What did we do on Friday?") == ["2024-01-05"]
    assert named("I met Ann. We'll see Ben on Friday") == []
    assert named("Shall we go? It was in March.") == ["2023-03-01..2023-03-31"]


def test_a_date_without_a_tense_is_that_which_is_nearer() -> None:
    assert named("The trip begins on 24 March") == named("What are the plans for mid-May?") == []
    assert named("The trip on 24 March was long") == ["2023-03-24"]
    assert named("The trip of 24 November, please") == ["2023-11-24"]
    assert named("The trip begins on 24 March 2023") == ["2023-03-24"]


def test_a_question_may_name_several_times() -> None:
    assert named("What did I say in 2021, on 7 May 2022 and yesterday?") == [
        "2021-01-01..2021-12-31",
        "2022-05-07",
        "2024-01-11",
    ]
    assert named("2023-05-07 or 2023-05-07?") == ["2023-05-07"]


def test_a_date_that_can_be_read_in_two_ways_is_two_days() -> None:
    assert named("What was on 03/04/2023?") == ["2023-03-04", "2023-04-03"]
    assert named("What was on 13/04/2023?") == ["2023-04-13"]


def test_days_are_those_of_the_zone_of_now() -> None:
    tokyo = datetime(2024, 1, 12, 1, tzinfo=ZoneInfo("Asia/Tokyo"))
    start = datetime(2024, 1, 11, tzinfo=ZoneInfo("Asia/Tokyo"))
    assert named_times("yesterday", tokyo) == [Span(to_micros(start), to_micros(start) + DAY)]


@DAYS
def test_yesterday_is_as_long_as_the_day_was(day: Day) -> None:
    for later in (1, 22):
        now = (day.until + timedelta(hours=later)).astimezone(day.zone)
        assert named_times("What did I do yesterday?", now) == [Span(to_micros(day.since), to_micros(day.until))]


@pytest.mark.parametrize("place", ["America/New_York", "Pacific/Kiritimati", "No/Such"])
def test_the_machine_does_not_matter(place: str) -> None:
    code = (
        "from datetime import *; from langchain_workingmem.recall.times import named_times\n"
        "print(named_times('What did I say two hours ago, yesterday and on 3 March?', datetime(2024, 1, 12, tzinfo=UTC)))"
    )
    environment = {**os.environ, "TZ": place, "LC_ALL": "de_DE.UTF-8"}
    printed = run([sys.executable, "-W", "error", "-c", code], of="library", env=environment).stdout
    here = named_times("What did I say two hours ago, yesterday and on 3 March?", datetime(2024, 1, 12, tzinfo=UTC))
    assert printed.strip() == str(here)


@pytest.mark.parametrize(
    "question", ["Is there a dog?", "How many weeks is that?", "May I go?", "in 5 minutes", "version 3.11"]
)
def test_questions_without_a_time_name_none(question: str) -> None:
    assert named(question) == []


# ---------------------------------------------------------------------- any text


@pytest.mark.parametrize(
    "question",
    [
        "on 7 May " * 100_000,
        "may " * 250_000,
        "2023-01-02 " * 90_000,
        "1" * 1_000_000,
        "the last two of " * 60_000,
        "\0" * 1_000_000,
        "\u202b7 مايو ٢٠٢٣ \u202e" * 60_000,
        "\ud800 yesterday \ud800",
    ],
    ids=lambda question: ascii(question[:10]),
)
def test_any_text_names_few_times_and_takes_little(question: str) -> None:
    named_times(question, NOW)  # languages are made ready
    begin = time.process_time()
    assert len(named_times(question, NOW)) <= MOST_TIMES
    assert time.process_time() - begin < 0.25


def test_of_a_long_question_the_end_counts() -> None:
    assert named("a log line\n" * 100_000 + "What was that yesterday?") == ["2024-01-11"]


def test_the_calendar_ends() -> None:
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert named_times("What did we do last summer, last year, and a week ago?", first) == []
    assert named_times("What did we do this year, that is, this week?", last) == []


WORDS = sorted({word for roles in ROLES.values() for word in roles})
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


# ---------------------------------------------------------------------- the words


@pytest.mark.parametrize("language", sorted(ROLES))
def test_the_library_knows_the_words(language: str) -> None:
    info = importlib.import_module(f"dateparser.data.date_translation_data.{language}").info
    months = ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october"]
    days = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
    names = [*months, "november", "december", *days]
    for role, keys in (("m", names[:12]), ("w", names[12:])):
        firsts = [group.split("|")[0] for group in times_words(language, role)]
        assert [
            first
            for first, key in zip(firsts, keys, strict=True)
            if not any(known.lower().rstrip(".").startswith(first) for known in info[key])
        ] == []


def times_words(language: str, role: str) -> list[str]:
    return time_words._LANGUAGES[language][role].split()


@pytest.mark.parametrize("language", sorted(ROLES))
def test_dates_are_read_as_dateparser_reads_them(language: str) -> None:
    months = [forms.split("|")[0] for forms in times_words(language, "m")]
    settings = {"RELATIVE_BASE": NOW.replace(tzinfo=None), "PREFER_DATES_FROM": "past", "PREFER_DAY_OF_MONTH": "first"}
    read = DateDataParser(languages=[language], settings=settings).get_date_data
    for number, month in enumerate(months, 1):
        of = f"{number + 10} {'de ' * (language in ('es', 'pt'))}{month}"
        for text in (of, f"{of} {'de ' * (language in ('es', 'pt'))}2021"):
            expected = read(text).date_obj
            assert expected is not None
            assert named(f"Who was here on {text.title()}?" if language == "en" else text) == [str(expected.date())]


# ---------------------------------------------------------------------- near to a time

WEEK = Span(100 * DAY, 107 * DAY)


def nearness(created_at: int, spans: list[Span]) -> float:
    return float(nearness_of(np.array([created_at]), spans)[0])


def test_inside_a_span_is_near() -> None:
    assert nearness(WEEK.since, [WEEK]) == nearness(WEEK.until - 1, [WEEK]) == 1


def test_nearness_falls_on_both_sides_and_slower_afterwards() -> None:
    after = [nearness(WEEK.until + days * DAY, [WEEK]) for days in range(15)]
    before = [nearness(WEEK.since - days * DAY, [WEEK]) for days in range(1, 15)]
    assert after == sorted(after, reverse=True)
    assert before == sorted(before, reverse=True)
    assert nearness(WEEK.until + 3 * DAY, [WEEK]) > nearness(WEEK.since - 3 * DAY, [WEEK]) > 0
    assert after[-1] == before[-1] == nearness(0, [WEEK]) == nearness(10**18, [WEEK]) == 0


def test_a_longer_time_reaches_farther() -> None:
    month = Span(77 * DAY, 107 * DAY)
    assert nearness(115 * DAY, [month]) > nearness(115 * DAY, [WEEK]) > 0


def test_the_nearest_time_counts() -> None:
    far = Span(500 * DAY, 501 * DAY)
    assert nearness(103 * DAY, [far, WEEK]) == nearness(500 * DAY, [far, WEEK]) == 1
    assert nearness(103 * DAY, []) == 0


@given(st.integers(-(10**17), 10**17), st.lists(st.tuples(st.integers(-(10**17), 10**17), st.integers(0, 10**16))))
def test_nearness_is_a_share(created_at: int, starts: list[tuple[int, int]]) -> None:
    spans = [Span(since, since + length) for since, length in starts]
    assert 0 <= nearness(created_at, spans) <= 1


@pytest.mark.parametrize(
    "question",
    [
        "What did we do between 22 May 2023 and 1 May 2023?",
        "What did we do between May 2025 and March 2025?",
        "What did we do between 2023 and 2019?",
        "What did we plan for the summer of 2030?",
        "And in winter 2027?",
    ],
)
def test_a_range_that_ends_before_it_begins_and_a_season_to_come_are_no_times(question: str) -> None:
    assert named(question) == []
