"""Nodes of a cluster that do not reach each other, while clients reach them all, or only some.

`make nightly` runs this on each engine. Each search is whole or raises; what Redis acknowledged is kept, but for what the cut off
master acknowledged before it noticed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage
from redis.crc import key_slot

from langchain_workingmem import Memory, RedisConnectionError
from tests.helpers.embedded import BareServers, wait_until
from tests.helpers.everywhere import Data
from tests.helpers.network import CLIENT, Network
from tests.helpers.real_cluster import SLOTS, RealCluster

pytestmark = [pytest.mark.in_turn("face"), pytest.mark.programs]

NOTICED = 2000  # milliseconds
Connect = Callable[..., dict[str, Any]]


class Torn(RealCluster):
    """Three masters, a replica of the last one, and a network that can be cut."""

    def __init__(self, start: BareServers, network: Network) -> None:
        super().__init__(start, search=True, node_timeout=NOTICED, network=network)
        self.network = network
        *self.others, self.lone = self.ports
        self.replica = self.add_replica(self.lone)

    def client(self, port: int) -> dict[str, Any]:
        return {"port": self.seen[port][0], "socket_timeout": 0.5, "socket_connect_timeout": 0.5}

    def wait_until_replaced(self) -> None:
        wait_until(lambda: self.ask(self.replica, "ROLE")[0] == b"master", 30)
        wait_until(lambda: all(self.state(port)["cluster_state"] == "ok" for port in self.others), 30)


@pytest.fixture
def torn(raw: redis.Redis, start: BareServers) -> Iterator[Torn]:
    if int(raw.info("server")["redis_version"].partition(".")[0]) < 8:
        pytest.skip("the Search of this engine does not search other nodes")
    network = Network(start)
    yield Torn(start, network)
    network.close()


class Writer:
    """Saves one turn after another into a thread of each master, and knows which were acknowledged, and when they began."""

    def __init__(self, torn: Torn, prefix: str) -> None:
        self.threads = [
            next(f"w{n}" for n in range(99) if 3 * key_slot(b"w%d" % n) // SLOTS == place) for place in range(3)
        ]
        self.saved: dict[str, dict[str, float]] = {thread: {} for thread in self.threads}
        self.refused: dict[str, list[str]] = {thread: [] for thread in self.threads}
        self._torn, self._prefix, self._is_over = torn, prefix, threading.Event()

    @contextmanager
    def writing(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._write, args=(thread,)) for thread in self.threads]
        for one in threads:
            one.start()
        try:
            yield
        finally:
            self._is_over.set()
            for one in threads:
                one.join()

    def _write(self, thread: str) -> None:
        with redis.RedisCluster(host="127.0.0.1", **self._torn.client(self._torn.others[0])) as client:
            memory = Memory(client=client, key_prefix=self._prefix)
            number = 0
            while not self._is_over.wait(0.02):
                number += 1
                begin = time.monotonic()
                try:
                    self.save(memory, thread, str(number))
                    self.saved[thread][str(number)] = begin
                except RedisConnectionError:
                    self.refused[thread].append(str(number))

    def save(self, memory: Memory, thread: str, number: str) -> None:
        turn = [HumanMessage("q", id=f"q{number}"), AIMessage("a", id=f"a{number}")]
        memory.save_turn(turn, thread_id=thread, resource_id=thread)  # the keys of both are on one master

    def lost(self, memory: Memory, thread: str) -> list[float]:
        """Return when what is lost began; each message that is kept is there once, with the other of its turn."""
        found = [message.id for message in memory.history.messages(thread)]
        numbers = {id[1:] for id in found if id}
        assert sorted(map(str, found)) == sorted(f"{kind}{number}" for number in numbers for kind in "aq")
        return [at for number, at in self.saved[thread].items() if number not in numbers]


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_master_in_the_minority_loses_no_more_than_redis_does(
    torn: Torn, connect: Connect, make_data: Callable[..., Data], prefix: str, protocol: int
) -> None:
    data = make_data(**connect(**torn.client(torn.others[0]), protocol=protocol))
    data.fill()
    whole, writer = data.read(), Writer(torn, prefix)
    with writer.writing():
        wait_until(lambda: all(writer.saved.values()))
        with torn.network.cut(torn.lone):
            begin = time.monotonic()
            while torn.ask(torn.replica, "ROLE")[0] == b"slave":
                assert_whole_or_none(data, whole)
            torn.wait_until_replaced()
            replaced = time.monotonic()
            assert_whole_or_none(data, whole)
            wait_until(lambda: all(max(saved.values()) > replaced for saved in writer.saved.values()), 30)
        wait_until(lambda: is_whole(data, whole), 60)
    *others, alone = writer.threads
    assert not [lost for thread in others for lost in writer.lost(data.memory, thread)]
    assert all(begin - 1 < at < replaced for at in writer.lost(data.memory, alone))
    for thread in writer.threads:
        for number in (*writer.saved[thread], *writer.refused[thread]):
            writer.save(data.memory, thread, number)
        assert not writer.lost(data.memory, thread)
    assert data.memory.users.delete("u").verified
    for port in (*torn.others, torn.replica):
        with redis.Redis(port=port) as node:
            assert not list(node.scan_iter(f"{prefix}:*thread 1*"))


def assert_whole_or_none(data: Data, whole: dict[str, Any]) -> None:
    for name, search in data.searches().items():
        found = remedy = None
        try:
            found = search()
        except RedisConnectionError as error:
            remedy = str(error.remedy)
        assert found == whole[name] or "CLUSTER NODES" in str(remedy), (name, found)


def is_whole(data: Data, whole: dict[str, Any]) -> bool:
    try:
        found = data.read()
    except RedisConnectionError:
        return False
    assert found == whole
    return True


def test_a_client_on_the_side_of_the_minority_is_refused_until_the_network_is_whole(
    torn: Torn, connect: Connect, make_data: Callable[..., Data]
) -> None:
    data = make_data(**connect(**torn.client(torn.lone) | {"socket_timeout": 0.2, "socket_connect_timeout": 0.2}))
    data.fill()
    whole, memory = data.read(), data.memory
    with torn.network.cut(torn.lone, CLIENT):
        torn.wait_until_replaced()
        wait_until(lambda: torn.state(torn.lone)["cluster_state"] == "fail")
        for call in (
            lambda: memory.recall.search("pears", resource_id="u"),
            lambda: memory.threads.list(resource_id="u"),
            lambda: memory.save_turn([HumanMessage("q"), AIMessage("a")], thread_id="thread 0", resource_id="u"),
            lambda: memory.users.delete("u"),
        ):
            with pytest.raises(RedisConnectionError):
                call()
    wait_until(lambda: is_whole(data, whole), 60)


def test_a_dead_master_that_was_replaced_can_be_forgotten(
    torn: Torn, connect: Connect, make_data: Callable[..., Data]
) -> None:
    data = make_data(**connect(**torn.client(torn.others[0])))
    data.fill()
    whole, name = data.read(), torn.ask(torn.lone, "CLUSTER", "MYID")
    dead = f"127.0.0.1:{torn.seen[torn.lone][0]}"
    torn.kill(torn.lone)
    torn.wait_until_replaced()
    assert dead not in str(data.memory.doctor())  # which asks who the masters are now
    for port in (*torn.others, torn.replica):
        torn.ask(port, "CLUSTER", "FORGET", name)
    wait_until(lambda: is_whole(data, whole), 30)
    assert data.memory.users.delete("u").verified
