"""Masters of a Redis Cluster that the test started, with Search or without."""

from __future__ import annotations

import contextlib
from typing import Any

import redis

from langchain_workingmem.embedded import chosen_engine
from tests.helpers.embedded import BareServers, free_port, wait_until

SLOTS = 16384


class RealCluster:
    """Three masters that share the slots; they notice a dead one after `node_timeout` milliseconds."""

    def __init__(self, start: BareServers, *, search: bool = False, node_timeout: int = 15_000) -> None:
        self._start = start
        self._searches = search
        modules = chosen_engine().modules if search else ()
        self._options = (
            *("--cluster-enabled", "yes", "--cluster-node-timeout", str(node_timeout)),
            *("--cluster-replica-validity-factor", "0"),  # a replica takes over however late a busy machine lets it
            *("--appendonly", "yes", "--appendfsync", "no", "--save", "", "--repl-diskless-sync-delay", "0"),
            *(word for module in modules for word in ("--loadmodule", str(module))),
        )
        self._bus: dict[int, int] = {}
        self.ports = [self._start_node() for _ in range(3)]
        for place, port in enumerate(self.ports):
            low, high = SLOTS * place // 3, SLOTS * (place + 1) // 3 - 1
            self.ask(port, "CLUSTER", "ADDSLOTSRANGE", low, high)
            self.ask(port, "CLUSTER", "SET-CONFIG-EPOCH", place + 1)
        for port in self.ports[1:]:
            self._meet(port)
        self.wait_until_ok()

    def _start_node(self, port: int | None = None) -> int:
        bus = self._bus[port] if port else free_port()
        port = port or free_port()
        self._bus[port] = bus
        return self._start(*self._options, "--cluster-port", str(bus), port=port)

    def _meet(self, port: int) -> None:
        self.ask(self.ports[0], "CLUSTER", "MEET", "127.0.0.1", port, self._bus[port])

    def ask(self, port: int, *command: Any) -> Any:
        with redis.Redis(port=port) as node:
            bare: Any = node
            return bare.execute_command(*command)

    def set(self, name: str, value: object) -> None:
        """Change a setting of every node that runs."""
        for port in self._start.running & {*self.ports}:
            self.ask(port, "CONFIG", "SET", name, value)

    def state(self, port: int) -> dict[str, str]:
        return dict(self.ask(port, "CLUSTER INFO"))

    def wait_until_ok(self) -> None:
        wait_until(lambda: all(self.is_whole(port) for port in self.ports), 30)

    def is_whole(self, port: int) -> bool:
        try:
            state = self.state(port)
        except redis.RedisError:
            return False
        if state["cluster_state"] != "ok" or state["cluster_slots_ok"] != str(SLOTS):
            return False
        return not self._searches or b"num_partitions, 3" in self._view(port)

    def _view(self, port: int) -> bytes:
        """Return how many masters a coordinator searches; some look for them at their first search."""
        for command in (("FT.CREATE", "probe", "SCHEMA", "field", "TAG"), ("FT.SEARCH", "probe", "*")):
            with contextlib.suppress(redis.RedisError):
                self.ask(port, *command)
        try:
            view = self.ask(port, "SEARCH.CLUSTERINFO")
        except redis.ResponseError as error:
            return b"num_partitions, 3" if "unknown command" in str(error) else b""
        words = [word for pair in view.items() for word in pair] if isinstance(view, dict) else view
        return b"%s, %d" % tuple(words[:2])

    def kill(self, port: int) -> None:
        self._start.kill(port)

    def restart(self, port: int) -> None:
        self._start_node(port)

    def heal(self) -> None:
        for port in {*self.ports} - self._start.running:
            self.restart(port)
        self.wait_until_ok()

    def pid(self, port: int) -> int:
        return self._start.pid(port)

    def add_replica(self, master: int) -> int:
        """Start one more node as the replica of a master, and wait until it has the master's data."""
        port = self._start_node()
        self._meet(port)
        name = self.ask(master, "CLUSTER", "MYID")
        wait_until(lambda: name.decode() in str(self.ask(port, "CLUSTER", "NODES")), 30)
        self.ask(port, "CLUSTER", "REPLICATE", name)
        wait_until(lambda: self.ask(port, "INFO", "replication")["master_link_status"] == "up", 30)
        own = self.ask(port, "CLUSTER", "MYID").decode()
        # they vote for a replica that they know
        wait_until(lambda: all(own in str(self.ask(one, "CLUSTER", "REPLICAS", name)) for one in self.ports), 30)
        return port
