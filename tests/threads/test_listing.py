from __future__ import annotations

from typing import Any, Literal

import pytest
import redis

from langchain_workingmem import Memory, OptionError
from langchain_workingmem._redis.keys import Keys
from tests.helpers.threads import append
from tests.threads.test_threads import all_threads, ids

OrderBy = Literal["updated_at", "created_at"]


def test_list_shows_the_newest_first_in_pages(plain: Memory) -> None:
    for name in "abc":
        plain.threads.create(user_id="u", thread_id=name)
    append(plain, "hi", thread_id="a")
    assert ids(plain.threads.list(user_id="u")) == ["a", "c", "b"]
    assert ids(plain.threads.list(user_id="u", descending=False)) == ["b", "c", "a"]
    assert ids(plain.threads.list(user_id="u", order_by="created_at")) == ["c", "b", "a"]
    assert ids(plain.threads.list(order_by="created_at", descending=False)) == ["a", "b", "c"]
    for limit in (1, 2, 3):
        assert all_threads(plain, user_id="u", limit=limit) == ["a", "c", "b"]


@pytest.mark.parametrize("order_by", ["updated_at", "created_at"])
@pytest.mark.parametrize("descending", [True, False])
def test_threads_of_one_time_come_once_each_by_cursors_of_one_size(
    plain: Memory, raw: redis.Redis, prefix: str, order_by: OrderBy, descending: bool
) -> None:
    plain.setup()
    names = [f"t{number} {{é}}" for number in range(2_000)]
    at = 1_700_000_000_000_000
    row: Any = {"user": "u", "created_at": at, "updated_at": at, "count": 0, "next_seq": 0}
    with raw.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.hset(Keys(prefix).of(name).thread, mapping=row)
        pipe.execute()
    assert len(plain.threads.list(limit=199, order_by=order_by).next_cursor or "") < 60
    seen = all_threads(plain, limit=199, order_by=order_by, descending=descending)
    assert len(seen) == len(names)
    assert set(seen) == set(names)


def test_list_by_creation_sees_each_thread_once_while_others_come_and_go(plain: Memory) -> None:
    made = [plain.threads.create(user_id="u").id for _ in range(10)]
    page = plain.threads.list(user_id="u", limit=4, order_by="created_at")
    plain.threads.create(user_id="u", thread_id="late")
    for name in ids(page):
        plain.threads.delete(name)
    rest = plain.threads.list(user_id="u", limit=100, order_by="created_at", cursor=page.next_cursor)
    assert ids(page) + ids(rest) == made[::-1]
    assert rest.total == 7


@pytest.mark.parametrize("descending", [True, False])
def test_list_by_change_skips_no_thread_that_stays_when_a_seen_one_moves(plain: Memory, descending: bool) -> None:
    made = [plain.threads.create(user_id="u").id for _ in range(10)]
    expected = made[::-1] if descending else made
    page = plain.threads.list(user_id="u", limit=4, descending=descending)
    append(plain, "hi", thread_id=page.items[-1].id)
    rest = plain.threads.list(user_id="u", limit=100, descending=descending, cursor=page.next_cursor)
    moved = [] if descending else [expected[3]]  # to the end, which this order has not reached yet
    assert ids(page) + ids(rest) == expected + moved


def test_list_filters_by_every_pair_of_metadata(plain: Memory) -> None:
    """Of any key; tests/recall/test_filters.py has all else that a filter may say."""
    pairs: dict[str, Any] = {"both": {"x": [1, 2], "y": None}, "other": {"x": [2, 1], "y": None}, "none": None}
    for name, value in pairs.items():
        plain.threads.create(user_id="u", thread_id=name, metadata={"n": value, "topic": "a|b"})
    plain.threads.create(user_id="other", metadata={"topic": "a|b"})
    for metadata, found in (
        ({"topic": "a|b", "n": {"y": None, "x": (1, 2)}}, ["both"]),  # order of keys and kind of list are no JSON
        ({"n": {"x": [1, 2]}}, ["both"]),  # a dict matches those that have its pairs
        ({"n": {"$eq": {"x": [1, 2]}}}, []),
        ({"topic": "A|b"}, []),
        ({"nothing": None}, [*pairs]),
    ):
        assert ids(plain.threads.list(user_id="u", metadata=metadata, descending=False)) == found


CURSORS = ("", "x", "1:", "-1:0", "1:0:0", "1:" + "9" * 20, "9" * 5000 + ":0")
CHOICES: list[dict[str, Any]] = [{"limit": 0}, {"order_by": "title"}, {"limit": 2_000_000}]


@pytest.mark.parametrize("choice", [*CHOICES, *({"cursor": cursor} for cursor in CURSORS)])
def test_an_impossible_list_is_refused_with_the_remedy(plain: Memory, choice: dict[str, Any]) -> None:
    remedy = "pass the next_cursor of the page before, unchanged" if "cursor" in choice else "use "
    with pytest.raises(OptionError, match=remedy):
        plain.threads.list(**choice)
