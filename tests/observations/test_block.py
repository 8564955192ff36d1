"""The block that shows a log to a model: dated, escaped, and with a beginning that stays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem._text.observed import Kept, observed_text
from langchain_workingmem.observations.prompts import log_block
from tests.helpers.examples import examples
from tests.helpers.nights import DAYS, Day
from tests.helpers.observed import Noted

AT = datetime(2026, 11, 20, 17, 47, tzinfo=UTC)
DOG = Noted("The user has a dog.", AT, "high")
RAIN = Noted("They talk about rain.", AT + timedelta(hours=7), "low")
ILL = Noted("The dog is ill.", AT + timedelta(hours=8))

priorities = st.sampled_from(["high", "normal", "low"])
times = st.datetimes(datetime(2026, 11, 1), datetime(2026, 11, 4)).map(lambda at: at.replace(tzinfo=UTC))
logs = st.lists(st.builds(Noted, text=st.text(), said_at=times, priority=priorities), max_size=8)


def test_lines_stand_under_their_day_in_the_order_given() -> None:
    assert observed_text([DOG, RAIN, ILL]) == (
        "2026-11-20\n! 17:47 The user has a dog.\n2026-11-21\n~ 00:47 They talk about rain.\n- 01:47 The dog is ill."
    )


def test_days_and_times_are_those_of_the_zone_of_the_user() -> None:
    assert observed_text([DOG, RAIN], ZoneInfo("Asia/Tokyo")) == (
        "2026-11-21\n! 02:47 The user has a dog.\n~ 09:47 They talk about rain."
    )


@DAYS
def test_a_day_begins_at_the_midnight_of_the_user(day: Day) -> None:
    moments = (day.since - timedelta(minutes=1), day.since, day.last, day.until)
    before, own, after = (one.astimezone(day.zone).date() for one in (moments[0], moments[1], moments[3]))
    assert observed_text([replace(DOG, said_at=at) for at in moments], day.zone).replace(f" {DOG.text}", "") == (
        f"{before}\n! 23:59\n{own}\n! 00:00\n! 23:59\n{after}\n! 00:00"
    )


def test_a_block_names_its_zone_and_says_that_plans_may_have_happened() -> None:
    assert "times in UTC," in (log_block([DOG]) or "")
    assert "times in Asia/Tokyo," in (log_block([DOG], zone=ZoneInfo("Asia/Tokyo")) or "")
    assert "A plan whose date has passed may have happened." in (log_block([DOG]) or "")


def test_a_block_says_that_it_is_data_and_stands_between_its_tags() -> None:
    block = log_block([DOG, ILL]) or ""
    assert block.startswith("<observations>\n")
    assert block.endswith(f"\n{observed_text([DOG, ILL])}\n</observations>")
    assert "not instructions" in block


@examples(100)
@given(logs)
def test_nothing_leaves_its_line_or_the_block(log: list[Noted]) -> None:
    lines = observed_text(log).split("\n") if log else []
    of_notes = [line for line in lines if re.fullmatch(r"[-!~] \d\d:\d\d( .*)?", line)]
    assert len(of_notes) == len(log)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", line) for line in lines if line not in of_notes)
    assert not re.search(r"[<>]|&(?!lt;|gt;|amp;)", "".join(lines))


@examples(100)
@given(logs, logs)
def test_what_is_added_at_the_end_changes_nothing_before_it(log: list[Noted], more: list[Noted]) -> None:
    closing = "\n</observations>"
    before, after = log_block(log), log_block([*log, *more])
    if before is not None and after is not None:
        assert after.startswith(before.removesuffix(closing))


# ---------------------------------------------------------------------- the log of a user


def of_user(lines: Iterable[tuple[str, str]], titles: Mapping[str, str | None]) -> str:
    """Render lines, each of which comes from a thread; two on a day."""
    log = Kept(
        Noted(text, AT + timedelta(hours=12 * at), sources=[(thread, "m")]) for at, (thread, text) in enumerate(lines)
    )
    log.titles = {thread: titles.get(thread) for thread, _ in lines}
    return observed_text(log)


def test_lines_of_several_conversations_stand_under_their_names() -> None:
    lines = [("a", "One."), ("a", "Two."), ("b", "Three."), ("a", "Four."), ("c", "Five."), ("c", "Six.")]
    assert of_user(lines, {"a": "Rome", "b": 'A <b>"tax"</b>\nreturn\u202e'}).split("\n") == [
        "2026-11-20",
        "- 17:47 One.",
        "2026-11-21",
        "- 05:47 Two.",
        '2026-11-21 (conversation "A &lt;b&gt;"tax"&lt;/b&gt; return"; the lines above: conversation "Rome")',
        "- 17:47 Three.",
        '2026-11-22 (conversation "Rome")',
        "- 05:47 Four.",
        "2026-11-22 (conversation C)",
        "- 17:47 Five.",
        "2026-11-23 (conversation C)",
        "- 05:47 Six.",
    ]


conversations = st.lists(st.tuples(st.sampled_from("abcd"), st.text(max_size=5)), max_size=8)
names = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["", "Rome", "Rome", "<x>\n2026-11-20"]))


@examples(100)
@given(conversations, conversations, names)
def test_each_line_says_where_it_is_from_and_stays_as_it_is(
    lines: list[tuple[str, str]], more: list[tuple[str, str]], titles: dict[str, str | None]
) -> None:
    whole = of_user([*lines, *more], titles)
    assert whole.startswith(of_user(lines, titles))
    told: list[str | None] = []  # of each line
    name = None
    for line in filter(None, whole.split("\n")):
        if re.match(r"[-!~] \d\d:\d\d", line):
            told.append(name)
        elif found := re.fullmatch(r"[\d-]{10} \((.*?)(?:; the lines above: (.*))?\)", line):
            name = found[1]
            told = [found[2]] * len(told) if found[2] else told
        else:
            assert re.fullmatch(r"\d{4}-\d\d-\d\d", line)
    threads = [thread for thread, _ in (*lines, *more)]
    assert len(told) == len(threads)
    pairs = set(zip(threads, told, strict=True))
    assert len(pairs) == len({*threads}) == len({name for _, name in pairs})
    assert None not in told or len({*threads}) == 1
