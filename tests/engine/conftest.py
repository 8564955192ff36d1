"""Fixtures that several files here need."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterNode

from langchain_workingmem.embedded import EmbeddedRedis, socket_of
from tests.helpers.fault_bench import FaultBench
from tests.helpers.proxy import Proxy
from tests.helpers.types import Make


@pytest.fixture(scope="module")
def private() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(private: EmbeddedRedis) -> Iterator[Proxy]:
    with Proxy(to_socket(private)) as proxy:
        yield proxy


def to_socket(server: EmbeddedRedis) -> Callable[[], socket.socket]:
    assert server.path is not None
    place = str(socket_of(server.path))

    def connect() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(place)
        return connection

    return connect


@pytest.fixture
def make_bench(
    private: EmbeddedRedis, proxy: Proxy, make_memory: Make, impatient: None
) -> Iterator[Callable[..., FaultBench]]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(closing(FaultBench(private, proxy, make_memory, **options)))


@pytest.fixture
def data(scratch: Path) -> Path:
    return scratch / "data"


@pytest.fixture
def connect(face: str, loop_runner: asyncio.Runner) -> Iterator[Callable[..., dict[str, Any]]]:
    """Make a client of a cluster, of the kind that the face needs."""
    closing: list[Callable[[], Any]] = []

    def make(port: int, **more: Any) -> dict[str, Any]:
        client: Any
        if face == "sync":
            client = redis.RedisCluster(host="127.0.0.1", port=port, **more)
            closing.append(client.close)
            return {"client": client}
        client = redis.asyncio.RedisCluster(host="127.0.0.1", port=port, **more)

        async def close() -> None:
            await client.aclose()
            await asyncio.sleep(0.1)  # redis-py closes nodes that it has replaced in tasks of its own
            if tasks := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(tasks, timeout=5)
            for node in [one for one in gc.get_objects() if isinstance(one, ClusterNode)]:
                await node.disconnect()  # others that it replaced it leaves open

        closing.append(lambda: loop_runner.run(close()))
        return {"async_client": client}

    yield make
    for end in closing:
        end()
