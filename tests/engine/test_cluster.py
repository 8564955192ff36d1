"""Redis Cluster: every command stays in one slot, on real nodes without Search."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis.asyncio
from redis.crc import key_slot

from langchain_workingmem import Memory, RedisConnectionError
from langchain_workingmem._engine.plan import Command
from tests.helpers.embedded import BareServers, free_port
from tests.helpers.media import forms
from tests.helpers.operations import OPERATIONS, Caller, options
from tests.helpers.real_cluster import RealCluster
from tests.helpers.rights import CLUSTER, rules
from tests.helpers.types import Make

pytestmark = pytest.mark.in_turn("face")

Connect = Callable[..., dict[str, Any]]

KEYLESS = {b"PING", b"HELLO", b"CLIENT", b"COMMAND", b"INFO", b"CONFIG", b"SCRIPT", b"AUTH", b"SELECT", b"SCAN"}
SEARCHES = {  # which a cluster can do from Redis 8 on
    *("setup", "history.for_user", "recall.search", "recall.reindex", "threads.list", "users.list"),
    *("as_retriever", "search_memory", "users.export", "users.load", "users.merge"),
}


def keys_of(command: Command) -> list[bytes]:
    """The keys of a command, as Redis finds them; an index is none."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
    if words[0] in {b"EVAL", b"EVALSHA"}:  # whose second argument says how many keys follow
        return words[3 : 3 + int(words[2])]
    return [] if words[0] in KEYLESS or words[0].startswith(b"FT.") else words[1:2]


def test_every_command_stays_in_one_slot(
    make_memory: Make, runner: asyncio.Runner | None, commands: list[Command]
) -> None:
    for scope in ("user", "thread"):
        caller = Caller(memory=make_memory(**options(scope)), runner=runner, thread=f"{scope} {{}}}}{{a}}")
        for operation in OPERATIONS.values():
            operation.call(caller)
    pictures = make_memory()
    pictures.history.append([*forms().values()], thread_id="{a} pictures", user_id="u")
    assert pictures.history.messages(pictures.threads.clone("{a} pictures").thread.id)
    found = [keys_of(command) for command in commands]
    assert max(map(len, found)) > 1
    for keys in found:
        assert len({key_slot(key) for key in keys}) <= 1, keys


async def test_a_cluster_that_is_not_there_is_a_connection_error_without_its_password() -> None:
    client = redis.asyncio.RedisCluster(host="127.0.0.1", port=free_port(), password="hunter2")
    memory = Memory(async_client=client)
    with pytest.raises(RedisConnectionError, match="check that it runs") as caught:
        await memory.history.amessages("t")
    assert "hunter2" not in str(caught.value)
    assert [finding.check for finding in await memory.adoctor()] == ["connection"]
    await client.aclose()


def test_everything_but_search_works_on_real_nodes(
    start: BareServers, connect: Connect, make_memory: Make, runner: asyncio.Runner | None, prefix: str
) -> None:
    cluster = RealCluster(start)
    known = [rule for rule in [*rules(prefix), *CLUSTER] if "ft." not in rule and "search." not in rule]
    for port in cluster.ports:
        cluster.ask(port, "ACL", "SETUSER", "app", "reset", "on", ">p", *known)
    for scope in ("user", "thread"):
        chosen = {name: one for name, one in options(scope).items() if name not in {"embeddings", "recall", "files"}}
        client = connect(cluster.ports[0], username="app", password="p")
        memory = make_memory(**client, create_index=False, **chosen)
        for place in range(4):  # spread over the slots of all nodes
            caller = Caller(memory=memory, runner=runner, thread=f"{scope} {place}", user=f"u{scope}{place}")
            for name in [name for name in OPERATIONS if name not in SEARCHES]:
                OPERATIONS[name].call(caller)
        assert {finding.check for finding in memory.doctor() if finding.level == "error"} == {"search"}
    for port in cluster.ports:
        assert cluster.ask(port, "DBSIZE") > 0
        refused = {entry["object"] for entry in cluster.ask(port, "ACL LOG")}
        assert refused <= {"info", "config|get", "ft.info", "ft.search", "search.clusterinfo"}
