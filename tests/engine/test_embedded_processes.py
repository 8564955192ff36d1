"""The embedded server between processes: several users of one server, real signals, crashes."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embedded import connect, go_on, is_free, is_stopped, parent_pid, read, server_pid, wait_until
from tests.helpers.programs import Forked

pytestmark = pytest.mark.usefixtures("scratch")

USER = """
import signal
import sys
import redis
from langchain_workingmem.embedded import EmbeddedRedis

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell takes from what it runs in the background
print("ready", flush=True)
sys.stdin.readline()
embedded = EmbeddedRedis(sys.argv[1] if len(sys.argv) > 1 else None)
embedded.start()
with redis.Redis.from_url(embedded.url) as client:
    client.incr("users")
    print(client.info("server")["process_id"], embedded.path, flush=True)
sys.stdin.readline()
"""


User = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def user(scratch: Path) -> Iterator[User]:
    """Start a process that uses a server after its first line of input, until its second or its end."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: object) -> subprocess.Popen[str]:
            words, pipe = [sys.executable, "-c", USER, *map(str, arguments)], subprocess.PIPE
            process = stack.enter_context(Forked(words, stdin=pipe, stdout=pipe))
            stack.callback(process.kill)
            assert read(process) == "ready"
            return process

        yield start


def test_eight_processes_at_once_start_one_server_and_the_last_ends_it(data: Path, user: User) -> None:
    users = [user(data) for _ in range(8)]
    for process in users:
        go_on(process)
    assert {read(process) for process in users} == {f"{server_pid(data)} {data}"}
    with EmbeddedRedis(data) as embedded, connect(embedded) as client:
        assert client.get("users") == "8"
        assert not (data / "redis.log.1").exists()  # a second start would have moved the first log
    assert not is_stopped(data)
    for process in users:
        go_on(process)
    wait_until(lambda: is_stopped(data), seconds=2)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_server_stops_after_its_only_user_was_killed(data: Path, user: User, end: signal.Signals) -> None:
    only = user(data)
    go_on(only)
    assert int(read(only).split(" ", 1)[0]) == server_pid(data)
    only.send_signal(end)
    wait_until(lambda: is_stopped(data), seconds=2)
    assert not (data / "redis.sock").exists()


def test_a_temporary_directory_goes_after_its_only_user_was_killed(user: User) -> None:
    only = user()
    go_on(only)
    directory = Path(read(only).split(" ", 1)[1])
    assert directory.is_dir()
    only.kill()
    wait_until(lambda: not directory.exists(), seconds=2)


def test_a_subprocess_does_not_keep_the_server(data: Path) -> None:
    with EmbeddedRedis(data):
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    wait_until(lambda: is_stopped(data), seconds=2)
    child.communicate()


def test_start_brings_back_a_killed_server_with_its_data(data: Path) -> None:
    with EmbeddedRedis(data) as embedded, connect(embedded) as client:
        client.set("key", "value")
        os.kill(server_pid(data), signal.SIGKILL)
        wait_until(lambda: is_free(data / "server.lock"))
        embedded.start()
        with connect(embedded) as again:
            assert again.get("key") == "value"


@pytest.mark.parametrize("victims", ["parent first", "server first"])
def test_nothing_that_killed_processes_leave_blocks_the_next_start(data: Path, victims: str) -> None:
    with EmbeddedRedis(data) as embedded, connect(embedded) as client:
        client.set("key", "value")
        pids = [parent_pid(data), server_pid(data)]
        for pid in pids if victims == "parent first" else reversed(pids):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: is_stopped(data))
    (data / "redis.sock").unlink(missing_ok=True)
    (data / "redis.sock").write_text("stale")
    (data / "temp-rewriteaof-bg-1.aof").write_text("stale")
    with EmbeddedRedis(data) as embedded, connect(embedded) as client:
        assert client.get("key") == "value"
        assert not list(data.glob("temp-*"))


def test_no_acknowledged_write_is_lost_when_the_server_is_killed(data: Path) -> None:
    acknowledged = 0
    many = threading.Event()

    def kill() -> None:
        many.wait(10)
        os.kill(server_pid(data), signal.SIGKILL)

    with EmbeddedRedis(data) as embedded:
        killer = threading.Thread(target=kill)
        killer.start()
        with connect(embedded) as client, contextlib.suppress(redis.ConnectionError):
            while True:
                client.rpush("writes", acknowledged)
                acknowledged += 1
                if acknowledged == 300:
                    many.set()
        killer.join()
        embedded.start()
        with connect(embedded) as client:
            written = client.lrange("writes", 0, -1)
    # the last one may have been written and not acknowledged any more
    assert written[:acknowledged] == [str(number) for number in range(acknowledged)]
    assert len(written) - acknowledged in (0, 1)
