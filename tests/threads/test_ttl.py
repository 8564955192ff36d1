"""Threads that expire: as a whole, after the last write, in the end without a trace; vectors outlive them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage, message_to_dict

from langchain_workingmem import Memory, OptionError, RecallOptions, TitleOptions, WorkingMemoryOptions
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem._redis.scripts import renew_vectors
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embedded import wait_until
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Scripted
from tests.helpers.plans import meanwhile
from tests.helpers.threads import append, thread_of
from tests.helpers.types import Make

Keep = Callable[[timedelta | None], Memory]
IDS: dict[str, Any] = {"thread_id": "t", "user_id": "u"}
DAY, SHORT = timedelta(days=1), timedelta(milliseconds=400)
KINDS = ("thread", "order", "superseded", "messages", "ids", "media")


@pytest.fixture
def keep(make_memory: Make, embeddings: WordEmbeddings) -> Keep:
    """Make memories that differ in their ttl."""
    recall, notes = RecallOptions(message_range=0), WorkingMemoryOptions(template="", scope="thread")
    return lambda ttl: make_memory(embeddings=embeddings, recall=recall, working_memory=notes, ttl=ttl)


def ends(raw: redis.Redis, prefix: str) -> tuple[dict[str, int], list[int]]:
    """Return in how many ms each key of the thread t expires, and each of its vectors; for what never does, -1."""
    now, found = time.time() * 1000, {}
    for key in raw.scan_iter(f"{prefix}:*{{t}}*"):
        at = raw.pexpiretime(key)
        found[key.decode().removeprefix(prefix)] = at if at < 0 else round(at - now)
    return (
        {key: left for key, left in found.items() if ":vector:" not in key},
        [left for key, left in found.items() if ":vector:" in key],
    )


def lives(left: int, days: int = 1) -> bool:
    """Tell whether so many days are left, but for the time that the test has taken."""
    return days * 86_300_000 < left <= days * 86_400_000


def expire(raw: redis.Redis, prefix: str, thread: str = "t") -> None:
    """Take a thread away as when it expires: all that is its own in one instant, vectors later."""
    raw.delete(*(f"{prefix}:{kind}:{{{thread}}}" for kind in KINDS))


def documents(raw: redis.Redis, prefix: str, index: str) -> int:
    info: Any = raw.ft(f"{prefix}:{index}").info()  # type: ignore[no-untyped-call]
    return int(info["num_docs"])


@pytest.mark.parametrize("ttl", [timedelta(microseconds=999), 60])
def test_a_ttl_that_cannot_be_is_refused(ttl: Any) -> None:
    with pytest.raises(OptionError, match=r"ttl=.*timedelta of at least a millisecond"):
        Memory(ttl=ttl)


def test_all_of_a_thread_expires_in_one_instant_and_its_vectors_later(
    keep: Keep, raw: redis.Redis, prefix: str
) -> None:
    memory = keep(DAY)
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * 80_000}"}}
    first = [HumanMessage([{"type": "text", "text": "one"}, picture], id="q"), AIMessage("two", id="a")]
    memory.history.append(first, **IDS)
    memory.history.truncate("t", after="q")
    memory.history.append([AIMessage("three", id="b")], **IDS)
    memory.working_memory.update("tea", **IDS)
    before = {key: raw.pexpiretime(key) for key in raw.scan_iter(f"{prefix}:*{{t}}*")}
    memory.context("one", **IDS)
    memory.history.messages("t")
    assert {key: raw.pexpiretime(key) for key in before} == before, "reading puts nothing off"
    own, vectors = ends(raw, prefix)
    assert {key.partition("{")[0] for key in own} == {f":{kind}:" for kind in (*KINDS, "memory:t", "revisions:t")}
    assert len(set(own.values())) == 1
    assert all(map(lives, own.values()))
    assert all(lives(left, 2) for left in vectors)
    assert vectors


def test_the_working_memory_of_a_user_stays(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(template=""), ttl=DAY)
    memory.working_memory.update("tea", user_id="t")
    assert {*ends(raw, prefix)[0].values()} == {-1}


def test_every_write_puts_the_end_off(keep: Keep, server: EmbeddedRedis, raw: redis.Redis, prefix: str) -> None:
    memory = keep(DAY)

    def name() -> None:
        options = TitleOptions(model=Scripted.says("A title"), min_messages=1)
        with Memory(server.url, key_prefix=prefix, title=options) as titled:  # which waits for its model at its end
            append(titled, "five")
        assert thread_of(memory).title == "A title"

    append(memory, "one", "two", "six")
    memory.working_memory.update("tea", thread_id="t")
    writes: dict[str, Callable[[], Any]] = {
        "append": lambda: append(memory, "three"),
        "update a message": lambda: memory.history.update([HumanMessage("2", id="two")], thread_id="t"),
        "delete a message": lambda: memory.history.delete(["two"], thread_id="t"),
        "update": lambda: memory.threads.update("t", metadata={"a": 1}),
        "transfer": lambda: memory.threads.transfer("t", user_id="u", to="u"),
        "remember": lambda: memory.working_memory.update("milk", thread_id="t"),
        "forget": lambda: memory.working_memory.clear(thread_id="t"),
        "revert": lambda: memory.working_memory.revert(1, thread_id="t"),
        "title": name,
        "clear": lambda: memory.history.clear("t"),
        "append again": lambda: append(memory, "four"),
    }
    for what, write in writes.items():
        for key in raw.scan_iter(f"{prefix}:*:{{t}}*"):
            raw.pexpire(key, 60_000)
        raw.hset(Keys(prefix).of("t").thread, "vectors_until", 1)
        write()
        memory.settled()
        own, vectors = ends(raw, prefix)
        assert len(set(own.values())) == 1, what
        assert all(map(lives, own.values())), what
        assert bool(vectors) == (what != "clear"), what
        assert all(lives(left, 2) for left in vectors) or what == "title", what  # which another memory gave


def test_a_thread_takes_the_ttl_of_whoever_writes_to_it(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    append(keep(None), "one", "two")
    append(keep(DAY), "three")
    assert -1 not in ends(raw, prefix)[0].values()
    wait_until(lambda: -1 not in ends(raw, prefix)[1])  # the vectors follow in the background
    append(keep(10 * DAY), "four")
    wait_until(lambda: min(*ends(raw, prefix)[0].values(), *ends(raw, prefix)[1]) > 9 * 86_400_000)


def test_a_memory_without_ttl_leaves_that_of_a_thread_that_has_no_message_yet(
    keep: Keep, raw: redis.Redis, prefix: str
) -> None:
    keep(DAY).threads.create(**IDS)
    keep(None).save_turn([HumanMessage("a secret")], **IDS)
    own, vectors = ends(raw, prefix)
    assert all(map(lives, own.values()))
    assert [lives(left, 2) for left in vectors] == [True]


LONG_AGO = datetime.now(UTC) - timedelta(days=30)
DOG = HumanMessage("my dog is Rocky", id="1")


def import_old(memory: Memory) -> None:
    header = {"kind": "header", "format": "langchain-workingmem", "version": 1, "user_id": "u"}
    message = {"kind": "message", "thread_id": "t", "stored_at": LONG_AGO.isoformat(), "message": message_to_dict(DOG)}
    memory.users.load([header, {"kind": "thread", "id": "t"}, message])


def create_and_append_old(memory: Memory) -> None:
    memory.threads.create(**IDS)
    memory.history.append([DOG], said_at=LONG_AGO, **IDS)


@pytest.mark.parametrize("write", [import_old, create_and_append_old])
def test_vectors_outlive_the_thread_however_old_its_messages_are(
    keep: Keep, raw: redis.Redis, prefix: str, write: Callable[[Memory], None]
) -> None:
    memory = keep(DAY)
    write(memory)
    memory.settled()
    own, vectors = ends(raw, prefix)
    assert all(map(lives, own.values()))
    assert [DAY.total_seconds() * 1000 < left <= 2 * DAY.total_seconds() * 1000 for left in vectors] == [True]
    assert memory.recall.search("dog", **IDS).hits


def test_nothing_is_left_in_the_end(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    memory = keep(SHORT)
    memory.setup()
    append(memory, "one", "two")
    memory.working_memory.update("tea", thread_id="t")
    memory.threads.clone("t")
    assert documents(raw, prefix, "threads") == 2
    assert documents(raw, prefix, "vectors") == 4
    wait_until(lambda: memory.threads.get("t") is None)
    assert memory.history.page("t").total == 0
    assert memory.working_memory.get(thread_id="t").revision == 0
    assert len(memory.context("one", **IDS).messages) == 1
    wait_until(lambda: not list(raw.scan_iter(f"{prefix}:*{{*")))
    wait_until(lambda: documents(raw, prefix, "threads") + documents(raw, prefix, "vectors") == 0)
    assert memory.threads.list(user_id="u").items == []


@pytest.mark.parametrize("ttl", [DAY, None])
def test_a_thread_that_comes_back_is_not_mixed_up_with_the_one_that_expired(
    keep: Keep, raw: redis.Redis, prefix: str, ttl: timedelta | None
) -> None:
    old = keep(DAY)
    append(old, "the name of my dog is rex", "one", "milk")
    expire(raw, prefix)
    old_fields = [raw.hset(key, "metadata", "{}") for key in raw.scan_iter(f"{prefix}:vector:*")]
    new = keep(ttl)
    append(new, "a", "two", "milk")  # of another length, of the same length, the same
    assert sum(raw.hexists(key, "metadata") for key in raw.scan_iter(f"{prefix}:vector:*")) == len(old_fields)
    found = new.recall.search("the name of my dog", user_id="u", top_k=9)
    assert {"two", "milk"} <= {hit.message.content for hit in found} <= {"a", "two", "milk"}
    assert ttl or sorted(ends(raw, prefix)[1])[:3] == [-1, -1, -1]
    assert old.users.delete("u").verified
    assert ends(raw, prefix) == ({}, [])


def test_vectors_that_are_renewed_bring_no_deleted_thread_back(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    memory = keep(DAY)
    memory.history.append([DOG], **IDS)
    steps, plan = count(), renew_vectors(memory._core.state, "t")
    memory._core.run(meanwhile(plan, lambda _: next(steps) == 1 and memory.threads.delete("t")))
    assert not raw.exists(Keys(prefix).of("t").thread)
    assert memory.users.list().items == []


def test_a_vector_of_an_expired_thread_hides_no_message_of_the_new_one(
    keep: Keep, raw: redis.Redis, prefix: str
) -> None:
    append(keep(DAY), "dog cat")
    expire(raw, prefix)
    new = keep(DAY)
    append(new, "a cat is here")
    found = new.recall.search("dog cat", user_id="u", message_range=0)
    assert [hit.message.content for hit in found] == ["a cat is here"]
