"""Phrases of time by zone: the days of a question are those of its place, also on the nights when clocks change."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from langchain_workingmem._text.values import aware, from_micros, to_micros
from langchain_workingmem.recall.question import named_times

AUCKLAND, ANGELES, KATHMANDU = "Pacific/Auckland", "America/Los_Angeles", "Asia/Kathmandu"
SANTIAGO = "America/Santiago"  # clocks change at midnight


def at_utc(zone: str, local: str) -> str:
    """Return a time of UTC; "second" is that of an hour that comes twice."""
    time, _, second = local.partition(" ")
    at = datetime.fromisoformat(time).replace(tzinfo=ZoneInfo(zone), fold=bool(second))
    return from_micros(to_micros(at)).isoformat()


@pytest.mark.parametrize(
    ("zone", "now", "question", "since", "until"),
    [
        # just after midnight, and just before: UTC has another day
        (AUCKLAND, "2026-11-24T00:01", "What did I say yesterday?", "2026-11-23", "2026-11-24"),
        (AUCKLAND, "2026-11-23T23:59", "What did I say yesterday?", "2026-11-22", "2026-11-23"),
        (ANGELES, "2026-11-23T23:59", "What did I say yesterday?", "2026-11-22", "2026-11-23"),
        (ANGELES, "2026-11-24T00:01", "What did I say last night?", "2026-11-23", "2026-11-24"),
        (KATHMANDU, "2026-11-24T05:44", "What did I say last night?", "2026-11-23", "2026-11-24"),
        (KATHMANDU, "2026-11-24T00:01", "What did I say on Monday?", "2026-11-23", "2026-11-24"),
        (AUCKLAND, "2026-11-24T00:01", "What did I say on Monday?", "2026-11-23", "2026-11-24"),
        (ANGELES, "2026-11-23T23:59", "What did I say on Monday?", "2026-11-16", "2026-11-17"),
        (ANGELES, "2026-11-30T20:00", "What did we do last month?", "2026-10-01", "2026-11-01"),
        (AUCKLAND, "2027-01-01T08:00", "What did we do last year?", "2026-01-01", "2027-01-01"),
        # days of 23 and of 25 hours
        (ANGELES, "2026-03-08T09:00", "What did I say last night?", "2026-03-07", "2026-03-08"),
        (ANGELES, "2026-03-09T09:00", "What did I say yesterday?", "2026-03-08", "2026-03-09"),
        (ANGELES, "2026-11-02T09:00", "What did I say yesterday?", "2026-11-01", "2026-11-02"),
        (AUCKLAND, "2026-09-28T00:30", "What did I say on Sunday?", "2026-09-27", "2026-09-28"),
        (AUCKLAND, "2027-04-05T00:30", "What did I say on 4 April 2027?", "2027-04-04", "2027-04-05"),
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
    ("zone", "local", "first", "last"),
    [
        (ANGELES, "2026-11-01T01:30", "2026-11-01T08:30Z", "2026-11-01T09:30Z"),
        (ANGELES, "2026-03-08T02:30", "2026-03-08T09:30Z", "2026-03-08T10:30Z"),  # no clock shows it
        (SANTIAGO, "2026-04-04T23:59:59", "2026-04-05T02:59:59Z", "2026-04-05T03:59:59Z"),
        (KATHMANDU, "2026-11-24", "2026-11-23T18:15Z", "2026-11-23T18:15Z"),
    ],
)
def test_a_time_that_comes_twice_is_the_first_or_the_last(zone: str, local: str, first: str, last: str) -> None:
    at = datetime.fromisoformat(local)
    found = [aware(at, ZoneInfo(zone), last=one) for one in (False, True)]
    # a time that comes twice equals none of another zone
    assert [one and to_micros(one) for one in found] == [
        to_micros(datetime.fromisoformat(one)) for one in (first, last)
    ]
