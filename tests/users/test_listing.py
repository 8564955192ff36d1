"""The list of users: the owners of threads, newest first, in pages."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from langchain_workingmem import Memory, OptionError
from langchain_workingmem._redis.keys import Keys
from tests.helpers.odd_ids import NASTY_IDS
from tests.helpers.threads import append


def all_users(memory: Memory, limit: int) -> list[str]:
    found, cursor = list[str](), None
    while True:
        page = memory.users.list(limit=limit, cursor=cursor)
        assert len(page) == limit or page.next_cursor is None
        found += [one.user_id for one in page]
        if (cursor := page.next_cursor) is None:
            return found


def test_users_are_summed_up_and_who_was_active_last_comes_first(plain: Memory) -> None:
    append(plain, "hi", "there", thread_id="a", user_id="maya")
    append(plain, "hello", thread_id="b", user_id="ömar {x}")
    append(plain, "again", thread_id="c", user_id="maya")
    maya, omar = plain.users.list().items
    assert (maya.user_id, maya.threads, maya.messages) == ("maya", 2, 3)
    assert (omar.user_id, omar.threads, omar.messages) == ("ömar {x}", 1, 1)
    assert maya.updated_at == plain.threads.list(user_id="maya").items[0].updated_at
    plain.files.write("/a.md", "text", user_id="files only")  # who has no threads is not listed
    plain.threads.delete("b")
    plain.threads.transfer("a", user_id="maya", to="lena")
    assert [(one.user_id, one.messages) for one in plain.users.list()] == [("lena", 2), ("maya", 1)]


def test_pages_hold_each_user_once_whatever_the_ids_and_also_of_one_time(
    plain: Memory, raw: redis.Redis, prefix: str
) -> None:
    keys = Keys(prefix)
    for number, id in enumerate(NASTY_IDS):
        plain.threads.create(user_id=id, thread_id=f"t{number}")
        if number % 2:  # the others have times of their own
            raw.hset(keys.of(f"t{number}").thread, mapping={"updated_at": 1_700_000_000_000_000})
    every = all_users(plain, 1000)
    assert sorted(every) == sorted(NASTY_IDS)
    for limit in (1, 2, 7):
        assert all_users(plain, limit) == every


@pytest.mark.parametrize("choice", [{"limit": 0}, {"limit": 10_001}, {"cursor": "1"}, {"cursor": "x,u"}])
def test_an_impossible_page_of_users_is_refused(plain: Memory, choice: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=r"use |pass the next_cursor of the page before, unchanged"):
        plain.users.list(**choice)
