from __future__ import annotations

import json
from datetime import timedelta, timezone
from typing import Any

import pytest

from langchain_workingmem import Memory, MessageNotFoundError, OptionError
from langchain_workingmem._engine.plan import send
from langchain_workingmem._redis.scripts import READ
from tests.helpers.threads import all_pages, append, rows_of, texts, words_digest


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({}, "0123456789"),
        ({"last": 3}, "789"),
        ({"last": 0}, ""),
        ({"last": 11}, "0123456789"),
        ({"before": "4"}, "0123"),
        ({"after": "6"}, "789"),
        ({"after": "2", "before": "6"}, "345"),
        ({"after": "6", "before": "2"}, ""),
        ({"before": "8", "last": 2}, "67"),
        ({"roles": ["assistant"]}, "258"),
        ({"roles": "user", "last": 2}, "79"),
        ({"roles": ["ai"], "before": "8", "last": 1}, "5"),
    ],
)
def test_messages_are_chosen_and_stay_chronological(ten: Memory, choice: dict[str, Any], expected: str) -> None:
    assert texts(ten.history.messages("t", **choice)) == list(expected)


@pytest.mark.parametrize("zone", [None, timezone(timedelta(hours=5, minutes=45))])
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


@pytest.mark.parametrize("choice", [{"last": -1}, {"roles": []}, {"roles": ["system"]}])
def test_an_impossible_choice_of_messages_is_refused(ten: Memory, choice: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=r"use (an int|one of)|name at least one"):
        ten.history.messages("t", **choice)
    for call in (ten.history.page, ten.history.for_user):
        with pytest.raises(OptionError, match=r"limit=.*use an int of at least 1"):
            call("t", limit=0)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("id", ["nowhere", "{😀}"])
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


@pytest.mark.parametrize("cursor", ["", "-1", "1.5:t", "nan", "9" * 5000])
def test_a_bad_cursor_is_refused_with_the_remedy(ten: Memory, cursor: str) -> None:
    for call in (ten.history.page, ten.history.for_user):
        with pytest.raises(OptionError, match="pass the next_cursor of the page before, unchanged"):
            call("t", cursor=cursor)


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


def test_ranges_that_a_history_leaves_out_may_overlap(plain: Memory) -> None:
    append(plain, *"abcdef")
    at = [row.place for row in rows_of(plain)]
    ranges = [[at[0], at[3]], [at[1], at[1]], [at[5], at[5]]]
    call = READ.on(plain._core.state.keys.of("t"), user="u", kinds="qa", without=ranges)
    ((reply, _),) = plain._core.run(send(call))
    assert [facts[-1] for facts in json.loads(reply)["shown"]] == ["e"]
