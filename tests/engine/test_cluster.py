"""Redis Cluster: every command stays in one slot, on real nodes, and through a gateway that has a coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from langchain_core.messages import HumanMessage
from redis.crc import key_slot

from langchain_workingmem import Memory, RedisConnectionError
from langchain_workingmem._engine.plan import Command
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.options import Scope
from tests.helpers.cluster_gateway import Gateway, keys_of
from tests.helpers.embedded import BareServers, free_port
from tests.helpers.media import forms
from tests.helpers.operations import OPERATIONS, Caller, options
from tests.helpers.real_cluster import RealCluster
from tests.helpers.rights import CLUSTER, rules

pytestmark = [pytest.mark.in_turn("face"), pytest.mark.programs]

Make = Callable[..., Memory]
Connect = Callable[..., dict[str, Any]]

SEARCHES = {  # which a cluster can do from Redis 8 on
    *("setup", "history.for_user", "recall.search", "recall.reindex", "threads.list", "users.list"),
    *("as_retriever", "search_memory", "users.export", "users.load", "users.merge"),
}


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


# ---------------------------------------------------------------------- with Search


@pytest.fixture
def gateway(server: EmbeddedRedis) -> Iterator[Gateway]:
    assert server.path
    gateway = Gateway(str(server.path / "redis.sock"))
    yield gateway
    gateway.close()


@pytest.mark.parametrize(("protocol", "scope"), [(2, "user"), (3, "thread")])
def test_everything_works_where_a_coordinator_searches(
    gateway: Gateway,
    connect: Connect,
    make_memory: Make,
    runner: asyncio.Runner | None,
    scope: Scope,
    protocol: int,
) -> None:
    memory = make_memory(**connect(gateway.ports[0], protocol=protocol), **options(scope))
    caller = Caller(memory=memory, runner=runner)
    for operation in OPERATIONS.values():
        operation.call(caller)
    for place in range(20):
        message = HumanMessage(f"hello {place}", id=str(place))
        memory.history.append([message], thread_id=f"thread {place}", user_id="many")
    assert memory.history.for_user("many").total == 20
    assert len(memory.recall.search("hello", user_id="many", top_k=30).hits) == 20
    assert memory.threads.list(user_id="many").total == 20
    assert min(gateway.served) > 10
    assert memory.doctor().level == "ok"


async def test_a_cluster_that_is_not_there_is_a_connection_error_without_its_password() -> None:
    client = redis.asyncio.RedisCluster(host="127.0.0.1", port=free_port(), password="hunter2")
    memory = Memory(async_client=client)
    with pytest.raises(RedisConnectionError, match="check that it runs") as caught:
        await memory.history.amessages("t")
    assert "hunter2" not in str(caught.value)
    assert [finding.check for finding in await memory.adoctor()] == ["connection"]
    await client.aclose()


# ---------------------------------------------------------------------- real nodes, without Search


@pytest.fixture
def cluster(start: BareServers) -> list[int]:
    return RealCluster(start).ports


def test_everything_but_search_works_on_real_nodes(
    cluster: list[int], connect: Connect, make_memory: Make, runner: asyncio.Runner | None, prefix: str
) -> None:
    known = [rule for rule in [*rules(prefix), *CLUSTER] if "ft." not in rule and "search." not in rule]
    for port in cluster:
        with redis.Redis(port=port) as node:
            user: Any = node
            user.execute_command("ACL", "SETUSER", "app", "reset", "on", ">p", *known)
    for scope in ("user", "thread"):
        chosen = {
            name: value for name, value in options(scope).items() if name not in {"embeddings", "recall", "files"}
        }
        client = connect(cluster[0], username="app", password="p")
        memory = make_memory(**client, create_index=False, **chosen)
        for place in range(12):  # spread over the slots of all nodes
            caller = Caller(memory=memory, runner=runner, thread=f"{scope} {place}", user=f"u{scope}{place}")
            for name in [name for name in OPERATIONS if name not in SEARCHES]:
                OPERATIONS[name].call(caller)
        assert {finding.check for finding in memory.doctor() if finding.level == "error"} == {"search"}
    counts = []
    for port in cluster:
        with redis.Redis(port=port) as node:
            counts.append(node.dbsize())
            refused = {entry["object"] for entry in node.acl_log()}
            assert refused <= {"info", "config|get", "ft.info", "ft.search", "search.clusterinfo"}
    assert min(counts) > 0
