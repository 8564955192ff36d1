"""Days in the block of working memory: since when each value holds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem._text.rendering import unescape
from langchain_workingmem._text.unicode import visible
from langchain_workingmem.options import WorkingMemoryOptions
from langchain_workingmem.working_memory.prompt import render_working_memory

FREE = WorkingMemoryOptions(template="").format
MARK = re.compile(r"<\d{4}-\d\d-\d\d>")
FIRST = datetime(2025, 12, 31, 23, 30, tzinfo=UTC)


def at(day: float) -> int:
    """Return microseconds since the epoch, so many days after the first one."""
    return int((FIRST + timedelta(days=day)).timestamp() * 1_000_000)


def block(text: str, *starts: tuple[int, int], zone: str | None = None, form: Any = FREE) -> str:
    where = ZoneInfo(zone) if zone else None
    return render_working_memory(form, text, "user", update=None, starts=starts, zone=where)


def data(text: str) -> str:
    return text.partition("<data>\n")[2].removesuffix("\n</data>\n</working_memory>")


def test_a_day_stands_before_what_was_said_on_it() -> None:
    text = "city: Bern\njob: nurse\npet: Rex\ncar: none"
    shown = block(text, (0, at(-40)), (11, at(-40.01)), (22, at(0)), (31, at(60)))
    assert data(shown) == "<2025-11-21>city: Bern\njob: nurse\n<2025-12-31>pet: Rex\n<2026-03-01>car: none"
    assert "holds since that day" in shown.partition("<data>")[0]


def test_days_are_those_of_the_users_zone() -> None:
    assert data(block("city: Bern", (0, at(0)), zone="Europe/Berlin")) == "<2026-01-01>city: Bern"


def test_a_text_cannot_look_like_a_day() -> None:
    assert data(block("<2020-01-01>city: <older>Rome", (0, at(0)))) == (
        "<2025-12-31>&lt;2020-01-01&gt;city: &lt;older&gt;Rome"
    )


@given(st.text(), st.lists(st.tuples(st.integers(0, 40), st.integers(-900, 900)), max_size=8))
def test_the_document_stays_whole(text: str, given: list[tuple[int, int]]) -> None:
    starts = sorted({min(place, len(text)): day for place, day in given}.items())
    whole = f"x{text}"
    shown = data(block(whole, *((place, at(day)) for place, day in starts)))
    assert unescape(MARK.sub("", shown)) == visible(whole)
