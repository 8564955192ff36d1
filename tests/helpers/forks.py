"""Starts Python programs without a second import of all that they import: a server that has it imported, and forks.

python -P forks.py serve <socket> <module>...   listens, and imports the modules when the first program is asked for
python -P forks.py run <socket> <arguments>...  is a program of a server for whoever can only start a command

A fork has the arguments, the environment, the directory and the open files that it is asked for, runs as `python <arguments>` would
(`[-W error] [-P] -c <code> | -m <module>`), takes signals and ends by itself, with the exit code of a process.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from typing import Any

NUMBER = struct.Struct("q")


def ask(server: socket.socket, arguments: list[str], cwd: str, env: dict[str, str], files: list[int]) -> int:
    """Ask a server for a program; returns what tells its process id and then its status, as two numbers."""
    told, tells = os.pipe()
    asked = json.dumps([arguments, cwd, env]).encode()
    try:
        socket.send_fds(server, [NUMBER.pack(len(asked))], [*files, tells])
        server.sendall(asked)
    finally:
        os.close(tells)
    return told


def serve(path: str, modules: list[str]) -> tuple[list[str], str, dict[str, str], list[int]] | None:
    """Fork for whoever asks, until nobody is connected any more; returns in a fork what was asked for."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for those who ask
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    clients: list[socket.socket] = []
    running: dict[int, int] = {}
    while True:
        waiting: list[Any] = [woken, listener, *clients]
        readable = select.select(waiting, [], [])[0]
        if woken in readable:
            os.read(woken, 4096)
            for pid, tells in list(running.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    with suppress(OSError):  # nobody wants to know
                        os.write(tells, NUMBER.pack(status))
                    os.close(running.pop(pid))
        if listener in readable:
            clients.append(listener.accept()[0])
        for client in clients:
            if client not in readable:
                continue
            head, files, _, _ = socket.recv_fds(client, NUMBER.size, 4)
            if not head:
                clients.remove(client)
                if not clients:
                    return None
                break
            asked = json.loads(client.recv(NUMBER.unpack(head)[0], socket.MSG_WAITALL))
            while modules:
                importlib.import_module(modules.pop(0))
                gc.freeze()
            if not (pid := os.fork()):
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                for connection in (listener, *clients):
                    connection.detach()
                return (*asked, files[:3])
            running[pid] = files.pop()
            os.write(running[pid], NUMBER.pack(pid))
            for one in files:
                os.close(one)


def become(cwd: str, env: dict[str, str], files: list[int]) -> None:
    """Give this process what belongs to a program, and what Python makes of it at its start."""
    for at, given in enumerate(files):
        os.dup2(given, at)
    os.closerange(3, 256)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    tempfile.tempdir = None
    at_once = bool(env.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        file: Any = open(number, "wb" if number else "rb", 0 if number and at_once else -1, closefd=False)  # noqa: SIM115
        by_line = number == 2 or file.isatty()
        errors = "backslashreplace" if number == 2 else "strict"
        text = io.TextIOWrapper(file, "utf-8", errors, line_buffering=by_line, write_through=at_once)
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def execute(arguments: list[str]) -> None:
    """Run what stands on the command line, in `__main__`."""
    is_safe = False
    while arguments[0] not in {"-c", "-m"}:
        match arguments.pop(0):
            case "-W":
                warnings.simplefilter(arguments.pop(0))  # type: ignore[arg-type]
            case "-P":
                is_safe = True
            case other:
                raise ValueError(other)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:0] = [*([] if is_safe else [""]), *(path for path in paths if path not in sys.path)]
    importlib.invalidate_caches()
    how, what, *rest = arguments
    sys.argv = [how, *rest]
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})


def run(path: str, arguments: list[str]) -> None:
    """Run a program of a server, and end as it ends."""
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    told = ask(server, arguments, str(os.getcwd()), dict(os.environ), [0, 1, 2])  # noqa: PTH109
    (pid,) = NUMBER.unpack(os.read(told, NUMBER.size))
    signal.signal(signal.SIGINT, lambda number, _: os.kill(pid, number))
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(pid, number))
    (status,) = NUMBER.unpack(os.read(told, NUMBER.size))
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2], sys.argv[3:])
    elif asked := serve(sys.argv[2], sys.argv[3:]):
        become(*asked[1:])
        execute(asked[0])
