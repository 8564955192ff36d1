"""The version of the storage layout: written into a new database, and data of another version is left untouched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage

from langchain_workingmem import OptionError
from langchain_workingmem._redis.indexes import LAYOUT
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.types import Make

pytestmark = pytest.mark.in_turn("face")


@pytest.fixture
def layout(raw: redis.Redis, prefix: str) -> str:
    """The key of the version, in a database that has none yet."""
    key = f"{prefix}:layout"
    raw.delete(key)
    return key


def test_a_new_database_is_given_the_version(make_memory: Make, layout: str, raw: redis.Redis) -> None:
    memory = make_memory()
    assert memory.history.messages("t") == []
    assert raw.hget(layout, "version") == LAYOUT.encode()
    assert make_memory().threads.list().items == []


def test_data_of_another_version_is_refused_and_left_untouched(
    make_memory: Make, make_store: Callable[..., RedisMemoryStore], layout: str, raw: redis.Redis, prefix: str
) -> None:
    make_memory().history.append([HumanMessage("Hello", id="1")], thread_id="t", user_id="u")
    raw.hset(layout, "version", "99")

    def dumped() -> dict[bytes, object]:
        return {key: raw.dump(key) for key in raw.scan_iter(f"{prefix}:*")}

    before = dumped()
    memory, store = make_memory(), make_store()
    (found,) = [one for one in memory.doctor() if one.check == "layout"]
    assert (found.level, "storage layout 99" in found.message) == ("error", True)
    calls: list[Callable[[], object]] = [
        memory.setup,
        store.setup,
        lambda: memory.history.append([HumanMessage("Bye", id="2")], thread_id="t", user_id="u"),
        lambda: memory.context("Hello", thread_id="t", user_id="u"),
        lambda: memory.users.delete("u"),
        lambda: store.put(("a",), "b", {"c": 1}),
    ]
    for call in calls:
        with pytest.raises(OptionError, match="storage layout 99, this version uses") as caught:
            call()
        assert "export with the version that wrote them" in str(caught.value)
    assert dumped() == before


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
