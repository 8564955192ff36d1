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
from langchain_workingmem._engine.effects import Command
from langchain_workingmem._redis.acl import CLUSTER, rules
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.options import Scope
from tests.helpers.cluster_gateway import Gateway, keys_of
from tests.helpers.embedded import BareServers, free_port
from tests.helpers.examples import NIGHTLY
from tests.helpers.media import forms, kept
from tests.helpers.observers import live, observing
from tests.helpers.operations import OPERATIONS, Caller, options
from tests.helpers.real_cluster import SLOTS, RealCluster
from tests.keeping.world import keeps
from tests.keeping.world import live as live_kept

pytestmark = [pytest.mark.in_turn("face"), pytest.mark.programs]

Make = Callable[..., Memory]
Connect = Callable[..., dict[str, Any]]

SEARCHES = {  # which a cluster can do from Redis 8 on
    *(
        "setup",
        "history.for_resource",
        "recall.search",
        "recall.reindex",
        "threads.list",
        "users.list",
    ),
    *("as_retriever", "search_memory"),
    *("users.export", "users.load", "users.merge"),
}


def test_every_command_stays_in_one_slot(
    make_memory: Make, runner: asyncio.Runner | None, commands: list[Command]
) -> None:
    for scope in ("resource", "thread"):
        caller = Caller(memory=make_memory(**options(scope)), runner=runner, thread=f"{scope} {{}}}}{{a}}")
        for operation in OPERATIONS.values():
            operation.call(caller)
        live(make_memory(**observing(scope)), scope, f"{{a}} }}b{{{scope}", f"{{c}} }}d{{{scope}")
    pictures = make_memory()
    pictures.history.append([*forms().values()], thread_id="{a} pictures", resource_id="u")
    assert pictures.history.messages(pictures.threads.clone("{a} pictures").thread.id)
    found = [keys_of(command) for command in commands]
    assert max(map(len, found)) == 12
    for keys in found:
        assert len({key_slot(key) for key in keys}) <= 1, keys


# ---------------------------------------------------------------------- with Search


@pytest.fixture
def gateway(server: EmbeddedRedis) -> Iterator[Gateway]:
    assert server.path
    gateway = Gateway(str(server.path / "redis.sock"))
    yield gateway
    gateway.close()


@pytest.mark.parametrize(("protocol", "scope"), [(2, "resource"), (3, "thread")])
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
        memory.history.append([message], thread_id=f"thread {place}", resource_id="many")
    assert memory.history.for_resource("many").total == 20
    assert len(memory.recall.search("hello", resource_id="many", top_k=30).hits) == 20
    assert memory.threads.list(resource_id="many").total == 20
    assert min(gateway.served) > 10
    assert memory.doctor().level == "ok"


def test_media_leave_a_cluster_and_come_back(
    gateway: Gateway, connect: Connect, make_memory: Make, prefix: str
) -> None:
    memory = make_memory(**connect(gateway.ports[0]))
    other = make_memory(**connect(gateway.ports[1]), key_prefix=f"{prefix}o")
    given = [*forms().values()]
    for place in range(4):
        memory.history.append(given, thread_id=f"t{place}", resource_id="u")
    other.users.load(list(memory.users.export("u")))
    with redis.RedisCluster(host="127.0.0.1", port=gateway.ports[0]) as raw:
        for place in range(4):
            assert other.history.messages(f"t{place}") == given
            assert kept(raw, f"{prefix}o", f"t{place}") == 4


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
    known = [rule for rule in [*rules(Keys(prefix)), *CLUSTER] if "ft." not in rule and "search." not in rule]
    for port in cluster:
        with redis.Redis(port=port) as node:
            user: Any = node
            user.execute_command("ACL", "SETUSER", "app", "reset", "on", ">p", *known)
    for scope in ("resource", "thread"):
        chosen = {
            name: value for name, value in options(scope).items() if name not in {"embeddings", "recall", "files"}
        }
        client = connect(cluster[0], username="app", password="p")
        memory = make_memory(**client, create_index=False, **chosen)
        for place in range(12):  # spread over the slots of all nodes
            caller = Caller(memory=memory, runner=runner, thread=f"{scope} {place}", resource=f"u{scope}{place}")
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


def test_observations_work_on_real_nodes(cluster: list[int], connect: Connect, make_memory: Make, prefix: str) -> None:
    known = [rule for rule in [*rules(Keys(prefix)), *CLUSTER] if "ft." not in rule and "search." not in rule]
    for port in cluster:
        with redis.Redis(port=port) as node:
            user: Any = node
            user.execute_command("ACL", "SETUSER", "app", "reset", "on", ">p", *known)
    scopes: list[Scope] = ["resource", "thread"]
    for scope in scopes:
        client = connect(cluster[0], username="app", password="p")
        memory = make_memory(**client, create_index=False, **observing(scope))
        for place in range(6 if NIGHTLY else 2):  # logs and threads lie on different nodes
            live(memory, scope, f"{scope} {place}", f"u{scope}{place}", searches=False)


def test_values_are_kept_on_real_nodes(cluster: list[int], connect: Connect, make_memory: Make) -> None:
    for scope in ("resource", "thread"):
        memory = make_memory(**connect(cluster[0]), create_index=False, **keeps(scope))
        for place in range(6 if NIGHTLY else 2):  # values and threads lie on different nodes
            live_kept(memory, scope, f"{scope} {place}", f"u{scope}{place}", searches=False)


def test_media_go_with_their_thread_to_other_nodes(
    cluster: list[int], connect: Connect, make_memory: Make, prefix: str
) -> None:
    memory = make_memory(**connect(cluster[0]), create_index=False)
    given = [*forms().values()]
    masters = set()
    with redis.RedisCluster(host="127.0.0.1", port=cluster[0]) as raw:
        for place in range(6):
            thread, copy = f"t{place}", f"copy{place}"
            memory.history.append(given, thread_id=thread, resource_id="u")
            memory.threads.clone(thread, new_thread_id=copy, resource_id="u")
            memory.threads.transfer(copy, resource_id="u", to="v")
            masters.add(tuple(3 * key_slot(name.encode()) // SLOTS for name in (thread, copy)))
            copied = memory.history.messages(copy, resource_id="v")
            assert [one.model_copy(update={"id": known.id}) for one, known in zip(copied, given, strict=True)] == given
            memory.history.delete(["several", "result"], thread_id=thread)
            assert kept(raw, prefix, thread) == 3  # the one of the tool's result has gone
            memory.threads.delete(thread)
            assert kept(raw, prefix, thread) == 0
            assert kept(raw, prefix, copy) == 4
    assert any(one != other for one, other in masters)


def test_files_go_to_an_owner_on_another_node(
    cluster: list[int], connect: Connect, make_memory: Make, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_threads(*_: Any) -> Any:  # these nodes have no Search
        yield from ()
        return []

    monkeypatch.setattr("langchain_workingmem.users.merging.all_threads", no_threads)
    memory = make_memory(**connect(cluster[0]), create_index=False)
    masters = set()
    for number in range(6):
        guest: Any = {"resource_id": f"guest {number}"}
        memory.files.write("/a.md", "one\n", **guest)
        memory.files.edit("/a.md", "one", f"one of {number}", **guest)
        masters.add(3 * key_slot(f"guest%20{number}".encode()) // SLOTS)
        report = memory.users.merge(guest["resource_id"], into="user")
        assert report.files == 1
    assert len(masters) > 1
    found = [
        memory.files.read(one.path, resource_id="user").text for one in memory.files.glob("**", resource_id="user")
    ]
    assert sorted(found) == [f"one of {number}\n" for number in range(6)]
    assert memory.users.delete("user").files == 6
    with redis.RedisCluster(host="127.0.0.1", port=cluster[0]) as raw:
        assert not list(raw.scan_iter(f"{prefix}:files*"))


def test_a_node_that_lost_its_users_is_not_down(cluster: list[int], connect: Connect, make_memory: Make) -> None:
    for port in cluster:
        with redis.Redis(port=port) as node:
            node.acl_setuser("app", enabled=True, passwords=["+p"], categories=["+@all"], keys=["*"])
    memory = make_memory(**connect(cluster[0], username="app", password="p"))
    assert memory.doctor().findings[0].message.endswith("(3 masters)")
    with redis.Redis(port=cluster[1]) as node:
        node.acl_deluser("app")
    found = memory.doctor().findings
    assert found[0].message.startswith(f"127.0.0.1:{cluster[1]}: Redis refused the login")
    assert "ACL SAVE" in str(found[0].remedy)
    assert all("docker run" not in str(finding.remedy) for finding in found)
