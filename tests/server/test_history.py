from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage

from langchain_workingmem import (
    IdError,
    Memory,
    MessageNotFoundError,
    OptionError,
    Page,
    StoredMessage,
    Thread,
    ThreadNotFoundError,
    ThreadOwnershipError,
)
from langchain_workingmem.plans.keys import Keys
from langchain_workingmem.text.chunks import split
from tests.unit.test_keys import BAD_IDS, NASTY_IDS

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from tests.conftest import Trips


def said(*words: str) -> list[BaseMessage]:
    """Messages whose id is their text, or its beginning."""
    return [HumanMessage(text, id=text[:100]) for text in words]


def append(memory: Memory, *words: str, thread_id: str = "t", resource_id: str = "u") -> None:
    memory.history.append(said(*words), thread_id=thread_id, resource_id=resource_id)


def texts(messages: list[BaseMessage]) -> list[str]:
    return [str(message.content) for message in messages]


def words_of(rows: list[StoredMessage]) -> list[str]:
    return texts([row.message for row in rows])


def rows_of(memory: Memory, thread_id: str = "t") -> list[StoredMessage]:
    return memory.history.page(thread_id, limit=10_000).items


def thread_of(memory: Memory, thread_id: str = "t") -> Thread:
    thread = memory.threads.get(thread_id)
    assert thread is not None
    return thread


def vectors(raw: redis.Redis, prefix: str) -> dict[str, str]:
    """The text behind each stored vector, by key."""
    keys = sorted(raw.scan_iter(f"{prefix}:vector:*", count=1000))
    return {key.decode(): raw.hget(key, "text").decode() for key in keys}  # type: ignore[union-attr]


def all_pages(read: Callable[[str | None], Page[StoredMessage]]) -> list[StoredMessage]:
    page = read(None)
    found = list(page.items)
    while page.next_cursor is not None:
        page = read(page.next_cursor)
        assert page.items
        found += page.items
    return found


# ---------------------------------------------------------------------- append


def test_append_creates_the_thread_and_returns_what_is_stored(plain: Memory) -> None:
    stored = plain.history.append(said("hi", "there"), thread_id="t", resource_id="u")
    assert stored == plain.history.messages("t") == said("hi", "there")
    thread = plain.threads.get("t")
    assert thread is not None
    assert (thread.resource_id, thread.title, thread.metadata, thread.message_count) == ("u", None, {}, 2)


def test_append_sets_missing_ids_on_the_messages_that_were_passed(plain: Memory) -> None:
    mine = [HumanMessage("a"), AIMessage("b")]
    stored = plain.history.append(mine, thread_id="t", resource_id="u")
    assert [message.id for message in mine] == [message.id for message in stored]
    assert len({message.id for message in mine if message.id}) == 2


def test_append_twice_stores_once(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    mine = [HumanMessage("a cat"), AIMessage("a dog")]
    memory.history.append(mine, thread_id="t", resource_id="u")
    before, thread = rows_of(memory), memory.threads.get("t")
    memory.history.append(mine, thread_id="t", resource_id="u")
    assert rows_of(memory) == before
    assert memory.threads.get("t") == thread
    assert sorted(vectors(raw, prefix).values()) == ["a cat", "a dog"]


def test_append_of_an_equal_id_replaces_in_place(plain: Memory) -> None:
    append(plain, "a", "b", "c")
    before = rows_of(plain)
    plain.history.append([HumanMessage("new", id="b"), *said("d")], thread_id="t", resource_id="u")
    after = rows_of(plain)
    assert texts([row.message for row in after]) == ["a", "new", "c", "d"]
    assert [(row.seq, row.stored_at) for row in after[:3]] == [(row.seq, row.stored_at) for row in before]
    assert thread_of(plain).message_count == 4


def test_append_of_an_equal_id_replaces_its_vectors(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    long = " ".join(f"word{number}" for number in range(900))
    append(memory, "a", "b")
    for text in (long, "short", "", "a little longer than short", long[::-1]):
        memory.history.append([HumanMessage(text, id="b")], thread_id="t", resource_id="u")
        assert list(vectors(raw, prefix).values()) == ["a", *split(text, 400)]


def test_append_without_recall_takes_the_vectors_of_what_it_replaces(
    make_memory: Callable[..., Memory], memory: Memory, raw: redis.Redis, prefix: str
) -> None:
    append(memory, "a", "b")
    make_memory().history.append([HumanMessage("new", id="a")], thread_id="t", resource_id="u")
    assert list(vectors(raw, prefix).values()) == ["b"]


def test_append_with_the_same_id_twice_in_one_call_keeps_the_later_at_the_first_place(plain: Memory) -> None:
    twice = [HumanMessage("old", id="1"), HumanMessage("between", id="2"), HumanMessage("new", id="1")]
    plain.history.append(twice, thread_id="t", resource_id="u")
    assert texts(plain.history.messages("t")) == ["new", "between"]
    assert thread_of(plain).message_count == 2


def test_message_ids_are_per_thread(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    for thread_id in ("t1", "t2"):
        append(memory, "same", thread_id=thread_id)
    memory.history.update([HumanMessage("changed", id="same")], thread_id="t1")
    assert texts(memory.history.messages("t2")) == ["same"]
    memory.history.delete(["same"], thread_id="t1")
    assert texts(memory.history.messages("t2")) == ["same"]
    assert list(vectors(raw, prefix).values()) == ["same"]


def test_append_skips_prompts_summaries_and_what_memory_injected(plain: Memory) -> None:
    kept = said("kept")
    skipped = [
        SystemMessage("you are helpful"),
        HumanMessage("a summary", additional_kwargs={"lc_source": "summarization"}),
        AIMessage("recalled", additional_kwargs={"lc_source": "langchain_workingmem"}),
        RemoveMessage(id="x"),
    ]
    assert plain.history.append([*skipped, *kept], thread_id="t", resource_id="u") == kept
    assert plain.history.messages("t") == kept


def test_append_of_nothing_worth_keeping_makes_no_thread(plain: Memory) -> None:
    assert plain.history.append([SystemMessage("x")], thread_id="t", resource_id="u") == []
    assert plain.history.append([], thread_id="t", resource_id="u") == []
    assert plain.threads.get("t") is None


def test_append_accepts_whatever_langchain_accepts_as_messages(plain: Memory) -> None:
    given: list[Any] = [{"role": "user", "content": "a"}, ("assistant", "b"), "c", HumanMessage("d")]
    plain.history.append((item for item in given), thread_id="t", resource_id="u")
    plain.history.append(HumanMessage("e"), thread_id="t", resource_id="u")
    stored = plain.history.messages("t")
    assert [(message.type, message.content) for message in stored] == [
        *(("human", "a"), ("ai", "b"), ("human", "c"), ("human", "d"), ("human", "e"))
    ]


def test_append_refuses_a_lone_text(plain: Memory) -> None:
    with pytest.raises(OptionError, match=r"pass \[HumanMessage\(text\)\]"):
        plain.history.append("hello", thread_id="t", resource_id="u")


@pytest.mark.parametrize("lone", [{"role": "user", "content": "hello"}, ("user", "hello")])
def test_append_takes_a_lone_message_like_value_as_one_message(plain: Memory, lone: Any) -> None:
    # the values of a dict and the halves of a pair are no messages of their own
    with suppress(OptionError):
        plain.history.append(lone, thread_id="t", resource_id="u")
    assert texts(plain.history.messages("t")) in ([], ["hello"])


def test_a_tool_call_without_results_is_kept_and_completed_later(plain: Memory) -> None:
    call = AIMessage("", id="1", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "c1"}])
    result = ToolMessage("42", tool_call_id="c1", id="2")
    plain.history.append([call], thread_id="t", resource_id="u")
    assert plain.history.messages("t") == [call]
    plain.history.append([call, result], thread_id="t", resource_id="u")
    assert plain.history.messages("t") == [call, result]


def test_sequence_numbers_are_dense_and_times_rise_strictly(plain: Memory) -> None:
    append(plain, *map(str, range(300)))
    append(plain, *map(str, range(300, 310)))
    rows = rows_of(plain)
    assert [row.seq for row in rows] == list(range(310))
    times = [row.stored_at for row in rows]
    assert times == sorted(set(times))
    assert {row.thread_id for row in rows} == {"t"}
    assert times[0].tzinfo is UTC


# ---------------------------------------------------------------------- messages


@pytest.fixture
def ten(plain: Memory) -> Memory:
    """A thread t of the messages 0 to 9, every third of them of an ai."""
    messages = [(AIMessage if number % 3 == 2 else HumanMessage)(str(number), id=str(number)) for number in range(10)]
    plain.history.append(messages, thread_id="t", resource_id="u")
    return plain


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
    assert texts(ten.history.messages("t", resource_id="u", **choice)) == list(expected)


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
    assert (words_of(page.items), page.total) == (list("34"), 4)


def test_the_ends_of_time_are_bounds_like_any_other(ten: Memory) -> None:
    ends = {"since": datetime.min.replace(tzinfo=UTC), "until": datetime.max.replace(tzinfo=UTC)}
    assert texts(ten.history.messages("t", **ends)) == list("0123456789")  # type: ignore[arg-type]


def test_the_ends_of_local_time_are_bounds_like_any_other(ten: Memory) -> None:
    ends = {"since": datetime.min, "until": datetime.max}
    assert texts(ten.history.messages("t", **ends)) == list("0123456789")  # type: ignore[arg-type]


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("id", ["nowhere", "two  words", "{😀}", "a\nb"])
def test_an_unknown_message_as_a_bound_is_an_error_that_names_it(ten: Memory, side: str, id: str) -> None:
    with pytest.raises(MessageNotFoundError, match=r"history\.page\(\) lists the ids") as caught:
        ten.history.messages("t", **{side: id})  # type: ignore[arg-type]
    assert (caught.value.message_id, caught.value.thread_id) == (id, "t")
    assert isinstance(caught.value, LookupError)


def test_an_unknown_thread_has_no_messages(plain: Memory) -> None:
    assert plain.history.messages("nowhere", last=5) == []
    page = plain.history.page("nowhere")
    assert (page.items, page.total, page.next_cursor) == ([], 0, None)
    assert plain.history.delete(["x"], thread_id="nowhere") == 0
    assert plain.history.clear("nowhere") == 0
    assert plain.threads.get("nowhere") is None


def test_no_read_is_capped(plain: Memory) -> None:
    numbers = [str(number) for number in range(1200)]
    append(plain, *numbers)
    assert texts(plain.history.messages("t")) == numbers
    assert texts(plain.history.messages("t", last=1100)) == numbers[100:]
    assert texts(plain.history.messages("t", roles=["human"], last=1001)) == numbers[199:]
    assert texts(plain.history.messages("t", after="5", before="1190")) == numbers[6:1190]
    assert words_of(all_pages(lambda cursor: plain.history.page("t", cursor=cursor, limit=599))) == numbers
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
    assert words_of(all_pages(read)) == (expected[::-1] if descending else expected)
    assert totals == {10}


def test_paging_with_roles_counts_and_gives_those_only(ten: Memory) -> None:
    page = ten.history.page("t", limit=2, roles=["ai"])
    assert (words_of(page.items), page.total) == (["2", "5"], 3)
    page = ten.history.page("t", limit=2, roles=["ai"], cursor=page.next_cursor)
    assert (words_of(page.items), page.total, page.next_cursor) == (["8"], 3, None)
    page = ten.history.page("t", limit=2, roles=["ai"], descending=True)
    assert (words_of(page.items), page.total) == (["8", "5"], 3)


@pytest.mark.parametrize("descending", [False, True])
def test_paging_sees_each_message_once_while_others_arrive_and_leave(ten: Memory, descending: bool) -> None:
    arrived = count(10)

    def read(cursor: str | None) -> Page[StoredMessage]:
        page = ten.history.page("t", limit=2, cursor=cursor, descending=descending)
        ten.history.delete([str(row.message.id) for row in page], thread_id="t")  # the cursor's own message too
        if (number := next(arrived)) < 13:
            append(ten, str(number))
        return page

    seen = [int(text) for text in words_of(all_pages(read))]
    assert seen == (list(range(9, -1, -1)) if descending else list(range(13)))


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "1 ", "0x1", "nan", "5:a", "9" * 5000])
def test_a_bad_cursor_is_refused_with_the_remedy(ten: Memory, cursor: str) -> None:
    with pytest.raises(OptionError, match="pass the next_cursor of the page before, unchanged"):
        ten.history.page("t", cursor=cursor)


@pytest.mark.parametrize("cursor", ["", "x", "-1:t", "1.5:t", ":t", "9" * 5000 + ":t"])
def test_a_bad_cursor_of_a_resource_is_refused_with_the_remedy(ten: Memory, cursor: str) -> None:
    with pytest.raises(OptionError, match="pass the next_cursor of the page before, unchanged"):
        ten.history.for_resource("u", cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, True, 2.5, None])
def test_a_page_holds_at_least_one_message(ten: Memory, limit: Any) -> None:
    with pytest.raises(OptionError, match=r"limit=.*use an int of at least 1"):
        ten.history.page("t", limit=limit)
    with pytest.raises(OptionError, match=r"limit=.*use an int of at least 1"):
        ten.history.for_resource("u", limit=limit)


# ---------------------------------------------------------------------- update, delete, clear


def test_update_replaces_in_place_with_vectors_and_moves_the_threads_time(
    memory: Memory, raw: redis.Redis, prefix: str
) -> None:
    append(memory, "a", "b", "c")
    before, thread = rows_of(memory), thread_of(memory)
    new: list[BaseMessage] = [AIMessage("C", id="c"), HumanMessage("A", id="a", name="n")]
    assert memory.history.update(new, thread_id="t") == new
    after = rows_of(memory)
    assert [row.message for row in after] == [new[1], *said("b"), new[0]]
    assert [(row.seq, row.stored_at) for row in after] == [(row.seq, row.stored_at) for row in before]
    assert list(vectors(raw, prefix).values()) == ["A", "b", "C"]
    assert thread_of(memory).updated_at > thread.updated_at
    assert thread_of(memory).message_count == 3


def test_update_changes_all_or_nothing(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    append(memory, "a", "b")
    before, thread = rows_of(memory), thread_of(memory)
    with pytest.raises(MessageNotFoundError, match="no message 'gone' in thread 't'"):
        memory.history.update([HumanMessage("A", id="a"), *said("gone")], thread_id="t")
    assert (rows_of(memory), thread_of(memory)) == (before, thread)
    assert list(vectors(raw, prefix).values()) == ["a", "b"]


def test_update_in_no_thread_is_an_error_with_the_remedy(plain: Memory) -> None:
    with pytest.raises(ThreadNotFoundError, match=r"no thread 'nowhere': create it with threads\.create\(\)"):
        plain.history.update(said("a"), thread_id="nowhere")


def test_update_needs_ids(ten: Memory) -> None:
    with pytest.raises((OptionError, IdError), match=r"has no id: take it from history\.messages\(\)"):
        ten.history.update([HumanMessage("x")], thread_id="t")


def test_update_does_not_pass_over_a_message_that_is_not_there(ten: Memory) -> None:
    with pytest.raises((MessageNotFoundError, OptionError)):
        ten.history.update([SystemMessage("x", id="gone")], thread_id="t")


def test_delete_takes_messages_with_their_vectors_and_counts_them(
    memory: Memory, raw: redis.Redis, prefix: str
) -> None:
    append(memory, "a", "b", "c")
    before = thread_of(memory)
    assert memory.history.delete(["a", "nowhere", "c", "a"], thread_id="t") == 2
    assert texts(memory.history.messages("t")) == ["b"]
    assert list(vectors(raw, prefix).values()) == ["b"]
    after = thread_of(memory)
    assert after.message_count == 1
    assert after.updated_at > before.updated_at
    assert memory.history.delete(["a"], thread_id="t") == 0
    assert memory.history.delete([], thread_id="t") == 0
    assert thread_of(memory) == after


def test_delete_takes_a_lone_id_as_one_id(plain: Memory) -> None:
    append(plain, "a", "b", "ab")
    assert plain.history.delete("ab", thread_id="t") == 1
    assert texts(plain.history.messages("t")) == ["a", "b"]


def test_a_place_is_never_given_twice(plain: Memory) -> None:
    append(plain, "a", "b")
    plain.history.delete(["b"], thread_id="t")
    append(plain, "b")
    plain.history.clear("t")
    append(plain, "c")
    assert [(row.seq, row.message.id) for row in rows_of(plain)] == [(3, "c")]


def test_clear_leaves_the_thread_empty(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    memory.threads.create(thread_id="t", resource_id="u", title="T", metadata={"k": [1]})
    append(memory, "a", "b")
    before = thread_of(memory)
    assert memory.history.clear("t") == 2
    after = thread_of(memory)
    assert (after.title, after.metadata, after.message_count) == ("T", {"k": [1]}, 0)
    assert after.updated_at > before.updated_at
    assert memory.history.messages("t") == []
    assert vectors(raw, prefix) == {}


# ---------------------------------------------------------------------- for_resource


def _crowd(memory: Memory, raw: redis.Redis, prefix: str, *, ties: bool) -> list[tuple[datetime, str, str]]:
    """30 threads of 40 messages that were said in turns, in the order in which they must come back."""
    names = [f"t:{number}" for number in range(28)] + ["T", "😀"]
    for turn in range(40):
        for name in names:
            append(memory, f"{name}/{turn}", thread_id=name)
    append(memory, "mine", thread_id="other", resource_id="other")
    for name in names if ties else ():
        key = Keys(prefix).of(name).messages
        for id, value in cast("dict[bytes, bytes]", raw.hgetall(key)).items():
            at = 1_700_000_000_000_000 + int(id.rpartition(b"/")[2])
            raw.hset(key, id, re.sub(rb'"stored_at":\d+', b'"stored_at":%d' % at, value, count=1))
    rows = [row for name in names for row in rows_of(memory, name)]
    return sorted((row.stored_at, row.thread_id, str(row.message.id)) for row in rows)


@pytest.mark.parametrize("ties", [False, True])
def test_a_resources_messages_come_in_order_across_threads_and_pages(
    plain: Memory, raw: redis.Redis, prefix: str, ties: bool
) -> None:
    expected = _crowd(plain, raw, prefix, ties=ties)
    for limit, since in [(100, expected[0][0]), (7, expected[-300][0]), (1, expected[-61][0])]:
        wanted = [row for row in expected if row[0] >= since]
        read = partial(plain.history.for_resource, "u", limit=limit, since=since)
        assert read().total == len(wanted)
        found = all_pages(lambda cursor, read=read: read(cursor=cursor))  # type: ignore[misc]
        assert [(row.stored_at, row.thread_id, str(row.message.id)) for row in found] == wanted


def test_a_resources_messages_are_bounded_by_time_on_both_sides(plain: Memory) -> None:
    for text in "abcdef":
        append(plain, text, thread_id=f"t{ord(text) % 2}")
    times = {str(row.message.id): row.stored_at for row in plain.history.for_resource("u")}
    page = plain.history.for_resource("u", since=times["b"], until=times["e"], limit=3)
    assert (words_of(page.items), page.total) == (list("bcd"), 4)
    page = plain.history.for_resource("u", since=times["b"], until=times["e"], limit=3, cursor=page.next_cursor)
    assert (words_of(page.items), page.total, page.next_cursor) == (["e"], 4, None)


def test_a_resource_without_threads_has_no_messages(plain: Memory) -> None:
    page = plain.history.for_resource("nobody")
    assert (page.items, page.total, page.next_cursor) == ([], 0, None)


# ---------------------------------------------------------------------- ids and owners


def test_no_thread_id_reaches_the_messages_of_another(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    for id in NASTY_IDS:
        append(memory, f"word {id}", thread_id=id, resource_id=id)
    for id in NASTY_IDS:
        assert texts(memory.history.messages(id, resource_id=id)) == [f"word {id}"]
        assert [row.thread_id for row in memory.history.for_resource(id)] == [id]
        hits = memory.recall.search("word", resource_id=id, top_k=100).hits
        assert [hit.thread_id for hit in hits] == [id]
        hits = memory.recall.search("word", thread_id=id, scope="thread", top_k=100).hits
        assert [hit.thread_id for hit in hits] == [id]
    for id in NASTY_IDS[::2]:
        assert memory.history.clear(id) == 1
    left = {id: texts(memory.history.messages(id)) for id in NASTY_IDS}
    assert left == {id: [] if place % 2 == 0 else [f"word {id}"] for place, id in enumerate(NASTY_IDS)}
    assert len(vectors(raw, prefix)) == len(NASTY_IDS) // 2


def test_any_message_id_of_512_bytes_is_kept_as_it_is(plain: Memory) -> None:
    messages = [HumanMessage(str(place), id=id) for place, id in enumerate(NASTY_IDS)]
    plain.history.append(messages, thread_id="t", resource_id="u")
    assert [message.id for message in plain.history.messages("t")] == NASTY_IDS
    for place, id in enumerate(NASTY_IDS):
        assert len(plain.history.messages("t", before=id)) == place
    assert plain.history.delete(NASTY_IDS[1:], thread_id="t") == len(NASTY_IDS) - 1
    assert texts(plain.history.messages("t")) == ["0"]


CALLS: dict[str, Callable[[Memory, Any, Any], object]] = {
    "append": lambda memory, thread, owner: memory.history.append(said("x"), thread_id=thread, resource_id=owner),
    "messages": lambda memory, thread, owner: memory.history.messages(thread, resource_id=owner),
    "page": lambda memory, thread, owner: memory.history.page(thread, resource_id=owner),
    "update": lambda memory, thread, owner: memory.history.update(said("a"), thread_id=thread, resource_id=owner),
    "delete": lambda memory, thread, owner: memory.history.delete(["a"], thread_id=thread, resource_id=owner),
    "clear": lambda memory, thread, owner: memory.history.clear(thread, resource_id=owner),
}


@pytest.mark.parametrize("name", CALLS)
def test_another_owner_is_refused_and_nothing_happens(memory: Memory, name: str) -> None:
    append(memory, "a", "b")
    before = (rows_of(memory), thread_of(memory))
    with pytest.raises(ThreadOwnershipError, match=r"use a thread of that resource, or .* threads\.transfer\(\)"):
        CALLS[name](memory, "t", "U")
    assert (rows_of(memory), thread_of(memory)) == before


@pytest.mark.parametrize("id", BAD_IDS)
@pytest.mark.parametrize("name", CALLS)
def test_bad_thread_ids_are_refused(plain: Memory, name: str, id: Any) -> None:
    with pytest.raises(IdError, match="thread_id"):
        CALLS[name](plain, id, "u")


@pytest.mark.parametrize("id", BAD_IDS)
def test_bad_resource_ids_are_refused(plain: Memory, id: Any) -> None:
    for name, call in CALLS.items():
        if id is None and name != "append":  # there it means: whoever owns it
            continue
        with pytest.raises(IdError, match="resource_id"):
            call(plain, "t", id)
    with pytest.raises(IdError, match="resource_id"):
        plain.history.for_resource(id)


@pytest.mark.parametrize("id", [id for id in BAD_IDS if isinstance(id, str)])
def test_bad_message_ids_are_refused(ten: Memory, id: str) -> None:
    with pytest.raises(IdError, match="message id"):
        ten.history.append([HumanMessage("x", id=id)], thread_id="t", resource_id="u")
    with pytest.raises(IdError, match="message id"):
        ten.history.delete(["1", id], thread_id="t")
    with pytest.raises(IdError, match="before"):
        ten.history.messages("t", before=id)
    assert texts(ten.history.messages("t")) == list("0123456789")


# ---------------------------------------------------------------------- cost


@pytest.mark.parametrize("name", CALLS)
def test_each_operation_is_one_round_trip(memory: Memory, trips: Trips, name: str) -> None:
    append(memory, "a", "b")
    assert trips.of(lambda: CALLS[name](memory, "t", "u")) == 1


def test_a_page_of_a_resource_is_two_round_trips(memory: Memory, trips: Trips) -> None:
    for number in range(20):
        append(memory, "a", thread_id=str(number))
    assert trips.of(lambda: memory.history.for_resource("u", limit=3)) == 2


def test_a_server_that_forgot_the_scripts_is_taught_them_again(memory: Memory, raw: redis.Redis) -> None:
    append(memory, "a", "b")
    for name, call in CALLS.items():
        raw.script_flush()
        call(memory, "t", "u")
        if name == "append":
            assert texts(memory.history.messages("t")) == ["a", "b", "x"]
    raw.script_flush()
    assert memory.history.for_resource("u").total == 0


# ---------------------------------------------------------------------- against a list

_ids = st.sampled_from("abcdef")
_batch = st.lists(st.tuples(_ids, st.sampled_from(["", "cat", "dog bird", "word " * 500])), max_size=4)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), _batch),
        st.tuples(st.just("update"), _batch),
        st.tuples(st.just("delete"), st.lists(_ids, max_size=3)),
        st.tuples(st.just("clear"), st.just([])),
    ),
    max_size=10,
)
_run = count()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_steps)
def test_any_steps_leave_what_a_list_would_hold(
    memory: Memory, raw: redis.Redis, prefix: str, steps: list[tuple[str, Any]]
) -> None:
    model: dict[str, str] = {}
    thread = f"t{next(_run)}"
    memory.threads.create(thread_id=thread, resource_id="u")
    for step, given_ in steps:
        messages = [HumanMessage(text, id=id) for id, text in given_] if step in ("append", "update") else []
        if step == "append":
            memory.history.append(messages, thread_id=thread, resource_id="u")
            model |= dict(given_)
        elif step == "update" and any(id not in model for id, _ in given_):
            with pytest.raises(MessageNotFoundError):
                memory.history.update(messages, thread_id=thread)
        elif step == "update":
            memory.history.update(messages, thread_id=thread)
            model |= dict(given_)
        elif step == "delete":
            gone = {id for id in given_ if model.pop(id, None) is not None}
            assert memory.history.delete(given_, thread_id=thread) == len(gone)
        else:
            assert memory.history.clear(thread) == len(model)
            model.clear()
    assert [(message.id, message.content) for message in memory.history.messages(thread)] == list(model.items())
    assert thread_of(memory, thread).message_count == len(model)
    mine = [text for key, text in vectors(raw, prefix).items() if f"{{{thread}}}" in key]
    assert sorted(mine) == sorted(piece for text in model.values() for piece in split(text, 400))
