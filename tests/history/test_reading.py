from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import pytest

from langchain_workingmem import Memory, MessageNotFoundError, OptionError, Page, StoredMessage
from langchain_workingmem._redis.keys import Keys
from tests.helpers.threads import all_pages, append, rows_of, texts, words_digest

if TYPE_CHECKING:
    import redis


# ---------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({}, "0123456789"),
        ({"last": 3}, "789"),
        ({"last": 0}, ""),
        ({"last": 10}, "0123456789"),
        ({"last": 11}, "0123456789"),
        ({"before": "4"}, "0123"),
        ({"before": "0"}, ""),
        ({"after": "6"}, "789"),
        ({"after": "9"}, ""),
        ({"after": "2", "before": "6"}, "345"),
        ({"after": "6", "before": "2"}, ""),
        ({"before": "8", "last": 2}, "67"),
        ({"after": "2", "last": 3}, "789"),
        ({"roles": ["ai"]}, "258"),
        ({"roles": ["assistant"]}, "258"),
        ({"roles": "user", "last": 2}, "79"),
        ({"roles": ["human", "ai"], "last": 2}, "89"),
        ({"roles": ["tool"]}, ""),
        ({"roles": ["ai"], "before": "8", "last": 1}, "5"),
    ],
)
def test_messages_are_chosen_and_stay_chronological(ten: Memory, choice: dict[str, Any], expected: str) -> None:
    assert texts(ten.history.messages("t", **choice)) == list(expected)
    assert texts(ten.history.messages("t", user_id="u", **choice)) == list(expected)


@pytest.mark.parametrize("choice", [{"last": -1}, {"last": True}, {"last": 1.0}, {"roles": []}, {"roles": ["system"]}])
def test_an_impossible_choice_of_messages_is_refused(ten: Memory, choice: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=r"use (an int|one of)|name at least one"):
        ten.history.messages("t", **choice)


@pytest.mark.parametrize("zone", [None, UTC, timezone(timedelta(hours=-11)), timezone(timedelta(hours=5, minutes=45))])
def test_both_bounds_of_time_are_inclusive_in_any_zone(ten: Memory, zone: timezone | None) -> None:
    times = [row.stored_at.astimezone(zone) for row in rows_of(ten)]
    since, until = (times[3], times[6]) if zone else (times[3].replace(tzinfo=None), times[6].replace(tzinfo=None))
    step = timedelta(microseconds=1)
    assert texts(ten.history.messages("t", since=since, until=until)) == list("3456")
    assert texts(ten.history.messages("t", since=since + step, until=until - step)) == list("45")
    assert texts(ten.history.messages("t", until=until, last=2)) == list("56")
    assert texts(ten.history.messages("t", since=until, until=since)) == []
    page = ten.history.page("t", since=since, until=until, limit=2)
    assert (words_digest(page.items), page.total) == (list("34"), 4)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("id", ["nowhere", "two  words", "{😀}", "a\nb"])
def test_an_unknown_message_as_a_bound_is_an_error_that_names_it(ten: Memory, side: str, id: str) -> None:
    with pytest.raises(MessageNotFoundError, match=r"history\.page\(\) lists the ids") as caught:
        ten.history.messages("t", **{side: id})  # type: ignore[arg-type]
    assert (caught.value.message_id, caught.value.thread_id) == (id, "t")
    assert isinstance(caught.value, LookupError)


def test_no_read_is_capped(plain: Memory) -> None:
    numbers = [str(number) for number in range(1200)]
    append(plain, *numbers)
    assert texts(plain.history.messages("t")) == numbers
    assert texts(plain.history.messages("t", last=1100)) == numbers[100:]
    assert texts(plain.history.messages("t", roles=["human"], last=1001)) == numbers[199:]
    assert texts(plain.history.messages("t", after="5", before="1190")) == numbers[6:1190]
    assert words_digest(all_pages(lambda cursor: plain.history.page("t", cursor=cursor, limit=599))) == numbers
    page = plain.history.page("t", limit=5000)
    assert (len(page), page.total, page.next_cursor) == (1200, 1200, None)
    assert plain.history.clear("t") == 1200


# ---------------------------------------------------------------------- page


@pytest.mark.parametrize("limit", [1, 3, 9, 10, 11])
@pytest.mark.parametrize("descending", [False, True])
def test_paging_gives_each_message_once_in_order(ten: Memory, limit: int, descending: bool) -> None:
    totals = set()

    def read(cursor: str | None) -> Page[StoredMessage]:
        page = ten.history.page("t", limit=limit, cursor=cursor, descending=descending)
        totals.add(page.total)
        assert len(page) <= limit
        return page

    expected = list("0123456789")
    assert words_digest(all_pages(read)) == (expected[::-1] if descending else expected)
    assert totals == {10}


@pytest.mark.parametrize("descending", [False, True])
def test_paging_sees_each_message_once_while_others_arrive_and_leave(ten: Memory, descending: bool) -> None:
    arrived = count(10)

    def read(cursor: str | None) -> Page[StoredMessage]:
        page = ten.history.page("t", limit=2, cursor=cursor, descending=descending)
        ten.history.delete([str(row.message.id) for row in page], thread_id="t")  # the cursor's own message too
        if (number := next(arrived)) < 13:
            append(ten, str(number))
        return page

    seen = [int(text) for text in words_digest(all_pages(read))]
    assert seen == (list(range(9, -1, -1)) if descending else list(range(13)))


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "1 ", "0x1", "nan", "5:a", "9" * 5000])
def test_a_bad_cursor_is_refused_with_the_remedy(ten: Memory, cursor: str) -> None:
    with pytest.raises(OptionError, match="pass the next_cursor of the page before, unchanged"):
        ten.history.page("t", cursor=cursor)


@pytest.mark.parametrize("cursor", ["", "x", "-1:t", "1.5:t", ":t", "9" * 5000 + ":t"])
def test_a_bad_cursor_of_a_user_is_refused_with_the_remedy(ten: Memory, cursor: str) -> None:
    with pytest.raises(OptionError, match="pass the next_cursor of the page before, unchanged"):
        ten.history.for_user("u", cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, True, 2.5, None])
def test_a_page_holds_at_least_one_message(ten: Memory, limit: Any) -> None:
    with pytest.raises(OptionError, match=r"limit=.*use an int of at least 1"):
        ten.history.page("t", limit=limit)
    with pytest.raises(OptionError, match=r"limit=.*use an int of at least 1"):
        ten.history.for_user("u", limit=limit)


# ---------------------------------------------------------------------- for_user


def _crowd(memory: Memory, raw: redis.Redis, prefix: str, *, ties: bool) -> list[tuple[datetime, str, str]]:
    """30 threads of 40 messages that were said in turns, in the order in which they must come back."""
    names = [f"t:{number}" for number in range(28)] + ["T", "😀"]
    for turn in range(40):
        for name in names:
            append(memory, f"{name}/{turn}", thread_id=name)
    append(memory, "mine", thread_id="other", user_id="other")
    for name in names if ties else ():
        key = Keys(prefix).of(name).messages
        for id, value in cast("dict[bytes, bytes]", raw.hgetall(key)).items():
            at = 1_700_000_000_000_000 + int(id.rpartition(b"/")[2])
            raw.hset(key, id, re.sub(rb'"stored_at":\d+', b'"stored_at":%d' % at, value, count=1))
    rows = [row for name in names for row in rows_of(memory, name)]
    return sorted((row.stored_at, row.thread_id, str(row.message.id)) for row in rows)


@pytest.mark.parametrize("ties", [False, True])
def test_a_users_messages_come_in_order_across_threads_and_pages(
    plain: Memory, raw: redis.Redis, prefix: str, ties: bool
) -> None:
    expected = _crowd(plain, raw, prefix, ties=ties)
    for limit, since in [(100, expected[0][0]), (7, expected[-100][0]), (1, expected[-21][0])]:
        wanted = [row for row in expected if row[0] >= since]
        read = partial(plain.history.for_user, "u", limit=limit, since=since)
        assert read().total == len(wanted)
        found = all_pages(lambda cursor, read=read: read(cursor=cursor))  # type: ignore[misc]
        assert [(row.stored_at, row.thread_id, str(row.message.id)) for row in found] == wanted


def test_a_users_messages_are_bounded_by_time_on_both_sides(plain: Memory) -> None:
    for text in "abcdef":
        append(plain, text, thread_id=f"t{ord(text) % 2}")
    times = {str(row.message.id): row.stored_at for row in plain.history.for_user("u")}
    page = plain.history.for_user("u", since=times["b"], until=times["e"], limit=3)
    assert (words_digest(page.items), page.total) == (list("bcd"), 4)
    page = plain.history.for_user("u", since=times["b"], until=times["e"], limit=3, cursor=page.next_cursor)
    assert (words_digest(page.items), page.total, page.next_cursor) == (["e"], 4, None)


def test_pages_of_a_user_skip_and_repeat_nothing_while_threads_change(plain: Memory) -> None:
    for turn in range(6):
        for name in "abcd":
            append(plain, f"{name}{turn}", thread_id=name)
    expected = [f"{name}{turn}" for turn in range(6) for name in "abcd"]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = plain.history.for_user("u", limit=5, cursor=cursor)
        seen += words_digest(page.items)
        cursor = page.next_cursor
        if cursor is None:
            break
        if len(seen) == 5:
            plain.history.delete([page.items[-1].message.id or ""], thread_id=page.items[-1].thread_id)
            append(plain, "late", thread_id="a")
            plain.threads.transfer("b", user_id="u", to="heir")
        if len(seen) == 10:
            plain.threads.delete("c")
    gone = {text for text in expected[5:] if text[0] == "b"} | {text for text in expected[11:] if text[0] == "c"}
    assert [text for text in seen if text not in gone] == [text for text in expected if text not in gone] + ["late"]
    assert len(seen) == len(set(seen))
