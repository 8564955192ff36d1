"""Phrases of time by zone: the days of a question are those of its place, also on the nights when clocks change."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from langchain_workingmem._text.values import from_micros, to_micros
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
