"""The doctor's plan, driven by hand with what servers answer that the tests cannot start."""

from __future__ import annotations

from typing import Any

import pytest

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
    "CONFIG": [b"save", b""],
    "FT.INFO": [b"num_docs", b"3.0", b"hash_indexing_failures", b"0", b"indexing", b"0", b"attributes", []],
    "GET": None,
    "HGET": LAYOUT.encode(),
    "FT.AGGREGATE": [0],
    "SCAN": [b"0", []],
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
    assert found["threads index"].message == "3 documents, 0.0 MiB"


@pytest.mark.parametrize("field", ["aof_last_write_status", "rdb_last_bgsave_status"])
def test_a_disk_that_cannot_be_written_is_an_error(field: str) -> None:
    found = diagnosed(INFO={**HEALTHY["INFO"], field: "err"})["persistence"]
    assert (found.level, found.message) == ("error", f"{field}: writing failed")


def test_an_index_that_is_being_built_is_a_warning() -> None:
    building = {b"num_docs": 50, b"indexing": 1, b"percent_indexed": b"0.5", b"attributes": []}
    found = diagnosed(**{"FT.INFO": building})["threads index"]
    assert (found.level, found.message) == ("warning", "50 documents, 0.0 MiB; 50% is indexed")


def test_every_master_is_named() -> None:
    full = {**HEALTHY["INFO"], "used_memory": 95, "maxmemory": 100}
    down = RedisConnectionError("Redis cannot be reached (refused)", remedy="check")
    masters: dict[str, dict[str, Any]] = {"a:1": {}, "b:2": {"INFO": full}, "c:3": {"HELLO": down, "INFO": down}}
    found = [(one.check, one.level, one.message) for one in all_findings(masters)]
    assert ("server", "ok", "a:1: redis 8.2.0, cluster, master") in found
    assert ("server", "error", "c:3: Redis cannot be reached (refused)") in found
    assert ("memory", "warning", "b:2: 0 MiB used of 0 MiB") in found
