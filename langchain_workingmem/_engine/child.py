"""Runs a private Redis server, in its own process group, until its data directory has no user. Standard library only.

Usage: python -I -S child.py <directory> <socket> keep|remove <command> [<argument> ...]
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL_SECONDS = 0.2
STOP_SECONDS = 5.0  # a server writes out its file in milliseconds; this limits the wait for one that hangs


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


def write_out(directory: Path) -> None:
    """Sync the append-only files to the disk."""
    for path in directory.glob("appendonlydir/*.aof"):
        with contextlib.suppress(OSError), path.open("rb") as file:  # a rewrite may remove the file
            os.fsync(file.fileno())


def main(directory: Path, socket_path: Path, command: list[str], *, remove: bool) -> None:
    """Return to the caller at once, start the server, and stop it after its last user."""
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the caller may block SIGTERM
    lock = open_lock(directory / "server.lock")
    fcntl.flock(lock, fcntl.LOCK_EX)
    for leftover in directory.glob("temp-rewriteaof-*.aof"):  # from a rewrite that was killed
        leftover.unlink()
    socket_path.unlink(missing_ok=True)
    if os.fork():  # init becomes the parent of the other one
        os._exit(0)
    # SIGXFSZ stays ignored: a file that may not grow is a full disk, not an end
    server = subprocess.Popen(command, pass_fds=[lock], restore_signals=False)  # noqa: S603 - the point of this file
    os.close(lock)
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    users_lock, synced = open_lock(directory / "users.lock"), time.monotonic()
    while not locked(users_lock):
        time.sleep(POLL_SECONDS)
        if server.poll() is None and time.monotonic() > synced + 1:
            write_out(directory)
            synced = time.monotonic()
    server.terminate()
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    if not locked(open_lock(directory / "server.lock")):
        return  # ours had died, and another process runs the next one
    socket_path.unlink(missing_ok=True)
    if socket_path.parent != directory:
        with contextlib.suppress(OSError):
            socket_path.parent.rmdir()
    if remove:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[4:], remove=sys.argv[3] == "remove")
