"""What memory tells about users: what models do for them in the background, and who has threads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, OptionError, TitleOptions
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem.usage import UserUsage
from tests.helpers.models import Scripted
from tests.helpers.odd_ids import NASTY_IDS
from tests.helpers.threads import append
from tests.helpers.types import Make

NONE = UserUsage()
TURN = [HumanMessage("I live in Xanadu", id="1"), AIMessage("noted", id="2")]


def billed(text: str, read: int, written: int) -> AIMessage:
    usage: Any = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
    return AIMessage(text, usage_metadata=usage)


def save(memory: Memory, user: str = "u", thread: str = "t") -> None:
    memory.save_turn([one.model_copy() for one in TURN], thread_id=thread, user_id=user)
    memory.settled()


def titled(make: Make, *script: Any, **more: Any) -> Memory:
    return make(title=TitleOptions(model=Scripted.says(*script)), **more)


def keys(raw: redis.Redis, prefix: str) -> list[bytes]:
    return [*raw.scan_iter(f"{prefix}:usage:*")]


def test_titles_are_counted_for_the_user_and_go_with_the_user(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    memory = titled(make_memory, billed("Xanadu", 7, 3), "two", ttl=timedelta(days=1))
    assert memory.users.usage("u") == NONE
    save(memory)
    usage = memory.users.usage("u")
    assert usage == UserUsage(calls=1, input_tokens=7, output_tokens=3)
    assert 86_000 < raw.ttl(keys(raw, prefix)[0]) <= 86_400  # after the last work
    memory.threads.delete("t", user_id="u")
    assert memory.users.usage("u") == usage  # what was paid for stays paid for
    save(memory, "v", "other")
    assert memory.users.delete("u").verified
    assert memory.users.usage("u") == NONE
    assert keys(raw, prefix) == [f"{prefix}:usage:u:{{v}}".encode()]


def test_a_merge_adds_them_up(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    memory = titled(make_memory, billed("one", 7, 3), billed("two", 70, 30))
    save(memory, "guest")
    save(memory, "u", "other")
    for _ in range(2):  # also if it is called again
        memory.users.merge("guest", into="u")
        assert memory.users.usage("u") == UserUsage(calls=2, input_tokens=77, output_tokens=33)
    assert keys(raw, prefix) == [f"{prefix}:usage:u:{{u}}".encode()]


GOING: dict[str, Callable[[Memory], object]] = {
    "deleted": lambda memory: memory.users.delete("u"),
    "merged": lambda memory: memory.users.merge("u", into="heir"),
    "without the thread": lambda memory: memory.threads.delete("t"),
}


@pytest.mark.parametrize("what", GOING)
def test_late_work_brings_no_user_back(make_memory: Make, raw: redis.Redis, prefix: str, what: str) -> None:
    other = make_memory()

    def answer(_: object) -> str:
        GOING[what](other)
        return "Xanadu"

    model = Scripted.says(answer)
    save(make_memory(title=TitleOptions(model=model)))
    assert len(model.seen) == 1
    assert keys(raw, prefix) == []


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
