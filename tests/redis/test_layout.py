"""The version of the storage layout: written into a new database, and data of another version is left untouched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, OptionError
from langchain_workingmem._engine.effects import Command
from langchain_workingmem._redis.layout import LAYOUT
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.store import RedisMemoryStore

pytestmark = pytest.mark.in_turn("face")

Make = Callable[..., Memory]
MakeStore = Callable[..., RedisMemoryStore]


@pytest.fixture
def layout(raw: redis.Redis, prefix: str) -> str:
    """The key of the version, in a database that has none yet."""
    key = f"{prefix}:layout"
    raw.delete(key)
    return key


def dumped(raw: redis.Redis, prefix: str) -> dict[bytes, object]:
    return {key: raw.dump(key) for key in raw.scan_iter(f"{prefix}:*")}


def test_a_new_database_is_given_the_version(make_memory: Make, layout: str, raw: redis.Redis) -> None:
    memory = make_memory()
    assert memory.history.messages("t") == []
    assert raw.hget(layout, "version") == LAYOUT.encode()
    assert make_memory().threads.list().items == []


def test_the_first_call_of_a_process_costs_one_more_round_trip(make_memory: Make, commands: list[Command]) -> None:
    make_memory().threads.create(resource_id="u", thread_id="t")
    memory = make_memory()
    commands.clear()
    for _ in range(2):
        memory.threads.get("t")
    assert [command[0] for command in commands] == ["HGET", "EVAL", "CONFIG", "HELLO", "HGETALL", "HGETALL"]


@pytest.mark.parametrize("create_index", [True, False])
def test_data_without_a_version_is_refused_and_left_untouched(
    make_memory: Make, make_store: MakeStore, layout: str, raw: redis.Redis, prefix: str, *, create_index: bool
) -> None:
    make_memory().history.append([HumanMessage("Hello", id="1")], thread_id="t", resource_id="u")
    raw.delete(layout)
    raw.hdel(f"{prefix}:thread:{{t}}", "layout")
    before = dumped(raw, prefix)
    memory, store = make_memory(create_index=create_index), make_store(create_index=create_index)
    calls: list[Callable[[], object]] = [
        lambda: memory.history.append([HumanMessage("Bye", id="2")], thread_id="t", resource_id="u"),
        lambda: memory.context("Hello", thread_id="t", resource_id="u"),
        lambda: memory.users.delete("u"),
        lambda: list(memory.users.export("u")),
        lambda: store.put(("a",), "b", {"c": 1}),
    ]
    if create_index:  # else there is nothing to set up
        calls += [memory.setup, store.setup]
    for call in calls:
        with pytest.raises(OptionError, match=r"storage layout 1, .* nothing was changed: export") as caught:
            call()
        assert "workingmem export" in str(caught.value)
    assert dumped(raw, prefix) == before


@pytest.mark.parametrize("version", ["8", "99"])
def test_a_version_that_is_not_ours_is_refused(make_memory: Make, layout: str, raw: redis.Redis, version: str) -> None:
    raw.hset(layout, "version", version)
    with pytest.raises(OptionError, match=f"storage layout {version}, this version of langchain-workingmem uses"):
        make_memory().threads.create(resource_id="u")


def test_threads_without_an_index_are_data_as_well() -> None:
    with EmbeddedRedis() as server, redis.Redis.from_url(server.url) as raw:  # one step of SCAN finds the thread
        raw.hset("wm:thread:{t}", "resource", "u")
        memory = Memory(server.url)
        with pytest.raises(OptionError, match="storage layout 1"):
            memory.threads.get("t")
        memory.close()


def test_an_agent_that_goes_on_without_redis_is_not_stopped_by_the_check(make_memory: Make, prefix: str) -> None:
    memory = make_memory(redis_url="redis://127.0.0.1:1", on_error="log")
    plan = memory._core.with_fallback(
        memory._turn.gather([HumanMessage("Hi", id="1")], "t", "u"), None, "no memory", "t"
    )
    assert memory._core.runner.run(plan) is None


def test_the_doctor_names_another_version_and_changes_nothing(
    make_memory: Make, layout: str, raw: redis.Redis, prefix: str
) -> None:
    make_memory().setup()
    raw.hset(layout, "version", "99")
    found = {finding.check: finding for finding in make_memory().doctor().findings}
    assert found["layout"].level == "error"
    assert "storage layout 99" in found["layout"].message
    assert raw.hget(layout, "version") == b"99"


def test_a_user_who_may_only_read_writes_no_version(
    make_memory: Make, server: EmbeddedRedis, layout: str, raw: Any, prefix: str
) -> None:
    raw.execute_command("ACL", "SETUSER", prefix, "reset", "on", ">hunter2", f"~{prefix}:*", "+@read", "+ping")
    try:
        reader = make_memory(redis_url=f"{server.url}?username={prefix}&password=hunter2")
        assert reader.threads.get("t") is None
        assert raw.exists(layout) == 0
    finally:
        raw.execute_command("ACL", "DELUSER", prefix)


@pytest.mark.parametrize("create_index", [True, False])
def test_a_lost_key_is_written_again_where_the_threads_are_ours(
    make_memory: Make, layout: str, raw: redis.Redis, *, create_index: bool
) -> None:
    make_memory().threads.create(resource_id="u", thread_id="t")
    raw.delete(layout)  # evicted, or lost with a flush under a process that goes on
    thread = make_memory(create_index=create_index).threads.get("t")
    assert thread is not None
    assert raw.hget(layout, "version") == LAYOUT.encode()


def test_indexes_without_data_are_a_new_database(make_memory: Make, layout: str, raw: redis.Redis, prefix: str) -> None:
    make_memory().threads.create(resource_id="u", thread_id="t")
    raw.delete(*raw.scan_iter(f"{prefix}:*"))
    assert make_memory().threads.list().items == []
    assert raw.hget(layout, "version") == LAYOUT.encode()


def test_every_new_thread_names_the_layout(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    memory = make_memory()
    memory.threads.create(resource_id="u", thread_id="created")
    memory.history.append([HumanMessage("Hello")], thread_id="written", resource_id="u")
    memory.threads.clone("written", new_thread_id="cloned")
    for thread in ("created", "written", "cloned"):
        assert raw.hget(f"{prefix}:thread:{{{thread}}}", "layout") == LAYOUT.encode()


def test_a_version_that_is_no_text_is_refused(make_memory: Make, layout: str, raw: redis.Redis) -> None:
    raw.hset(layout, "version", b"\xff")
    with pytest.raises(OptionError, match="storage layout"):
        make_memory().threads.get("t")
