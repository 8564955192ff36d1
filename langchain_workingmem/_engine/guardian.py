"""Keeps one private Redis server running while its data directory has users.

    python -I -S guardian.py <directory> <socket> keep|remove <command> [<argument> ...]

`server.py` runs this file as a script, so it imports the standard library only. Four files in the directory are locks.
All are `flock`s: the kernel releases them when their holder ends in any way, so a crash cannot block a later start.

    users.lock      shared by all users; taken exclusively by the guardian after the last user has gone, until everything
                    is cleaned up, so that a new user waits for the end and then starts a new server
    start.lock      held by the one user that checks for a running server and starts one if necessary
    guardian.lock   held by the guardian
    server.lock     held by the server itself, which inherits it, so that two servers never write to one append-only
                    file; it contains the `identity` of the server
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

POLL_SECONDS = 0.2
STOP_SECONDS = 5.0  # a server writes out its file in milliseconds; this limits the wait for one that hangs
PR_SET_PDEATHSIG = 1
DISK_ERRORS = {errno.EIO, errno.ENOSPC, errno.EDQUOT}  # other errors: the file system has no fsync


def open_lock(path: Path) -> int:
    """Open a lock file; programs that this process executes do not inherit it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def locked(lock: int, mode: int = fcntl.LOCK_EX) -> bool:
    """Take a lock if it is free, and return whether that worked."""
    try:
        fcntl.flock(lock, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_current(directory: Path, users: int) -> bool:
    """Return whether a descriptor of `users.lock` is for the present directory, not for a removed one."""
    try:
        return os.path.samestat(os.fstat(users), (directory / "users.lock").stat())
    except OSError:
        return False


def ask(socket_path: Path, command: str, *, seconds: float = 1) -> str:
    """Return the server's reply to a command of the inline protocol, "" without a reply within some seconds."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(os.fsencode(socket_path))
            connection.sendall(f"{command}\r\n".encode())
            return connection.recv(4096).decode()
        except OSError:
            return ""


def log(line: str) -> None:
    """Write a line to standard error, which is the log."""
    os.write(2, f"{line}\n".encode())


def _within_limit(done: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + STOP_SECONDS
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def identity(pid: int) -> str | None:
    """Return a unique name of a process, None if that is impossible.

    A pid is not unique: the system reuses it, and other containers have their own processes with the same pid.
    """
    try:
        if sys.platform == "darwin":  # it has no pid namespaces and no /proc
            import subprocess

            ps = ["/bin/ps", "-o", "lstart=", "-p", str(pid)]
            run = subprocess.run(ps, capture_output=True, text=True, env={"LC_ALL": "C", "TZ": "UTC"}, check=False)  # noqa: S603
            return f"{pid} {run.stdout.strip()}" if run.stdout.strip() else None
        if os.readlink("/proc/self") != str(os.getpid()):  # noqa: PTH115 - /proc shows another pid namespace
            return None
        started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]  # the 22nd field
        return f"{pid} {started} {os.readlink(f'/proc/{pid}/ns/pid')}"  # noqa: PTH115
    except (OSError, ValueError, IndexError):
        return None


def stop_orphan(lock: int) -> None:
    """Wait until no server holds `server.lock`, and end a server that has outlived its guardian.

    Linux ends a server with its guardian (see `run_server`); other systems need this. Only the process with the identity in
    `server.lock` gets a signal; if there is none, the log says so and this waits.
    """
    if locked(lock):
        return
    for stop in (signal.SIGTERM, signal.SIGKILL):
        holder = os.pread(lock, 200, 0).decode(errors="replace")
        pid = holder.partition(" ")[0]
        if not pid.isdecimal() or identity(int(pid)) != holder:
            log(
                f"server.lock is held, but process {pid or '?'}, which it names, is not here or is another one: wait if a server "
                "of this directory is ending; if it runs in another container that shares the directory, end it there"
            )
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), stop)
        if _within_limit(lambda: locked(lock)):
            return
    fcntl.flock(lock, fcntl.LOCK_EX)


def run_server(command: list[str], lock: int) -> int:
    """Start the server as a child that holds `lock`, and return its pid."""
    guardian = os.getpid()
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if libc is not None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != guardian:  # the guardian died before the line above
                os._exit(1)
        os.ftruncate(lock, 0)
        os.pwrite(lock, (identity(os.getpid()) or str(os.getpid())).encode(), 0)
        os.set_inheritable(lock, True)  # noqa: FBT003 - the standard library's signature
        os.execv(command[0], command)  # noqa: S606 - the point of this file
    except OSError as error:
        log(f"cannot run {command[0]}: {error}")
    finally:
        os._exit(127)


def watch(server: int, users: int, directory: Path, wake: int) -> str:
    """Wait for the end, and return its cause: the server "died", the directory was "moved" or is "unused", or "sigterm"."""
    while True:
        if os.waitpid(server, os.WNOHANG)[0]:
            return "died"
        if not is_current(directory, users):
            return "moved"
        if locked(users):
            return "unused"
        if select.select([wake], [], [], POLL_SECONDS)[0] and signal.SIGTERM in os.read(wake, 512):
            return "sigterm"


def write_out(directory: Path, socket_path: Path) -> None:
    """Sync the append-only files to the disk every second, for ever."""
    while True:
        time.sleep(1)
        for path in directory.glob("appendonlydir/*.aof"):
            with contextlib.suppress(OSError), path.open("rb") as file:  # a rewrite may remove the file
                try:
                    os.fsync(file.fileno())
                except OSError as error:
                    if error.errno in DISK_ERRORS:
                        # the server then acknowledges only what is on the disk, and ends itself if it cannot write
                        ask(socket_path, "CONFIG SET appendfsync always")
                        log(
                            f"the append-only file cannot be synced ({error.strerror}): each write now waits for the disk"
                        )


def stop(server: int) -> None:
    """End the server, our child, and wait until it has written out its data."""
    os.kill(server, signal.SIGTERM)
    if not _within_limit(lambda: os.waitpid(server, os.WNOHANG)[0] != 0):
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)


def clean_up(directory: Path, socket_path: Path, *, remove: bool) -> None:
    """Remove the socket, and with `remove` the directory."""
    socket_path.unlink(missing_ok=True)
    if socket_path.parent != directory:  # the path was too long for a socket
        (directory / "redis.sock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            socket_path.parent.rmdir()
    if remove:
        import shutil

        shutil.rmtree(directory, ignore_errors=True)


def main(directory: Path, socket_path: Path, command: list[str], *, remove: bool) -> None:
    """Start the server, return to the caller, and watch from a background process until the end."""
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the caller may block SIGTERM
    fcntl.flock(open_lock(directory / "guardian.lock"), fcntl.LOCK_EX)  # held until this process ends
    server_lock = open_lock(directory / "server.lock")
    stop_orphan(server_lock)
    for leftover in directory.glob("temp-rewriteaof-*.aof"):  # from a rewrite that was killed
        leftover.unlink()
    socket_path.unlink(missing_ok=True)

    # From here on the caller asks the socket. It need not wait for this process, because init becomes its parent.
    if os.fork():
        os._exit(0)
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    server = run_server(command, server_lock)
    os.close(server_lock)
    users = open_lock(directory / "users.lock")
    threading.Thread(target=write_out, args=(directory, socket_path), daemon=True).start()

    end = watch(server, users, directory, wake)
    if end == "moved":
        # Another server may use these paths now: SIGKILL keeps ours from removing them.
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
    elif end != "died":
        stop(server)
    if end == "unused":
        clean_up(directory, socket_path, remove=remove)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[4:], remove=sys.argv[3] == "remove")
