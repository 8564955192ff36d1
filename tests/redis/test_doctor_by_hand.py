"""The doctor's plan, driven by hand with what servers answer that the tests cannot start."""

from __future__ import annotations

from typing import Any

from langchain_workingmem._engine.calls import Embedder
from langchain_workingmem._engine.plan import Send
from langchain_workingmem._redis.doctor import diagnose
from langchain_workingmem._redis.indexes import LAYOUT
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem._redis.state import MemoryState
from langchain_workingmem.errors import RedisConnectionError
from langchain_workingmem.models import Diagnosis, Finding

HEALTHY: dict[str, Any] = {
    "HELLO": {b"server": b"redis", b"version": b"8.2.0", b"mode": b"cluster", b"role": b"master", b"modules": []},
    "INFO": {"aof_enabled": 1, "maxmemory_policy": "noeviction", "used_memory": 2**20, "maxmemory": 0},
    "FT.INFO": [b"num_docs", b"3.0", b"hash_indexing_failures", b"0", b"attributes", []],
    "GET": None,
    "HGET": LAYOUT.encode(),
    "FT.AGGREGATE": [0],
}


def all_findings(masters: dict[str, dict[str, Any]] | None = None, **answers: Any) -> list[Finding]:
    """Play the server, or several masters, by the first word of each command."""
    plan = diagnose(MemoryState(keys=Keys(), embedder=Embedder()))
    result: Any = None
    try:
        while True:
            effect = plan.send(result)
            assert isinstance(effect, Send)
            commands = [str(command[0]) for command in effect.commands]
            nodes = masters or {"": {}}
            replies = {name: [{**HEALTHY, **answers, **own}[one] for one in commands] for name, own in nodes.items()}
            # a master that is down gives an error instead of replies
            down = {name: one[0] for name, one in replies.items() if isinstance(one[0], RedisConnectionError)}
            result = {**replies, **down} if effect.node == "*" else replies[next(iter(nodes))]
    except StopIteration as done:
        found: Diagnosis = done.value
        return list(found)


def diagnosed(**answers: Any) -> dict[str, Finding]:
    return {finding.check: finding for finding in all_findings(**answers)}


def test_a_coordinator_that_writes_numbers_as_floats() -> None:
    found = diagnosed()
    assert {finding.level for finding in found.values()} == {"ok"}
    assert found["server"].message == "redis 8.2.0, cluster, master"
    assert found["threads index"].message == "3 documents"


def test_every_master_is_named() -> None:
    full = {**HEALTHY["INFO"], "used_memory": 95, "maxmemory": 100}
    down = RedisConnectionError("Redis cannot be reached (refused)", remedy="check")
    masters: dict[str, dict[str, Any]] = {"a:1": {}, "b:2": {"INFO": full}, "c:3": {"HELLO": down}}
    found = [(one.check, one.level, one.message) for one in all_findings(masters)]
    assert ("server", "ok", "a:1: redis 8.2.0, cluster, master") in found
    assert ("server", "error", "c:3: Redis cannot be reached (refused): check") in found
    assert ("memory", "warning", "b:2: 0 MiB used of 0 MiB") in found
