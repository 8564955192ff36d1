"""The embedded server among processes and users that have nothing to do with it: none is signalled, none gets in."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from langchain_workingmem._engine import guardian
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import OptionError, RedisConnectionError
from tests.helpers.embedded import server_pid, wait_until

pytestmark = [pytest.mark.usefixtures("scratch"), pytest.mark.programs]
NOBODY = 65534
IMPATIENT = timedelta(seconds=1)

# Among processes of other numbers: one that has, here, the number of the server of another container.
ELSEWHERE = """
import pathlib, subprocess, sys
from datetime import timedelta
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import RedisConnectionError

taken = int(sys.argv[2])
pathlib.Path("/proc/sys/kernel/ns_last_pid").write_text(str(taken - 1))
with subprocess.Popen(["sleep", "60"]) as innocent:
    assert innocent.pid == taken, innocent.pid
    try:
        EmbeddedRedis(sys.argv[1], start_timeout=timedelta(seconds=1)).start()
    except RedisConnectionError as error:
        print(error, flush=True)
    print("alive" if innocent.poll() is None else "killed", flush=True)
    innocent.kill()
"""


def can_unshare() -> bool:
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "test", "-w", "/proc/sys/kernel/ns_last_pid"]
    return bool(shutil.which("unshare")) and not subprocess.run(unshare, capture_output=True, check=False).returncode


@pytest.fixture
def innocent() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


# ------------------------------------------------------------------ processes


@pytest.mark.parametrize("kind", ["only its number", "started before", "of another container", "nobody at all"])
def test_a_process_that_is_not_certainly_the_server_gets_no_signal(
    data: Path, innocent: subprocess.Popen[bytes], kind: str
) -> None:
    number, started, namespace = (guardian.identity(innocent.pid) or "").split()
    names = {
        "only its number": number,
        "started before": f"{number} {int(started) - 1} {namespace}",
        "of another container": f"{number} {started} pid:[1]",
        "nobody at all": "",
    }
    data.mkdir(mode=0o700)
    (data / "server.lock").write_text(names[kind])
    with (data / "server.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RedisConnectionError, match=r"(?s)server\.lock is held.*end it there"):
            EmbeddedRedis(data, start_timeout=IMPATIENT).start()
        assert innocent.poll() is None
    with EmbeddedRedis(data):
        assert server_pid(data) != innocent.pid
    assert innocent.poll() is None


@pytest.mark.skipif(not can_unshare(), reason="needs the right to make a namespace of pids, and to choose a pid in it")
def test_two_containers_on_one_volume_leave_the_processes_of_each_other_alone(data: Path) -> None:
    data.mkdir(mode=0o700)
    holder = "import fcntl, sys; lock = open(sys.argv[1]); fcntl.flock(lock, fcntl.LOCK_EX); print(flush=True); input()"
    (data / "server.lock").touch()
    with ExitStack() as stack:
        server = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", holder, str(data / "server.lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        )
        assert server.stdout
        server.stdout.readline()
        (data / "server.lock").write_text(guardian.identity(server.pid) or "")
        inside = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", ELSEWHERE]
        run = subprocess.run(
            [*inside, str(data), str(server.pid)], capture_output=True, text=True, timeout=60, check=False
        )
        assert run.stdout.endswith("alive\n"), run.stdout + run.stderr
        assert "server.lock is held" in run.stdout
        assert server.poll() is None
        server.communicate(b"\n")


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_process_has_one_name_and_no_other_has_it(
    innocent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setattr(guardian, "sys", SimpleNamespace(platform=platform))
    name = guardian.identity(innocent.pid)
    assert name is not None
    assert name == guardian.identity(innocent.pid)
    assert name.startswith(f"{innocent.pid} ")
    assert name != guardian.identity(os.getpid())
    innocent.kill()
    innocent.wait()
    assert guardian.identity(innocent.pid) is None


def test_where_processes_have_no_names_none_is_signalled(
    data: Path,
    innocent: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "readlink", lambda _: (_ for _ in ()).throw(FileNotFoundError()))
    assert guardian.identity(innocent.pid) is None
    data.mkdir()
    lock = guardian.open_lock(data / "server.lock")
    os.pwrite(lock, str(innocent.pid).encode(), 0)
    with (data / "server.lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        waiting = threading.Thread(target=guardian.stop_orphan, args=(lock,))
        waiting.start()
        wait_until(lambda: "server.lock is held" in capfd.readouterr().err)
        assert waiting.is_alive()
        assert innocent.poll() is None
    waiting.join(10)
    assert not waiting.is_alive()
    os.close(lock)


# ------------------------------------------------------------------ users


def test_a_directory_of_another_user_is_refused(data: Path) -> None:
    if os.geteuid() == 0:
        data.mkdir(mode=0o700)
        os.chown(data, NOBODY, NOBODY)
        others = data
    else:
        others = Path("/usr")
    with pytest.raises(OptionError, match=r"belongs to the user with the number \d+.*chown"):
        EmbeddedRedis(others).start()
    assert not (others / "users.lock").exists()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722, 0o1777])
def test_a_directory_that_others_may_write_to_is_refused(data: Path, mode: int) -> None:
    data.mkdir()
    data.chmod(mode)
    with pytest.raises(OptionError, match="chmod go-w"):
        EmbeddedRedis(data).start()
    assert not list(data.iterdir())
    data.chmod(mode & ~0o022)
    with EmbeddedRedis(data):
        pass


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o722])
@pytest.mark.parametrize("between", ["", "a/b"])
def test_a_parent_that_others_may_write_to_is_refused(scratch: Path, mode: int, between: str) -> None:
    parent = scratch / "open"
    parent.mkdir()
    parent.chmod(mode)
    data = parent / between / "data"
    with pytest.raises(OptionError, match=r"write to \S+/open, and could replace \S+/data: .*chmod go-w.*chmod \+t"):
        EmbeddedRedis(data).start()
    assert not list(data.iterdir())
    parent.chmod(mode | 0o1000)
    with EmbeddedRedis(data):
        pass


def test_a_parent_that_the_own_group_may_write_to_works(scratch: Path) -> None:
    parent = scratch / "group"
    parent.mkdir()
    os.chown(parent, -1, os.getegid())
    parent.chmod(0o775)
    with EmbeddedRedis(parent / "data"):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give directories away")
def test_a_parent_that_another_group_may_write_to_is_refused(scratch: Path) -> None:
    parent = scratch / "theirs"
    parent.mkdir()
    parent.chmod(0o775)
    os.chown(parent, 0, NOBODY)
    with pytest.raises(OptionError, match=r"write to .*theirs"):
        EmbeddedRedis(parent / "data").start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give directories away")
def test_root_works_below_the_home_of_another_user(scratch: Path) -> None:
    parent = scratch / "home"
    parent.mkdir()
    parent.chmod(0o755)
    os.chown(parent, NOBODY, NOBODY)
    with EmbeddedRedis(parent / "data"):
        pass


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_a_directory_that_others_may_read_works(data: Path, mode: int) -> None:
    data.mkdir(mode=mode)
    with EmbeddedRedis(data):
        assert (data / "redis.sock").stat().st_mode & 0o077 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_nobody_can_use_a_directory_of_ours_or_be_used_by_us(scratch: Path, data: Path) -> None:
    scratch.chmod(0o755)
    data.mkdir(mode=0o755)
    with EmbeddedRedis(data):
        child = os.fork()
        if not child:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            try:
                EmbeddedRedis(data).start()
            except OptionError as error:
                os._exit(0 if "belongs to" in str(error) else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
