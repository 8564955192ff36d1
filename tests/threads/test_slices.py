"""Long threads are deleted, cleared, transferred and truncated in steps; what holds is decided in the first one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, RecallOptions, ThreadOwnershipError, WorkingMemError, users
from langchain_workingmem._engine.plan import SCRIPT_SOURCES, Plan
from langchain_workingmem._redis.keys import Facts
from langchain_workingmem._redis.scripts import vector_names
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.history import History
from langchain_workingmem.threads import Threads
from tests.helpers.crashes import CrashError, cut
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.plans import plan_of
from tests.helpers.types import Make

LONG = 1300  # messages: three steps
WORDS = ("tea", "milk", "bread", "honey")
IDS: Any = {"thread_id": "t", "user_id": "u"}


def talk(memory: Memory, number: int, name: str = "m", **ids: Any) -> None:
    said = [
        (AIMessage if place % 2 else HumanMessage)(f"{WORDS[place % 4]} {name} {place}", id=f"{name}{place}")
        for place in range(number)
    ]
    memory.history.append(said, **{**IDS, **ids})


@pytest.fixture
def other(server: EmbeddedRedis, prefix: str) -> Iterator[Memory]:
    """Another process."""
    with Memory(server.url, key_prefix=prefix, embeddings=WordEmbeddings(8), recall=RecallOptions()) as memory:
        yield memory


@pytest.fixture(autouse=True)
def taught(raw: redis.Redis) -> None:
    """Let the server know the scripts, so that the first step of an operation is its script."""
    for source in SCRIPT_SOURCES.values():
        raw.script_load(source)


@pytest.fixture
def long(make_memory: Make) -> Memory:
    """A thread t of the user u, too long for one step."""
    memory = make_memory(embeddings=WordEmbeddings(8), recall=RecallOptions())
    talk(memory, LONG)
    return memory


def stored(raw: redis.Redis, prefix: str) -> dict[str, str]:
    """The vectors that are stored, with their owners."""
    keys = [key.decode() for key in raw.scan_iter(f"{prefix}:vector:*", count=1000)]
    return {key: (raw.hget(key, "user") or b"").decode() for key in keys}  # type: ignore[union-attr]


def assert_settled(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    """Nothing is left to be done, and the vectors are those of the current messages, with their owners."""
    assert list(raw.scan_iter(f"{prefix}:dropped:*", count=1000)) == []
    wanted: dict[str, Any] = {}
    for thread in memory.threads.list(limit=100):
        keys = memory._core.state.keys.of(thread.id)
        members: Any = raw.zrange(keys.order, 0, -1)
        assert thread.message_count == len(members)
        for member in members:
            names = vector_names(keys.vector, Facts.read(member.decode()))
            assert names
            wanted |= dict.fromkeys(names, thread.user_id)
    assert stored(raw, prefix) == wanted


def shown(memory: Memory, user: str) -> set[str]:
    """All that a user is shown of the thread t, in whatever way."""
    found = {row.message.id or "" for row in memory.history.for_user(user, limit=10_000)}
    found |= {f"listed {thread.id}" for thread in memory.threads.list(user_id=user)}
    with suppress(ThreadOwnershipError):
        found |= {message.id or "" for message in memory.history.messages("t", user_id=user)}
    for text in WORDS:
        with suppress(ThreadOwnershipError):
            found |= {row.message.id or "" for row in memory.recall.search(text, user_id=user, top_k=20).rows}
    return found


OPERATIONS: dict[str, Callable[[Memory], Plan[Any]]] = {
    "delete": lambda memory: plan_of(Threads.delete, memory, "t", user_id="u"),
    "clear": lambda memory: plan_of(History.clear, memory, "t", user_id="u"),
    "truncate": lambda memory: plan_of(History.truncate, memory, "t", after="m4", user_id="u"),
    "transfer": lambda memory: plan_of(Threads.transfer, memory, "t", user_id="u", to="v"),
    "users.delete": lambda memory: users.delete(memory._core.state, "u", "mark"),
}
LEFT: dict[str, set[str]] = {  # what the user u is shown from the first step on
    "delete": set(),
    "clear": {"listed t"},
    "truncate": {"listed t", *(f"m{place}" for place in range(5))},
    "transfer": set(),
}
WAYS: dict[str, Callable[[Memory], object]] = {  # to go on with what somebody has left undone
    "delete": lambda memory: memory.recall.reindex(progress=False),
    "clear": lambda memory: memory.users.delete("u"),
    "truncate": lambda memory: memory.threads.delete("t"),
    "transfer": lambda memory: memory.threads.transfer("t", user_id="v", to="v"),
}


def crash(memory: Memory, name: str, after: int) -> None:
    with pytest.raises(CrashError):
        memory._core.run(cut(OPERATIONS[name](memory), after))


@pytest.mark.parametrize("name", LEFT)
def test_what_holds_in_the_end_is_shown_from_the_first_step_on(
    long: Memory, raw: redis.Redis, prefix: str, name: str
) -> None:
    crash(long, name, 1)
    assert len(stored(raw, prefix)) > 100, "nothing is left to be done"
    assert shown(long, "u") == LEFT[name]
    if name == "transfer":
        assert len(long.history.messages("t", user_id="v")) == LONG
        assert long.recall.search("tea", user_id="v").hits  # the heir finds what has come so far
    else:
        assert shown(long, "v") == set()


@pytest.mark.parametrize("name", WAYS)
def test_what_was_left_undone_is_finished_by_whoever_comes_next(
    long: Memory, other: Memory, raw: redis.Redis, prefix: str, name: str
) -> None:
    crash(long, name, 1)
    assert {*stored(raw, prefix).values()} == ({"u", "v"} if name == "transfer" else {"u"})
    WAYS[name](other)
    assert_settled(other, raw, prefix)


@pytest.mark.parametrize("name", ["delete", "clear"])
def test_a_new_thread_of_the_same_name_keeps_its_vectors(
    long: Memory, other: Memory, raw: redis.Redis, prefix: str, name: str
) -> None:
    crash(long, name, 1)
    assert len(stored(raw, prefix)) > 100, "nothing is left to be done"
    talk(long, 40, "n")  # which may finish the rest in the background
    assert shown(long, "u") == {"listed t", *(f"n{place}" for place in range(40))}
    assert other.recall.reindex(progress=False) == 0
    assert_settled(other, raw, prefix)
    assert len(stored(raw, prefix)) == 40


def test_a_message_that_comes_back_before_its_vector_went_is_found(
    long: Memory, other: Memory, raw: redis.Redis, prefix: str
) -> None:
    crash(long, "truncate", 1)
    last = LONG - 1
    other.history.append([AIMessage(f"{WORDS[last % 4]} m {last}", id=f"m{last}")], **IDS)
    other.settled()
    other.recall.reindex(progress=False)
    assert_settled(other, raw, prefix)
    assert f"m{last}" in {hit.message.id for hit in other.recall.search(f"m {last}", user_id="u", top_k=9)}


def test_the_user_may_be_deleted_between_the_steps_of_a_transfer(
    long: Memory, other: Memory, raw: redis.Redis, prefix: str
) -> None:
    crash(long, "transfer", 1)
    crash(other, "users.delete", 2)
    with pytest.raises(WorkingMemError):
        long.threads.transfer("t", user_id="u", to="v")
    assert other.users.delete("u").verified
    assert "u" not in stored(raw, prefix).values()
