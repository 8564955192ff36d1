"""Threads that expire: as a whole, after the last write, and without a trace in the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, OptionError, RecallOptions, TitleOptions, WorkingMemoryOptions
from langchain_workingmem._engine.effects import Plan
from langchain_workingmem._redis.access import Sweeping
from langchain_workingmem._text.copies import without_memory
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.history import operations as history
from langchain_workingmem.history import titles
from langchain_workingmem.history.branch import Branch
from langchain_workingmem.history.operations import save_messages
from tests.helpers.embedded import wait_until
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Scripted
from tests.helpers.trips import Trips

pytestmark = pytest.mark.programs

Make = Callable[..., Memory]
DAY = timedelta(days=1)
YEAR = timedelta(days=365)
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


def say(memory: Memory, *texts: str, thread: str = "t", resource: str = "u") -> None:
    memory.history.append([HumanMessage(text, id=text) for text in texts], thread_id=thread, resource_id=resource)


def ends(raw: redis.Redis, prefix: str, pattern: str = "*:{t}*") -> dict[str, int]:
    """Return when each key expires, in ms since the epoch; -1: never."""
    return {key.decode().removeprefix(prefix): raw.pexpiretime(key) for key in raw.scan_iter(f"{prefix}:{pattern}")}


KINDS = ("thread", "order", "messages", "said", "answers", "superseded", "aliases")


def branch(memory: Memory) -> None:
    """Write into every key that a thread may have: an answer is given anew to a question that has two ids."""
    state = Branch(kind="state", aliases={"other": "q"}, anchor="q", question="q")
    first = [HumanMessage("one", id="q"), AIMessage("two", id="a")]
    memory.history.append(first, thread_id="t", resource_id="u")
    memory.history.truncate("t", after="q")
    plan = save_messages(memory._core, [AIMessage("three", id="b")], "t", "u", branch=state)
    memory._core.run(plan)


def expire(raw: redis.Redis, prefix: str, thread: str) -> None:
    """Take a thread away as when it expires: all that is its own in one instant, vectors later."""
    raw.delete(*(f"{prefix}:{kind}:{{{thread}}}" for kind in KINDS))


def documents(raw: redis.Redis, prefix: str, index: str) -> int:
    info: Any = raw.ft(f"{prefix}:{index}").info()  # type: ignore[no-untyped-call]
    return int(info["num_docs"])


def is_gone(memory: Memory, thread: str = "t") -> bool:
    return memory.threads.get(thread) is None


# ------------------------------------------------------------------ the option


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(seconds=-1), timedelta(microseconds=999), 60, "1h", True])
def test_a_ttl_that_cannot_be_is_refused(ttl: Any) -> None:
    with pytest.raises(OptionError, match=r"ttl=.*timedelta of at least a millisecond"):
        Memory(ttl=ttl)


@pytest.mark.parametrize("ttl", [300 * YEAR, 1_000 * YEAR, timedelta.max], ids=["300 years", "1,000 years", "most"])
def test_a_ttl_of_centuries_hides_nothing(keep: Keep, raw: redis.Redis, prefix: str, ttl: timedelta) -> None:
    memory = keep(ttl)
    say(memory, "hello")
    memory.threads.update("t", title="greetings")
    say(memory, "good morning")
    assert [thread.id for thread in memory.threads.list()] == ["t"]
    assert memory.history.for_resource("u").total == 2
    assert {hit.message.text for hit in memory.recall.search("hello", resource_id="u").hits} >= {"hello"}
    assert memory.threads.clone("t", new_thread_id="copy").thread.message_count == 2
    assert len(memory.recall.search("hello", thread_id="copy", scope="thread").hits) == 2
    assert raw.hget(f"{prefix}:thread:{{t}}", "ttl") == str(ttl // timedelta(milliseconds=1)).encode()
    memory.history.delete(["hello"], thread_id="t")
    assert memory.users.delete("u").threads == 2


def test_vectors_that_stay_until_2262_are_not_renewed_by_every_write(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    memory = keep(1_000 * YEAR)
    say(memory, *map(str, range(100)))
    wait_until(lambda: is_settled(memory, raw, prefix))
    assert expiries_written(memory, "next", raw, prefix) <= 11


def test_an_embedded_memory_takes_one() -> None:
    with Memory.embedded(ttl=SHORT) as memory:
        say(memory, "hello")
        wait_until(lambda: is_gone(memory))


# ------------------------------------------------------------------ what expires, and when


def test_all_of_a_thread_expires_in_one_instant_and_its_vectors_later(
    keep: Keep, raw: redis.Redis, prefix: str
) -> None:
    memory = keep(DAY)
    branch(memory)
    memory.working_memory.update("tea", thread_id="t", resource_id="u")
    found = ends(raw, prefix)
    own = {key: end for key, end in found.items() if ":vector:" not in key}
    assert sorted(key.partition("{")[0] for key in own) == sorted(
        f":{kind}:" for kind in [*KINDS, "memory:t", "revisions:t"]
    )
    assert len(set(own.values())) == 1
    left = min(own.values()) / 1000 - time.time()
    assert 86_300 < left <= 86_400
    vectors = {end for key, end in found.items() if ":vector:" in key}
    assert len(vectors) == 1
    assert 3 * 86_300 < min(vectors) / 1000 - time.time() <= 3 * 86_400


def test_a_memory_without_a_ttl_sets_none(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    memory = keep(None)
    say(memory, "one")
    memory.working_memory.update("tea", thread_id="t")
    assert set(ends(raw, prefix).values()) == {-1}


def test_the_working_memory_of_a_resource_stays(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(template=""), ttl=DAY)
    memory.working_memory.update("tea", resource_id="u")
    assert set(ends(raw, prefix, "*:{u}").values()) == {-1}


def test_every_write_puts_the_end_off(keep: Keep, server: EmbeddedRedis, raw: redis.Redis, prefix: str) -> None:
    memory = keep(DAY)

    def name() -> None:
        options = TitleOptions(model=Scripted.says("A title"), min_messages=1)
        with Memory(server.url, key_prefix=prefix, title=options) as titled:  # which waits for its model at its end
            say(titled, "four")
        thread = memory.threads.get("t")
        assert thread is not None
        assert thread.title == "A title"

    say(memory, "one", "two")
    memory.working_memory.update("tea", thread_id="t")
    writes: dict[str, Callable[[], Any]] = {
        "append": lambda: say(memory, "three"),
        "append the same": lambda: say(memory, "three"),
        "update a message": lambda: memory.history.update([HumanMessage("2", id="two")], thread_id="t"),
        "delete a message": lambda: memory.history.delete(["two"], thread_id="t"),
        "clear": lambda: memory.history.clear("t"),
        "append again": lambda: say(memory, "four"),
        "update": lambda: memory.threads.update("t", metadata={"a": 1}),
        "transfer": lambda: memory.threads.transfer("t", resource_id="u", to="u"),
        "remember": lambda: memory.working_memory.update("milk", thread_id="t"),
        "forget": lambda: memory.working_memory.clear(thread_id="t"),
        "revert": lambda: memory.working_memory.revert(1, thread_id="t"),
        "title": name,
        "import": lambda: memory.users.load(list(memory.users.export("u"))),
    }
    for what, write in writes.items():
        soon = round(time.time() * 1000) + 60_000
        for key in raw.scan_iter(f"{prefix}:*:{{t}}"):
            raw.pexpireat(key, soon)
        write()
        own = {key: end for key, end in ends(raw, prefix).items() if ":vector:" not in key}
        assert len(set(own.values())) == 1, what
        assert min(own.values()) > soon, what


def test_reading_puts_nothing_off(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    memory = keep(DAY)
    say(memory, "one")
    before = ends(raw, prefix)
    memory.context("one", thread_id="t", resource_id="u")
    memory.history.messages("t")
    memory.threads.get("t")
    assert ends(raw, prefix) == before


def test_a_memory_without_a_ttl_keeps_that_of_the_thread(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    say(keep(DAY), "one")
    before = ends(raw, prefix)
    raw.pexpireat(f"{prefix}:thread:{{t}}", round(time.time() * 1000) + 60_000)
    say(keep(None), "two")
    after = ends(raw, prefix)
    assert -1 not in after.values()
    assert all(after[key] >= before[key] for key in before)


def test_a_thread_takes_the_ttl_of_whoever_writes_to_it(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    say(keep(None), "one", "two")
    say(keep(DAY), "three")
    found = ends(raw, prefix)
    assert -1 not in found.values()
    assert len({end for key, end in found.items() if ":vector:" in key}) == 1
    say(keep(10 * DAY), "four")
    assert min(ends(raw, prefix).values()) / 1000 - time.time() > 9 * 86_400


def test_a_copy_expires_by_the_ttl_of_the_memory_that_makes_it(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    say(keep(DAY), "one", "two")
    keep(None).threads.clone("t", new_thread_id="stays")
    assert set(ends(raw, prefix, "*:{stays}*").values()) == {-1}
    keep(DAY).threads.clone("stays", new_thread_id="goes")
    assert -1 not in ends(raw, prefix, "*:{goes}*").values()


def test_an_import_takes_the_ttl_of_the_memory(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    say(keep(None), "one")
    records = list(keep(None).users.export("u", vectors=True))
    keep(None).users.delete("u")
    keep(DAY).users.load(records)
    assert len(ends(raw, prefix)) == 5
    assert -1 not in ends(raw, prefix).values()


def test_vectors_that_are_added_later_expire_with_the_others(
    keep: Keep, make_memory: Make, raw: redis.Redis, prefix: str
) -> None:
    say(make_memory(ttl=DAY), "one", "two")
    assert keep(None).recall.reindex(progress=False) == 2
    found = ends(raw, prefix)
    assert sum(":vector:" in key for key in found) == 2
    assert -1 not in found.values()


# ------------------------------------------------------------------ the cost


def is_settled(memory: Memory, raw: redis.Redis, prefix: str) -> bool:
    memory.threads.get("t")  # an event loop goes on with its background only while it is used
    return "t" not in memory._core.state.room(Sweeping) and not raw.hexists(
        f"{prefix}:thread:{{t}}", "renew_vectors_from"
    )


def expiries_written(memory: Memory, text: str, raw: Any, prefix: str) -> int:
    """Count the calls of PEXPIREAT that a write costs."""
    before = raw.info("commandstats")["cmdstat_pexpireat"]["calls"]
    say(memory, text)
    wait_until(lambda: is_settled(memory, raw, prefix))
    return int(raw.info("commandstats")["cmdstat_pexpireat"]["calls"] - before)


def test_a_write_renews_the_lease_of_vectors_only_when_it_runs_out(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    memory = keep(DAY)
    say(memory, *map(str, range(600)))
    wait_until(lambda: is_settled(memory, raw, prefix))
    assert expiries_written(memory, "next", raw, prefix) <= 11
    soon = round((time.time() + 160_000) * 1000)  # less than two ttls
    raw.hset(f"{prefix}:thread:{{t}}", "vectors_expire_at", soon)
    assert expiries_written(memory, "vectors_expire_first", raw, prefix) > 600
    assert expiries_written(memory, "later", raw, prefix) <= 11
    assert len({end for key, end in ends(raw, prefix).items() if ":vector:" in key}) == 1


def test_a_ttl_costs_no_round_trip(keep: Keep, trips: Trips) -> None:
    memory = keep(DAY)
    texts = iter("abcdef")
    assert trips.of(lambda: say(memory, next(texts))) == 1


# ------------------------------------------------------------------ the end


def test_nothing_is_left_in_the_end(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    memory = keep(SHORT)
    memory.setup()
    say(memory, "one", "two")
    memory.working_memory.update("tea", thread_id="t")
    memory.threads.clone("t")
    assert documents(raw, prefix, "threads") == 2
    assert documents(raw, prefix, "vectors") == 4
    wait_until(lambda: is_gone(memory))
    assert memory.history.messages("t") == []
    assert memory.history.page("t").total == 0
    assert memory.working_memory.get(thread_id="t").revision == 0
    (question,) = memory.context("one", thread_id="t", resource_id="u").messages
    assert without_memory(question).content == "one"
    wait_until(lambda: not list(raw.scan_iter(f"{prefix}:*{{*")))
    wait_until(lambda: documents(raw, prefix, "threads") + documents(raw, prefix, "vectors") == 0)
    assert memory.threads.list(resource_id="u").items == []


def test_the_dead_are_not_recalled_and_take_nobody_s_place(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    memory = keep(DAY)
    for place in range(12):
        say(memory, f"tea tea {place}", thread=f"dead{place}")
    say(memory, "tea and a lot of other words", "tea and still more words of all kinds", thread="alive")
    for place in range(12):
        expire(raw, prefix, f"dead{place}")
    hits = memory.recall.search("tea tea", resource_id="u", top_k=2).hits
    assert {hit.thread_id for hit in hits} == {"alive"}
    assert len(hits) == 2
    context = memory.context("tea tea", thread_id="new", resource_id="u", top_k=2)
    assert len(context.recalled.hits) == 2
    assert memory.recall.search("tea tea", resource_id="u", thread_id="dead1", scope="thread").hits == []


@pytest.mark.parametrize("ttl", [DAY, None])
def test_a_thread_that_comes_back_is_not_mixed_up_with_the_one_that_expired(
    keep: Keep, raw: redis.Redis, prefix: str, ttl: timedelta | None
) -> None:
    old = keep(DAY)
    say(old, "the name of my dog is rex", "one", "milk")
    expire(raw, prefix, "t")
    new = keep(ttl)
    say(new, "a", "two", "milk")  # of another length, of the same length, the same
    found = new.recall.search("the name of my dog", resource_id="u", top_k=9)
    assert {hit.message.content for hit in found} == {"a", "two", "milk"}
    written = {key: end for key, end in ends(raw, prefix).items() if ":vector:" in key}
    if ttl is None:
        assert sorted(written.values())[:3] == [-1, -1, -1]
    assert old.users.delete("u").verified
    assert not ends(raw, prefix)


def test_a_deletion_takes_the_vectors_of_threads_that_have_expired(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    memory = keep(DAY)
    say(memory, "one", "two")
    expire(raw, prefix, "t")
    report = memory.users.delete("u")
    assert (report.threads, report.vectors, report.verified) == (0, 2, True)
    assert not ends(raw, prefix)


# ------------------------------------------------------------------ where nobody runs the background


def vectors(raw: redis.Redis, prefix: str) -> list[int]:
    return list(ends(raw, prefix, "vector:*").values())


@pytest.mark.nightly  # sleeps for 5 s against a ttl of 2, which a busy machine does not keep
def test_vectors_outlive_their_thread_where_each_call_has_a_loop_of_its_own(
    keep: Keep, raw: redis.Redis, prefix: str
) -> None:
    memory = keep(timedelta(seconds=2))  # the end of a loop cancels what runs in the background

    def write(*ids: str) -> None:
        messages = [HumanMessage("tea", id=id) for id in ids]
        asyncio.run(memory.history.aappend(messages, thread_id="t", resource_id="u"))
        assert not memory._core.state.room(Sweeping)

    for start in range(0, 1500, 500):
        write(*(f"m{place}" for place in range(start, start + 500)))
    for place in range(10):  # for more than two ttls
        time.sleep(0.5)
        write(f"x{place}")
        thread_ends = raw.pexpiretime(f"{prefix}:thread:{{t}}")
        found = vectors(raw, prefix)
        assert len(found) == 1500 + place + 1
        assert min(found) >= thread_ends


@pytest.mark.parametrize("name", ["append", "update", "remember", "title", "refuse"])
def test_a_longer_ttl_is_that_of_all_vectors_when_the_call_returns(
    keep: Keep, raw: redis.Redis, prefix: str, name: str
) -> None:
    say(keep(timedelta(minutes=1)), *map(str, range(1300)))
    memory = keep(DAY)
    memory._core.state.room(Sweeping).add("t")  # whoever should go on in the background dies
    if name != "append":
        raw.hset(f"{prefix}:thread:{{t}}", "ttl", 86_400_000)
    space = memory._core.state
    writes: dict[str, Callable[[], Any]] = {
        "append": lambda: say(memory, "next"),
        "update": lambda: memory.threads.update("t", title="new"),
        "remember": lambda: memory.working_memory.update("tea", thread_id="t"),
        "title": lambda: memory._core.run(titles._name(space, TitleOptions(), Scripted.says("A title"), "t", None)),
        "refuse": lambda: memory._core.run(history.refuse_messages(space, "t", "u", ["7"])),
    }
    writes[name]()
    thread = f"{prefix}:thread:{{t}}"
    assert raw.pexpiretime(thread) / 1000 - time.time() > 86_000
    assert len(vectors(raw, prefix)) == 1300 + (name == "append")
    assert min(vectors(raw, prefix)) >= raw.pexpiretime(thread)
    assert not raw.hexists(thread, "vectors_expire_first")


@pytest.mark.parametrize("healed_by", ["reindex", "a reader in time", "a reader"])
def test_what_has_expired_since_a_writer_died_is_healed(
    keep: Keep, raw: redis.Redis, prefix: str, healed_by: str
) -> None:
    say(keep(timedelta(minutes=1)), *map(str, range(1300)))
    memory = keep(DAY)

    def dying() -> Plan[None]:
        plan = save_messages(memory._core, [HumanMessage("next", id="next")], "t", "u")
        effect = next(plan)
        while True:
            outcome = yield effect
            if raw.hexists(f"{prefix}:thread:{{t}}", "vectors_expire_first"):
                return
            effect = plan.send(outcome)

    memory._core.run(dying())
    thread_ends = raw.pexpiretime(f"{prefix}:thread:{{t}}")
    short = [key for key in raw.scan_iter(f"{prefix}:vector:*") if raw.pexpiretime(key) < thread_ends]
    assert short  # hundreds, fewer on a machine that is busy
    if healed_by != "a reader in time":
        raw.delete(*short)  # as when they expire
    if healed_by == "reindex":
        assert memory.recall.reindex(progress=False) == len(short)
    else:
        reader = keep(DAY)
        reader.context("what was it?", thread_id="t", resource_id="u")
        reader.settled()
    assert len(vectors(raw, prefix)) == 1301
    assert min(vectors(raw, prefix)) >= thread_ends
    assert memory.recall.reindex(progress=False) == 0


def test_a_round_is_not_begun_anew_before_it_is_through(keep: Keep, raw: redis.Redis, prefix: str) -> None:
    memory = keep(DAY)
    say(memory, *map(str, range(1300)))
    wait_until(lambda: is_settled(memory, raw, prefix))
    memory._core.state.room(Sweeping).add("t")
    thread = f"{prefix}:thread:{{t}}"
    raw.hset(thread, "vectors_expire_at", round((time.time() + 86_400 + 600) * 1000))
    say(memory, "one more")
    assert raw.hexists(thread, "renew_vectors_from")
    raw.hset(thread, "renew_vectors_from", 1200)  # somebody else is that far
    raw.hset(thread, "next_vectors_expire_at", round((time.time() + 86_400 + 700) * 1000))  # it takes longer than a ttl
    say(memory, "and one")
    assert raw.hget(thread, "renew_vectors_from") == b"1200"
