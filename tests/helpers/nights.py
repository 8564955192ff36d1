"""Days of users in zones far apart, and on the nights when clocks are set forward or back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest


class Day(NamedTuple):
    """A day of a user: from its first moment to that of the next one."""

    zone: ZoneInfo
    since: datetime
    until: datetime

    @property
    def last(self) -> datetime:
        """Its last minute."""
        return self.until - timedelta(minutes=1)


def _day(zone: str, since: str, hours: int) -> Day:
    begins = datetime.fromisoformat(since).replace(tzinfo=UTC)
    return Day(ZoneInfo(zone), begins, begins + timedelta(hours=hours))


DAYS = pytest.mark.parametrize(
    "day",
    [
        pytest.param(_day("Asia/Kathmandu", "2026-11-22T18:15", 24), id="Kathmandu, 5:45 before UTC"),
        pytest.param(_day("Pacific/Auckland", "2026-09-26T12:00", 23), id="Auckland, clocks go forward"),
        pytest.param(_day("Pacific/Auckland", "2027-04-03T11:00", 25), id="Auckland, clocks go back"),
        pytest.param(_day("America/Los_Angeles", "2026-11-01T07:00", 25), id="Los Angeles, clocks go back"),
    ],
)
