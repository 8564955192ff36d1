"""Search on a full server: it may find nothing without a word, which is never taken for an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, RecallOptions, RedisCapabilityError
from langchain_workingmem._engine.plan import attempt
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import RedisReplyError
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embedded import full_memory, search_on_oom
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.operations import options
from tests.helpers.types import Make

pytestmark = pytest.mark.in_turn("face")

MakeStore = Callable[..., RedisMemoryStore]
WHOLE = {"embeddings": WordEmbeddings(), "recall": RecallOptions()}


@pytest.fixture
def hiding(raw: Any) -> Iterator[None]:
    """Let Search find nothing when memory is full."""
    with search_on_oom(raw, "return"):
        yield


def tell(memory: Memory) -> None:
    for thread in ("t", "s"):
        memory.history.append([HumanMessage("my pin is 1234")], thread_id=thread, user_id="u")
    memory.threads.clone("t", new_thread_id="c")


FINDING: dict[str, Callable[[Memory], Any]] = {
    "recall.search": lambda memory: memory.recall.search("the pin", user_id="u").hits,
    "context": lambda memory: memory.context("the pin", thread_id="t", user_id="u").recalled.hits,
    "threads.list": lambda memory: memory.threads.list(user_id="u").items,
    "history.for_user": lambda memory: memory.history.for_user("u").items,
    "users.export": lambda memory: list(memory.users.export("u"))[3:],
}


@pytest.mark.parametrize("setting", ["return", "fail"])
def test_what_searches_on_a_full_server_raises(
    make_memory: Make, server: EmbeddedRedis, raw: Any, setting: str
) -> None:
    with search_on_oom(raw, setting):
        memory = make_memory(f"{server.url}?protocol=3", **WHOLE)
        tell(memory)
        for name, search in FINDING.items():
            assert search(memory), name
            with full_memory(raw), pytest.raises(RedisReplyError, match="raise maxmemory") as caught:
                search(memory)
            assert caught.value.code == "OOM", name
            assert "search-on-oom ignore" in str(caught.value), name
            assert search(memory), name


def test_what_only_frees_memory_works_on_a_full_server(make_memory: Make, raw: Any, prefix: str) -> None:
    """With files."""
    memory = make_memory(**options(), ttl=timedelta(days=1))
    for thread in "abc":
        said = [HumanMessage(f"my pin is {number}", id=f"{number}") for number in range(12)]
        memory.history.append(said, thread_id=thread, user_id="u")
    memory.files.write("/notes/pin.md", "1234", user_id="u")
    with full_memory(raw):
        assert memory.history.delete(["0"], thread_id="a") == 1
        assert memory.history.clear("b") == 12
        assert memory.files.delete("/", purge=True, user_id="u") == 1
        deleted = [memory.history.delete(thread_id=thread, until=datetime.now(UTC)) for thread in "abc"]
        assert deleted == [11, 0, 12]
        assert memory.users.delete("u").verified
    assert list(raw.scan_iter(f"{prefix}:*{{*")) == []


@pytest.mark.usefixtures("hiding")
def test_a_server_that_would_hide_what_it_holds_is_refused(
    make_memory: Make, make_store: MakeStore, server: EmbeddedRedis, raw: Any
) -> None:
    running = make_memory()
    running.threads.list(user_id="u")  # it has no limit, so it is never full
    raw.config_set("maxmemory", "1gb")
    searching = (lambda: [*running.users.export("u")], lambda: running.users.merge("u", into="v"))
    try:
        for call in (lambda: make_memory().threads.get("t"), lambda: make_store().get(("a",), "b"), *searching):
            with pytest.raises(RedisCapabilityError, match="CONFIG SET search-on-oom ignore"):
                call()
        assert make_memory(f"{server.url}?protocol=3").threads.get("t") is None  # whose answers say it themselves
    finally:
        raw.config_set("maxmemory", "0")


OOM = b"One or more shards failed to execute the query due to insufficient memory"


@pytest.mark.parametrize(
    ("warning", "code", "remedy"),
    [
        ([OOM], "OOM", "search-on-oom ignore"),
        (OOM, "OOM", "search-on-oom ignore"),  # as the coordinator of a cluster sends it
        ([b"Timeout limit was reached"], "INCOMPLETE", "search-workers"),
        ([b"Index contains partial data due to insufficient memory"], "INCOMPLETE", "FT.DROPINDEX wm:threads"),
        ([b"Results may be incomplete due to Atomic Slot Migration."], "INCOMPLETE", "search again"),
    ],
)
def test_an_answer_with_a_warning_is_an_error(warning: Any, code: str, remedy: str) -> None:
    plan = attempt(("FT.SEARCH", "wm:threads", "*", "LIMIT", 0, 1))
    next(plan)
    with pytest.raises(StopIteration) as done:
        plan.send([{b"results": [], b"total_results": 0, b"warning": warning}])
    (error,) = done.value.value
    assert isinstance(error, RedisReplyError)
    assert error.code == code
    assert remedy in str(error.remedy)
