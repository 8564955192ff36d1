"""A dead master whose replica has taken over: each search is whole or raises. `make nightly` runs this on each engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from langchain_workingmem import RedisConnectionError
from tests.helpers.embedded import BareServers, wait_until
from tests.helpers.everywhere import Data
from tests.helpers.real_cluster import RealCluster

pytestmark = [pytest.mark.in_turn("face"), pytest.mark.programs]

NOTICED = 2000  # milliseconds
Connect = Callable[..., dict[str, Any]]


class Torn(RealCluster):
    """Three masters, and a replica of the last one."""

    def __init__(self, start: BareServers) -> None:
        super().__init__(start, search=True, node_timeout=NOTICED)
        *self.others, self.lone = self.ports
        self.replica = self.add_replica(self.lone)

    def wait_until_replaced(self) -> None:
        wait_until(lambda: self.ask(self.replica, "ROLE")[0] == b"master", 30)
        wait_until(lambda: all(self.state(port)["cluster_state"] == "ok" for port in self.others), 30)


@pytest.fixture
def torn(raw: redis.Redis, start: BareServers) -> Torn:
    if int(raw.info("server")["redis_version"].partition(".")[0]) < 8:
        pytest.skip("the Search of this engine does not search other nodes")
    return Torn(start)


def is_whole(data: Data, whole: dict[str, Any]) -> bool:
    try:
        found = data.read()
    except RedisConnectionError:
        return False
    assert found == whole
    return True


def test_a_dead_master_that_was_replaced_can_be_forgotten(
    torn: Torn, connect: Connect, make_data: Callable[..., Data]
) -> None:
    data = make_data(**connect(torn.others[0], socket_timeout=0.5, socket_connect_timeout=0.5))
    data.fill()
    whole, name = data.read(), torn.ask(torn.lone, "CLUSTER", "MYID")
    dead = f"127.0.0.1:{torn.lone}"
    torn.kill(torn.lone)
    torn.wait_until_replaced()
    assert dead not in str(data.memory.doctor())  # which asks who the masters are now
    for port in (*torn.others, torn.replica):
        torn.ask(port, "CLUSTER", "FORGET", name)
    wait_until(lambda: is_whole(data, whole), 30)
    assert data.memory.users.delete("u").verified
