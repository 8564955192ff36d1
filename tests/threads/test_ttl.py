"""Threads that expire: as a whole, after the last write, and without a trace in the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, OptionError, RecallOptions, TitleOptions, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embedded import wait_until
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Scripted

pytestmark = pytest.mark.programs

Make = Callable[..., Memory]
DAY = timedelta(days=1)
SHORT = timedelta(milliseconds=400)


@pytest.fixture
def keep(make_memory: Make, embeddings: WordEmbeddings) -> Callable[[timedelta | None], Memory]:
    """Make memories that differ in their ttl."""

    def made(ttl: timedelta | None) -> Memory:
        return make_memory(
            embeddings=embeddings,
            recall=RecallOptions(message_range=0),
            working_memory=WorkingMemoryOptions(template="", scope="thread"),
            ttl=ttl,
        )

    return made


Keep = Callable[[timedelta | None], Memory]


def say(memory: Memory, *texts: str, thread: str = "t", user: str = "u") -> None:
    memory.history.append([HumanMessage(text, id=text) for text in texts], thread_id=thread, user_id=user)


def ends(raw: redis.Redis, prefix: str, pattern: str = "*:{t}*") -> dict[str, int]:
    """Return when each key expires, in ms since the epoch; -1: never."""
    return {key.decode().removeprefix(prefix): raw.pexpiretime(key) for key in raw.scan_iter(f"{prefix}:{pattern}")}


KINDS = ("thread", "order", "superseded", "messages", "ids", "media")


def branch(memory: Memory) -> None:
    """Write into every key that a thread may have."""
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * 80_000}"}}
    first = [HumanMessage([{"type": "text", "text": "one"}, picture], id="q"), AIMessage("two", id="a")]
    memory.history.append(first, thread_id="t", user_id="u")
    memory.history.truncate("t", after="q")
    memory.history.append([AIMessage("three", id="b")], thread_id="t", user_id="u")


def expire(raw: redis.Redis, prefix: str, thread: str) -> None:
    """Take a thread away as when it expires: all that is its own in one instant, vectors later."""
    raw.delete(*(f"{prefix}:{kind}:{{{thread}}}" for kind in KINDS))


def documents(raw: redis.Redis, prefix: str, index: str) -> int:
    info: Any = raw.ft(f"{prefix}:{index}").info()  # type: ignore[no-untyped-call]
    return int(info["num_docs"])


# ------------------------------------------------------------------ the option


@pytest.mark.parametrize("ttl", [timedelta(microseconds=999), 60])
def test_a_ttl_that_cannot_be_is_refused(ttl: Any) -> None:
    with pytest.raises(OptionError, match=r"ttl=.*timedelta of at least a millisecond"):
        Memory(ttl=ttl)


# ------------------------------------------------------------------ what expires, and when


def test_all_of_a_thread_expires_in_one_instant_and_its_vectors_later(
    keep: Keep, raw: redis.Redis, prefix: str
) -> None:
    memory = keep(DAY)
    branch(memory)
    memory.working_memory.update("tea", thread_id="t", user_id="u")
    before = ends(raw, prefix)
    memory.context("one", thread_id="t", user_id="u")
    memory.history.messages("t")
    found = ends(raw, prefix)
    assert found == before, "reading puts nothing off"
    own = {key: end for key, end in found.items() if ":vector:" not in key}
    assert sorted(key.partition("{")[0] for key in own) == sorted(
        f":{kind}:" for kind in [*KINDS, "memory:t", "revisions:t"]
    )
    assert len(set(own.values())) == 1
    left = min(own.values()) / 1000 - time.time()
    assert 86_300 < left <= 86_400
    vectors = {end for key, end in found.items() if ":vector:" in key}
    assert max(vectors) - min(vectors) < 1000
    assert 2 * 86_300 < min(vectors) / 1000 - time.time() <= 2 * 86_400


def test_the_working_memory_of_a_user_stays(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(template=""), ttl=DAY)
    memory.working_memory.update("tea", user_id="u")
    assert set(ends(raw, prefix, "*:{u}").values()) == {-1}


def test_every_write_puts_the_end_off(keep: Keep, server: EmbeddedRedis, raw: redis.Redis, prefix: str) -> None:
    memory = keep(DAY)

    def name() -> None:
        options = TitleOptions(model=Scripted.says("A title"), min_messages=1)
        with Memory(server.url, key_prefix=prefix, title=options) as titled:  # which waits for its model at its end
            say(titled, "five")
        thread = memory.threads.get("t")
        assert thread is not None
        assert thread.title == "A title"

    say(memory, "one", "two")
    memory.working_memory.update("tea", thread_id="t")
    writes: dict[str, Callable[[], Any]] = {
        "append": lambda: say(memory, "three"),
        "update a message": lambda: memory.history.update([HumanMessage("2", id="two")], thread_id="t"),
        "delete a message": lambda: memory.history.delete(["two"], thread_id="t"),
        "clear": lambda: memory.history.clear("t"),
        "append again": lambda: say(memory, "four"),
        "update": lambda: memory.threads.update("t", metadata={"a": 1}),
        "transfer": lambda: memory.threads.transfer("t", user_id="u", to="u"),
        "remember": lambda: memory.working_memory.update("milk", thread_id="t"),
        "forget": lambda: memory.working_memory.clear(thread_id="t"),
        "revert": lambda: memory.working_memory.revert(1, thread_id="t"),
        "title": name,
    }
    for what, write in writes.items():
        soon = round(time.time() * 1000) + 60_000
        for key in raw.scan_iter(f"{prefix}:*:{{t}}"):
            raw.pexpireat(key, soon)
        write()
        own = {key: end for key, end in ends(raw, prefix).items() if ":vector:" not in key}
        assert len(set(own.values())) == 1, what
        assert min(own.values()) > soon, what


def test_a_thread_takes_the_ttl_of_whoever_writes_to_it(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    say(keep(None), "one", "two")
    say(keep(DAY), "three")
    found = ends(raw, prefix)
    assert -1 not in {end for key, end in found.items() if ":vector:" not in key}
    wait_until(lambda: -1 not in ends(raw, prefix).values())  # the vectors follow in the background
    say(keep(10 * DAY), "four")
    wait_until(lambda: min(ends(raw, prefix).values()) / 1000 - time.time() > 9 * 86_400)


# ------------------------------------------------------------------ the end


def test_nothing_is_left_in_the_end(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    memory = keep(SHORT)
    memory.setup()
    say(memory, "one", "two")
    memory.working_memory.update("tea", thread_id="t")
    memory.threads.clone("t")
    assert documents(raw, prefix, "threads") == 2
    assert documents(raw, prefix, "vectors") == 4
    wait_until(lambda: memory.threads.get("t") is None)
    assert memory.history.page("t").total == 0
    assert memory.working_memory.get(thread_id="t").revision == 0
    assert len(memory.context("one", thread_id="t", user_id="u").messages) == 1
    wait_until(lambda: not list(raw.scan_iter(f"{prefix}:*{{*")))
    wait_until(lambda: documents(raw, prefix, "threads") + documents(raw, prefix, "vectors") == 0)
    assert memory.threads.list(user_id="u").items == []


def test_the_dead_are_not_recalled(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    memory = keep(DAY)
    for place in range(12):
        say(memory, f"tea tea {place}", thread=f"dead{place}")
    say(memory, "tea and a lot of other words", "tea and still more words of all kinds", thread="alive")
    for place in range(12):
        expire(raw, prefix, f"dead{place}")
    hits = memory.recall.search("tea tea", user_id="u", top_k=2).hits
    assert {hit.thread_id for hit in hits} <= {"alive"}
    assert {hit.thread_id for hit in memory.recall.search("tea tea", user_id="u", top_k=20).hits} == {"alive"}
    assert memory.recall.search("tea tea", user_id="u", thread_id="dead1", scope="thread").hits == []


@pytest.mark.parametrize("ttl", [DAY, None])
def test_a_thread_that_comes_back_is_not_mixed_up_with_the_one_that_expired(
    keep: Keep, raw: redis.Redis, prefix: str, ttl: timedelta | None
) -> None:
    old = keep(DAY)
    say(old, "the name of my dog is rex", "one", "milk")
    expire(raw, prefix, "t")
    new = keep(ttl)
    say(new, "a", "two", "milk")  # of another length, of the same length, the same
    found = new.recall.search("the name of my dog", user_id="u", top_k=9)
    assert {"two", "milk"} <= {hit.message.content for hit in found} <= {"a", "two", "milk"}
    written = {key: end for key, end in ends(raw, prefix).items() if ":vector:" in key}
    if ttl is None:
        assert sorted(written.values())[:3] == [-1, -1, -1]
    assert old.users.delete("u").verified
    assert not ends(raw, prefix)
