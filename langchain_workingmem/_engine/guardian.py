"""Keeps one private Redis server running while anybody uses its data directory, and no longer.

    python -I -S guardian.py <directory> <socket> keep|remove <command> [<argument> ...]

`server.py` runs this file as a script, so it imports nothing but the standard library. Four files in the
directory carry locks. All are `flock`s: the kernel drops one when its holder is gone, however it went, so
nothing that a crash leaves behind can block a later start.

    users.lock      shared by every user; exclusive by the guardian from the moment nobody is left until
                    everything is cleaned up, so that a newcomer waits for the end and then starts afresh
    start.lock      held by the one user who looks whether a server runs, and starts it if not
    guardian.lock   held by the guardian
    server.lock     held by the server itself, which inherits it: two servers never write to one
                    append-only file. Its text is the server's pid and what tells it from any other process of
                    that number, see `identity`
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
from pathlib import Path

POLL_SECONDS = 0.2
STOP_SECONDS = 5.0  # a server flushes its file in some milliseconds; one that hangs must not hang us
PR_SET_PDEATHSIG = 1
FAILING = {errno.EIO, errno.ENOSPC, errno.EDQUOT}  # of disks; others say that a file system knows no fsync


def open_lock(path: Path) -> int:
    """Open a lock file, which is closed in whatever this process executes."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def locked(lock: int) -> bool:
    """Take a lock exclusively if it is free, and say whether that worked."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def identity(pid: int) -> str | None:
    """Name a process such that no other one has the same name, None where that cannot be told.

    A pid alone says little: another container has other processes under the same numbers, and numbers are given again.
    """
    try:
        if sys.platform == "darwin":  # has no namespaces of pids, and no /proc
            import subprocess

            ps = ["/bin/ps", "-o", "lstart=", "-p", str(pid)]
            run = subprocess.run(ps, capture_output=True, text=True, env={"LC_ALL": "C", "TZ": "UTC"}, check=False)  # noqa: S603
            return f"{pid} {run.stdout.strip()}" if run.stdout.strip() else None
        if os.readlink("/proc/self") != str(os.getpid()):  # noqa: PTH115 - its numbers are not those of `kill`
            return None
        started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]  # the 22nd field
        return f"{pid} {started} {os.readlink(f'/proc/{pid}/ns/pid')}"  # noqa: PTH115
    except (OSError, ValueError, IndexError):
        return None


def stop_orphan(lock: int) -> None:
    """Wait until no server holds `server.lock`, and end the one that outlived its guardian.

    Linux ends the server with its guardian (see `run_server`); elsewhere this is the way. A process that is not
    certainly that server gets no signal: it is waited for, and the log says so.
    """
    for stop in (signal.SIGTERM, signal.SIGKILL):
        if locked(lock):
            return
        holder = os.pread(lock, 200, 0).decode(errors="replace")
        pid = holder.partition(" ")[0]
        if not pid.isdecimal() or identity(int(pid)) != holder:
            sys.stderr.write(
                f"server.lock is held, and process {pid or '?'}, which it names, is not here or is another one: wait, if a server of "
                "this directory is just ending; if it runs in another container that shares the directory, end it there\n"
            )
            sys.stderr.flush()
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), stop)
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline and not locked(lock):
            time.sleep(0.01)
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
            if os.getppid() != guardian:  # it died before the line above
                os._exit(1)
        os.ftruncate(lock, 0)
        os.pwrite(lock, (identity(os.getpid()) or str(os.getpid())).encode(), 0)
        os.set_inheritable(lock, True)  # noqa: FBT003 - the standard library's signature
        os.execv(command[0], command)  # noqa: S606 - the point of this file
    except OSError as error:
        sys.stderr.write(f"cannot run {command[0]}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(127)


def watch(server: int, users: int, directory: Path, wake: int) -> str:
    """Wait for the end, and say which: "died", "told" (to stop), "moved" (the directory) or "unused"."""
    while True:
        if os.waitpid(server, os.WNOHANG)[0]:
            return "died"
        try:
            current = os.path.samestat(os.fstat(users), os.stat(directory / "users.lock"))  # noqa: PTH116 - a pair
        except OSError:
            current = False
        if not current:
            return "moved"
        if locked(users):
            return "unused"
        if select.select([wake], [], [], POLL_SECONDS)[0] and signal.SIGTERM in os.read(wake, 512):
            return "told"


def write_out(directory: Path, socket_path: Path) -> None:
    """Have the system write the append-only files to the disk, every second, for ever."""
    while True:
        time.sleep(1)
        for path in directory.glob("appendonlydir/*.aof"):
            with contextlib.suppress(OSError):  # a rewrite has replaced it
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(file)
                except OSError as error:
                    if error.errno in FAILING:
                        be_strict(socket_path, error)
                finally:
                    os.close(file)


def be_strict(socket_path: Path, error: OSError) -> None:
    """Have the server acknowledge nothing from here on that is not on the disk: it ends itself where it cannot write."""
    sys.stderr.write(
        f"the append-only file cannot be written out ({error.strerror}): each write waits for the disk from here on\n"
    )
    sys.stderr.flush()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1)
        connection.connect(os.fsencode(socket_path))
        connection.sendall(b"CONFIG SET appendfsync always\r\n")
        connection.recv(64)


def stop(server: int) -> None:
    """End our child, which writes out what it holds, and wait for it."""
    os.kill(server, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while not os.waitpid(server, os.WNOHANG)[0]:
        if time.monotonic() > deadline:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
            return
        time.sleep(0.01)


def clean_up(directory: Path, socket_path: Path, *, remove: bool) -> None:
    """Take away what the next start does not need."""
    socket_path.unlink(missing_ok=True)
    if socket_path.parent != directory:  # the path was too long for a socket
        (directory / "redis.sock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            socket_path.parent.rmdir()
    if remove:
        import shutil

        shutil.rmtree(directory, ignore_errors=True)


def main(directory: Path, socket_path: Path, command: list[str], *, remove: bool) -> None:
    """Start the server, return to the caller, and watch from a process of our own until the end."""
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a user that blocks SIGTERM must not pass that on
    fcntl.flock(open_lock(directory / "guardian.lock"), fcntl.LOCK_EX)  # kept open until we are gone
    server_lock = open_lock(directory / "server.lock")
    stop_orphan(server_lock)
    for leftover in directory.glob("temp-rewriteaof-*.aof"):  # of a rewrite that was killed
        leftover.unlink()
    socket_path.unlink(missing_ok=True)

    # From here on the caller asks the socket. It must not have to reap us, so init becomes our parent.
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
        # Another server may own these paths by now: end ours without the clean-up that it would do.
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
    elif end != "died":
        stop(server)
    if end == "unused":
        clean_up(directory, socket_path, remove=remove)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[4:], remove=sys.argv[3] == "remove")
