"""Programs that tests start: forks of a process that has imported the package, so that a start costs no import.

`Forked` stands for `subprocess.Popen` of `[sys.executable, ...]`: the program has a process, streams, environment and exit
code of its own. What a start itself does, such as imports, is seen only in a process that `subprocess.Popen` starts.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import time
import warnings
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

FORKS = multiprocessing.get_context("forkserver")
US = "langchain_workingmem"
IMPORTED = [
    *("anyio._backends._asyncio", "langchain.agents", "langchain_openai", "langsmith.run_helpers", "numpy"),
    *(f"{US}.cli.main", f"{US}.cli.offline", f"{US}.middleware", f"{US}.mcp.transports", f"{US}.studio.app"),
    *(f"{US}._engine.clients", f"{US}._engine.run", f"{US}.embedded", "safetensors", "tokenizers", "tqdm.auto"),
    "redisvl.query",
    *("typer.rich_utils", "uvicorn.lifespan.on", "uvicorn.loops.auto", "uvicorn.protocols.http.auto"),
]
FORKS.set_forkserver_preload(IMPORTED)


class File:
    """An open file, on its way to a program."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return _number, (DupFd(self.number),)


def _number(copy: Any) -> int:
    number: int = copy.detach()
    return number


def _program(words: list[str], cwd: str, env: dict[str, str], files: list[int]) -> None:
    """Be what `python <words>` is: `[-W error] [-P] -c <code> | -m <module>`."""
    for at, given in enumerate(files):
        os.dup2(given, at)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    tempfile.tempdir = None
    sys.path[:0] = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=stream.isatty(), write_through=bool(env.get("PYTHONUNBUFFERED")))  # type: ignore[union-attr]
    while (option := words.pop(0)) not in {"-c", "-m"}:
        if option == "-W":
            warnings.simplefilter(words.pop(0))  # type: ignore[arg-type]
    what, *rest = words
    sys.argv = [option, *rest]
    try:
        if option == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
    finally:
        atexit._run_exitfuncs()


class Forked(subprocess.Popen[str]):
    """A `Popen` that is a fork, by the words of `[sys.executable, ...]`."""

    def __init__(self, words: list[str], **options: Any) -> None:
        options.pop("of", None)
        super().__init__(words, **{"text": True, **options})

    def _execute_child(self, words: list[str], *how: Any) -> None:
        _, _, _, _, cwd, env, _, _, _, stdin, write_in, read_out, stdout, read_errors, stderr, *_ = how
        files = [File(own if given == -1 else given) for own, given in enumerate((stdin, stdout, stderr))]
        given = (words[1:], str(cwd or Path.cwd()), dict(os.environ if env is None else env), files)
        self._fork = FORKS.Process(target=_program, args=given, daemon=True)
        self._fork.start()
        self.pid = self._fork.pid or 0
        self._child_created = True
        self._close_pipe_fds(stdin, write_in, read_out, stdout, read_errors, stderr)  # type: ignore[attr-defined]

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        self.returncode = self._fork.exitcode
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        self._fork.join(timeout)
        if self._internal_poll() is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode


def command(*arguments: str) -> list[str]:
    """Return a command for what starts commands by itself: no fork."""
    return [sys.executable, *arguments]


def run(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Stand for `subprocess.run` with the output captured."""
    pipe = subprocess.PIPE
    with Forked(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, **options) as process:
        out, errors = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode, out, errors)
