"""What models do for a user in the background is counted where they store it, and goes with the user."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, TitleOptions
from langchain_workingmem.usage import UserUsage
from tests.helpers.models import Scripted
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
