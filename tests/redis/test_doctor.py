"""The doctor: what is healthy, what is wrong, what helps, and that it neither changes nor demands anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory
from langchain_workingmem._text.messages import STRIDE
from langchain_workingmem.embedded import chosen_engine
from langchain_workingmem.models import Diagnosis, Finding
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.types import Make

Start = Callable[..., int]


def look(memory: Memory, check: str) -> Finding:
    (found,) = [finding for finding in memory.doctor() if finding.check == check]
    assert (found.remedy is None) == (found.level == "ok")
    return found


def tell(memory: Memory, *texts: str, thread: str = "t") -> None:
    memory.history.append([HumanMessage(text) for text in texts], thread_id=thread, user_id="u")


def test_nothing_is_made_by_looking(memory: Memory, raw: Any, prefix: str) -> None:
    raw.delete(f"{prefix}:layout")
    assert look(memory, "threads index").message == "not made yet: made at first use"
    assert not raw.keys(f"{prefix}*")


def test_indexes_that_are_gone_are_errors(memory: Memory, raw: Any, prefix: str) -> None:
    tell(memory, "hello")
    for index in ("threads", "vectors"):
        raw.execute_command("FT.DROPINDEX", f"{prefix}:{index}")
    for check in ("threads index", "vectors index"):
        assert look(memory, check).level == "error"
        assert "memory.setup()" in str(look(memory, check).remedy)


def test_messages_without_vectors_are_counted(memory: Memory, embeddings: WordEmbeddings, plain: Memory) -> None:
    tell(memory, "one")
    tell(plain, "two", "three")
    plain.history.append([AIMessage("four")], thread_id="t", user_id="u")
    found = look(memory, "vectors")
    assert {one.level for one in memory.doctor()} == {"ok", "warning"}
    assert (found.level, found.message[:17]) == ("warning", "3 of 4 messages, ")
    assert "reindex" in str(found.remedy)
    memory.recall.reindex(progress=False)
    assert {one.level for one in memory.doctor()} == {"ok"}


def test_a_server_that_forgets_and_evicts(start: Start, make_memory: Make) -> None:
    modules = [word for module in chosen_engine().modules for word in ("--loadmodule", str(module))]
    settings = ["--save", "", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]
    url = f"redis://127.0.0.1:{start(*modules, *settings)}"
    with redis.Redis.from_url(url) as client:
        if client.config_get("search-on-oom"):  # else setup() refuses a server with maxmemory, and says so
            client.config_set("search-on-oom", "ignore")
    memory = make_memory(url)
    memory.setup()
    assert look(memory, "persistence").message.startswith("append-only file off")
    assert "throws memories away" in look(memory, "eviction").message
    assert "of 100 MiB" in look(memory, "memory").message
    assert memory.doctor().level == "warning"
    with redis.Redis.from_url(url) as client:
        client.config_set("maxmemory", 2**20)
        client.config_set("maxmemory-policy", "noeviction")
    assert look(memory, "memory").level == "warning"
    assert look(memory, "eviction").level == "ok"


def test_a_server_without_search_is_an_error_that_says_so_once(start: Start, make_memory: Make) -> None:
    found = make_memory(f"redis://127.0.0.1:{start()}").doctor()
    assert [finding.check for finding in found if finding.level == "error"] == ["search"]


@pytest.mark.parametrize("granted", ["-@all", "-@all +get +ft.search ~*"])
def test_what_the_user_may_not_see_is_unknown(
    granted: str, memory: Memory, make_memory: Make, raw: Any, server: Any, prefix: str
) -> None:
    tell(memory, "hello")
    raw.execute_command("ACL", "SETUSER", prefix, "reset", "on", ">p", *granted.split())
    guest = make_memory(f"{server.url}?username={prefix}&password=p")
    found: Diagnosis = guest.doctor()
    assert {finding.level for finding in found} == {"ok", "unknown"}
    assert all(finding.remedy for finding in found if finding.level == "unknown")
    assert found.level == "ok"
    raw.acl_deluser(prefix)


def test_a_message_that_cannot_be_read_is_named_and_costs_itself_only(memory: Memory, raw: Any, prefix: str) -> None:
    for number in range(3):
        memory.history.append([HumanMessage(f"tea {number}", id=f"m{number}")], thread_id="t", user_id="u")
    raw.hset(f"{prefix}:messages:{{t}}", str(STRIDE), '{"at":1,"type":"human"')
    found = look(memory, "messages")
    assert found.level == "error"
    assert "message 'm1' of thread 't'" in found.message
    assert "history.delete(['m1']" in str(found.remedy)
    assert [one.id for one in memory.history.messages("t")] == ["m0", "m2"]
    assert len(memory.threads.clone("t").message_ids) == 2
    memory.history.delete(["m1"], thread_id="t")
    assert memory.doctor().level == "ok"


@pytest.mark.parametrize("kind", ["order", "messages", "ids"])
def test_a_thread_of_which_redis_has_evicted_a_key_is_named(memory: Memory, raw: Any, prefix: str, kind: str) -> None:
    tell(memory, "tea", thread="t")
    tell(memory, "tea", thread="whole")
    raw.delete(f"{prefix}:{kind}:{{t}}")
    found = look(memory, "threads")
    assert found.level == "error"
    assert "thread 't' is damaged" in found.message
    assert "threads.delete('t')" in str(found.remedy)
    memory.recall.reindex(progress=False)
    assert memory.history.for_user("u").items
    assert [*memory.users.export("u")]
    memory.threads.delete("t")
    assert memory.doctor().level == "ok"
    assert memory.users.delete("u").verified
    assert not [*raw.scan_iter(f"{prefix}:*{{*")]
