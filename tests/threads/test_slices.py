"""Long threads are deleted, cleared, transferred and truncated in slices; what holds is decided at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, RecallOptions, ThreadOwnershipError, WorkingMemError
from langchain_workingmem._engine.plan import SCRIPT_SOURCES, Plan
from langchain_workingmem._redis.access import Sweeping
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.history import History
from langchain_workingmem.history import operations as history
from langchain_workingmem.threads import Threads
from langchain_workingmem.threads import operations as threads
from langchain_workingmem.users import operations as users
from tests.helpers.crashes import CrashError, cut
from tests.helpers.embedded import wait_until
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.plans import plan_of

pytestmark = pytest.mark.programs

Make = Callable[..., Memory]
LONG = 1300  # messages: three slices
WORDS = ("tea", "milk", "bread", "honey")
IDS = {"thread_id": "t", "user_id": "u"}


def talk(memory: Memory, number: int, name: str = "m", **ids: str) -> None:
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
    """A thread t of the user u, too long for one slice."""
    memory = make_memory(embeddings=WordEmbeddings(8), recall=RecallOptions())
    talk(memory, LONG)
    return memory


def stored(raw: redis.Redis, prefix: str) -> dict[str, str]:
    """The vectors that are stored, with their owners."""
    keys = list(raw.scan_iter(f"{prefix}:vector:*", count=1000))
    pipe = raw.pipeline(transaction=False)
    for key in keys:
        pipe.hget(key, "user")
    return {
        key.decode().rpartition("{")[2]: owner.decode()
        for key, owner in zip(keys, pipe.execute(), strict=True)
        if owner
    }


def assert_settled(raw: redis.Redis, prefix: str) -> None:
    """No slice is left to be done, and the vectors are those of the messages on the current branches, with their owners."""
    assert list(raw.scan_iter(f"{prefix}:trash:*", count=1000)) == []
    wanted = {}
    for key in raw.scan_iter(f"{prefix}:thread:*", count=1000):
        thread: Any = raw.hgetall(key)
        assert not {b"renew_vectors_from", b"drop_vectors_from", b"trash", b"next_vectors_expire_at"} & set(thread)
        tag = key.decode().rpartition("{")[2]
        order: Any = raw.zrange(f"{prefix}:order:{{{tag}", 0, -1, withscores=True)
        assert int(thread[b"count"]) == len(order)
        for id, seq in order:
            body: Any = raw.hget(f"{prefix}:messages:{{{tag}", id)
            size, chunks = body.decode().split('"vectors":"')[1].split('"')[0].split("/")[1:]
            for chunk in range(int(chunks)):
                wanted[f"{tag}:{seq:.0f}:{chunk}:{size}"] = thread[b"user"].decode()
    assert stored(raw, prefix) == wanted


def shown(memory: Memory, user: str) -> set[str]:
    """All that a user is shown of the thread t, in whatever way."""
    found = {row.message.id or "" for row in memory.history.for_user(user, limit=10_000)}
    found |= {f"listed {thread.id}" for thread in memory.threads.list(user_id=user)}
    with suppress(ThreadOwnershipError):
        found |= {message.id or "" for message in memory.history.messages("t", user_id=user)}
    for text in WORDS:
        for scope in ("user", "thread"):
            with suppress(ThreadOwnershipError):
                recalled = memory.recall.search(text, thread_id="t", user_id=user, scope=scope, top_k=20)
                found |= {row.message.id or "" for row in recalled.rows}
        context = memory.context([HumanMessage(text, id="q")], thread_id="new", user_id=user)
        found |= {row.message.id or "" for row in context.recalled.rows}
    return found


# ------------------------------------------------------------------ the operations


OPERATIONS: dict[str, Callable[[Memory], Plan[Any]]] = {
    "delete": lambda memory: threads.delete(memory._core.state, "t", "u"),
    "clear": lambda memory: history.delete(memory._core.state, "t", "u", None),
    "some": lambda memory: history.delete(memory._core.state, "t", "u", [f"m{place}" for place in range(20, LONG)]),
    "truncate": lambda memory: plan_of(History.truncate, memory, "t", after="m4", user_id="u"),
    "transfer": lambda memory: plan_of(Threads.transfer, memory, "t", user_id="u", to="v"),
    "users.delete": lambda memory: users.delete(memory._core.state, "u", "mark"),
}
LEFT = {  # what the user u is shown from the first step on
    "delete": set(),
    "clear": {"listed t"},
    "some": {"listed t", *(f"m{place}" for place in range(20))},
    "truncate": {"listed t", *(f"m{place}" for place in range(5))},
    "transfer": set(),
}
WAYS: dict[str, Callable[[Memory], object]] = {  # to go on with what somebody has left undone
    "a write": lambda memory: memory.history.append([HumanMessage("again", id="w")], thread_id="t", user_id="x"),
    "reindex": lambda memory: memory.recall.reindex(progress=False),
    "users.delete": lambda memory: memory.users.delete("u"),
    "delete": lambda memory: memory.threads.delete("t"),
}


def wait_for(memory: Memory, raw: redis.Redis, prefix: str, field: str) -> None:
    """Wait until the thread has no such field; an event loop goes on with its background only while it is used."""

    def is_gone() -> bool:
        memory.threads.get("t")
        return not raw.hexists(f"{prefix}:thread:{{t}}", field) and "t" not in memory._core.state.room(Sweeping)

    wait_until(is_gone)


def crash(memory: Memory, name: str, after: int) -> None:
    with pytest.raises(CrashError):
        memory._core.run(cut(OPERATIONS[name](memory), after))


@pytest.mark.in_turn("after")
@pytest.mark.parametrize("name", LEFT)
@pytest.mark.parametrize("after", [1, 2])
def test_what_holds_in_the_end_is_shown_from_the_first_step_on(
    long: Memory, raw: redis.Redis, prefix: str, name: str, after: int
) -> None:
    crash(long, name, after)
    assert len(stored(raw, prefix)) > 100, "nothing is left to be done"
    assert shown(long, "u") == LEFT[name]
    if name == "transfer":
        assert {message.id for message in long.history.messages("t", user_id="v")} == {
            f"m{place}" for place in range(LONG)
        }
        hits = [hit for text in WORDS for hit in long.recall.search(text, user_id="v", top_k=50)]
        assert 0 < len(hits) <= 200  # the heir finds what has come so far
    else:
        assert shown(long, "v") == set()


@pytest.mark.in_turn("way")
@pytest.mark.parametrize("name", LEFT)
@pytest.mark.parametrize("way", WAYS)
def test_what_was_left_undone_is_finished_by_whoever_comes_next(
    long: Memory, other: Memory, raw: redis.Redis, prefix: str, name: str, way: str
) -> None:
    crash(long, name, 1)
    with suppress(WorkingMemError):
        if way == "a write":
            thread = other.threads.get("t")
            owner = "u" if thread is None else thread.user_id
            other.history.append([HumanMessage("again", id="w")], thread_id="t", user_id=owner)
        else:
            WAYS[way](other)
    other.close()  # which waits for what runs in the background
    assert_settled(raw, prefix)


@pytest.mark.parametrize("name", ["delete", "clear"])
def test_a_new_thread_of_the_same_name_keeps_its_vectors(
    long: Memory, other: Memory, raw: redis.Redis, prefix: str, name: str
) -> None:
    crash(long, name, 1)
    long._core.state.room(Sweeping).add("t")  # and nobody goes on yet
    talk(long, 40, "n")
    assert len(stored(raw, prefix)) > 100
    found = shown(long, "u")
    assert found <= {"listed t", *(f"n{place}" for place in range(40))}
    assert {f"n{place}" for place in range(40)} <= found
    crash(long, name, 1)  # a second trash beside the first
    talk(long, 30, "o")
    assert {f"o{place}" for place in range(30)} <= shown(long, "u")
    other.recall.reindex(progress=False)
    assert_settled(raw, prefix)
    assert len(stored(raw, prefix)) == 30
    assert {hit.message.id for hit in long.recall.search("tea", user_id="u", top_k=30)} == {
        f"o{place}" for place in range(30)
    }


def test_a_message_that_comes_back_before_its_vector_went_belongs_to_the_heir_of_its_thread(
    long: Memory, other: Memory, raw: redis.Redis, prefix: str
) -> None:
    crash(long, "truncate", 1)
    crash(long, "transfer", 1)
    last = LONG - 1
    again = AIMessage(f"{WORDS[last % 4]} m {last}", id=f"m{last}")
    other.history.append([again], thread_id="t", user_id="v")
    other.close()  # which waits for what runs in the background
    assert_settled(raw, prefix)


@pytest.mark.in_turn("earlier")
@pytest.mark.parametrize("after", ["m4", "m700", f"m{LONG - 3}"])
@pytest.mark.parametrize("earlier", [0, 900])
def test_a_truncation_leaves_the_same_behind_wherever_it_cuts(
    long: Memory, raw: redis.Redis, prefix: str, after: str, earlier: int
) -> None:
    """Whichever part is smaller is copied: the one that stays, the one that goes, or what was superseded before."""
    if earlier:
        talk(long, earlier, "z")
        assert long.history.truncate("t", after=f"m{LONG - 1}") == earlier
    place = int(after[1:])
    assert long.history.truncate("t", after=after) == LONG - place - 1
    assert [message.id for message in long.history.messages("t")] == [f"m{at}" for at in range(place + 1)]
    behind = [row.message.id for row in long.history.page("t", limit=10_000)]
    assert len(behind) == place + 1
    everything = [message.id for message in long.history.messages("t", superseded=True)]
    assert everything == [*(f"m{at}" for at in range(LONG)), *(f"z{at}" for at in range(earlier))]
    assert_settled(raw, prefix)
    context = long.context([HumanMessage("next", id="q")], thread_id="t", user_id="u")
    assert [message.id for message in context.messages][-2] == after


# ------------------------------------------------------------------ the cost


# ------------------------------------------------------------------ leases


def test_vectors_outlive_their_thread_also_when_the_renewal_is_interrupted(
    make_memory: Make, raw: redis.Redis, prefix: str
) -> None:
    memory = make_memory(embeddings=WordEmbeddings(8), recall=RecallOptions(), ttl=timedelta(days=1))
    talk(memory, LONG)
    key = f"{prefix}:thread:{{t}}"
    wait_for(memory, raw, prefix, "renew_vectors_from")
    memory._core.state.room(Sweeping).add("t")  # whoever should go on dies each time
    for place in range(3):
        due = round((time.time() + 86_400 + 60) * 1000)
        for vector in raw.scan_iter(f"{prefix}:vector:*", count=1000):
            raw.pexpireat(vector, due)
        raw.hset(key, "vectors_expire_at", due)
        raw.hdel(key, "next_vectors_expire_at")
        memory.history.append([HumanMessage("one more", id=f"w{place}")], **IDS)
        assert raw.hexists(key, "renew_vectors_from")
        ends = {raw.pexpiretime(vector) for vector in raw.scan_iter(f"{prefix}:vector:*", count=1000)}
        assert min(ends) >= raw.pexpiretime(key)
    memory._core.state.room(Sweeping).discard("t")
    memory.history.append([HumanMessage("the last", id="last")], **IDS)
    wait_for(memory, raw, prefix, "renew_vectors_from")
    assert len({raw.pexpiretime(vector) for vector in raw.scan_iter(f"{prefix}:vector:*", count=1000)}) == 1
    assert_settled(raw, prefix)


# ------------------------------------------------------------------ writers


def test_writers_at_work_and_slices_leave_every_vector_where_it_belongs(
    server: EmbeddedRedis, raw: redis.Redis, prefix: str
) -> None:
    stop = threading.Event()
    failures: list[Exception] = []

    def memory() -> Memory:
        return Memory(server.url, key_prefix=prefix, embeddings=WordEmbeddings(8), recall=RecallOptions())

    def write(number: int) -> None:
        with memory() as mine:
            place = 0
            while not stop.is_set():
                with suppress(WorkingMemError):  # somebody else's at the moment
                    talk(mine, 20, f"w{number}-{place}-")
                with suppress(WorkingMemError):
                    mine.history.update([HumanMessage("changed", id=f"w{number}-{place}-3")], thread_id="t")
                place += 1

    def guard(number: int) -> None:
        try:
            write(number)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test tells
            failures.append(error)

    writers = [threading.Thread(target=guard, args=(number,)) for number in range(3)]
    with memory() as mine:
        for writer in writers:
            writer.start()
        for place in range(4):
            with suppress(WorkingMemError):
                talk(mine, LONG, f"r{place}-")
            with suppress(WorkingMemError):
                mine.threads.transfer("t", user_id="u", to="v")
            with suppress(WorkingMemError):
                mine.history.truncate("t", after=f"r{place}-10")
            with suppress(WorkingMemError):
                mine.threads.transfer("t", user_id="v", to="u")
            mine.history.clear("t") if place % 2 else mine.threads.delete("t")
        stop.set()
        for writer in writers:
            writer.join()
        assert failures == []
        mine.recall.reindex(progress=False)
    with memory() as last:
        last.recall.reindex(progress=False)
    assert_settled(raw, prefix)
