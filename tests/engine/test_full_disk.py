"""A disk that is full: a limit on the size of the server's files does to it what a full disk does."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

import pytest
import redis

from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embedded import connect, is_stopped, kill_server, server_pid, wait_until

pytestmark = [
    pytest.mark.in_turn("face"),
    pytest.mark.usefixtures("scratch"),
    pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits another process"),
]
ROOM = 60_000  # bytes
WRITERS = 8


def fill(directory: Path, room: int | None = ROOM) -> None:
    """Leave so much room for the append-only file of a running server, None: as much as it likes."""
    (file,) = directory.glob("appendonlydir/*.incr.aof")
    most = resource.RLIM_INFINITY if room is None else file.stat().st_size + room
    resource.prlimit(server_pid(directory), resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def test_a_server_that_is_killed_while_its_disk_is_full_loses_one_write_of_a_client_at_most(
    data: Path,
) -> None:
    acknowledged = [0] * WRITERS
    errors: list[redis.RedisError] = []

    def write(number: int) -> None:
        with connect(server) as client:
            try:
                while True:
                    client.rpush(f"writer {number}", "x" * 90)
                    acknowledged[number] += 1
            except redis.RedisError as error:
                errors.append(error)

    with EmbeddedRedis(data) as server:
        with connect(server) as client:
            client.set("key", "value")
        fill(data)
        writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(30)
        assert [type(error) for error in errors if not isinstance(error, redis.ResponseError)] == []
        assert len(errors) == WRITERS
        kill_server(data)
        wait_until(lambda: is_stopped(data))
        server.start()
        with connect(server) as client:
            missing = [count - client.llen(f"writer {number}") for number, count in enumerate(acknowledged)]
        assert sum(acknowledged) > 100
        assert max(missing) <= 1
