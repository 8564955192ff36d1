"""Programs that tests start: forks of a process that has imported the package, so that a start costs no import.

`Forked` stands for `subprocess.Popen` of `[sys.executable, ...]`: the program has a process, its streams, its environment and an
exit code of its own, and gets real signals. What a start itself does - the imports, their warnings, the encoding of the streams - is
seen only in a process that `subprocess.Popen` starts.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.helpers import forks

SCRIPT = Path(forks.__file__)
PLACE = "WORKINGMEM_TEST_FORKS"  # the directory of the servers, for all processes of a run
ENGINE, US = "langchain_workingmem._engine", "langchain_workingmem"
CONNECTED = (f"{ENGINE}.clients", f"{ENGINE}.run", f"{US}.embedded", "numpy", "redisvl.query")
# what is imported before: by the name of a server
IMPORTED = {
    "programs": (
        *("anyio._backends._asyncio", "langchain.agents", "langchain_openai", "langsmith.run_helpers"),
        *(f"{US}.cli.main", f"{US}.cli.offline", f"{US}.middleware", f"{US}.mcp.transports", f"{US}.studio.app"),
        *(*CONNECTED, "safetensors", "tokenizers", "tqdm.auto", "typer.rich_utils", "uvicorn.lifespan.on"),
        *("uvicorn.loops.auto", "uvicorn.protocols.http.auto"),
    ),
    "library": ("anyio.to_thread", f"{US}.embeddings", f"{US}.faces", f"{US}.memory", *CONNECTED),
}
_CONNECTIONS: dict[str, socket.socket] = {}


class Servers:
    """The servers of a run, in a directory; they end with the connections of those who use them."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="wm-forks-")
        self._processes = []
        for name, modules in IMPORTED.items():
            path = Path(self._place.name, name)
            self._processes.append(subprocess.Popen([sys.executable, "-P", str(SCRIPT), "serve", str(path), *modules]))
        os.environ[PLACE] = self._place.name
        for name in IMPORTED:
            server(name)

    def close(self) -> None:
        disconnect()
        for process in self._processes:
            process.wait()
        os.environ.pop(PLACE)
        self._place.cleanup()


def server(name: str) -> socket.socket:
    """Connect with a server, until `disconnect`."""
    if name in _CONNECTIONS:
        return _CONNECTIONS[name]
    connection = socket.socket(socket.AF_UNIX)
    path = Path(os.environ[PLACE], name)
    deadline = time.monotonic() + 30
    while connection.connect_ex(str(path)):  # it has just been started
        assert time.monotonic() < deadline, f"the server of forks does not listen on {path}"
        time.sleep(0.005)
    return _CONNECTIONS.setdefault(name, connection)


def disconnect() -> None:
    while _CONNECTIONS:
        _CONNECTIONS.popitem()[1].close()


def command(*arguments: str) -> list[str]:
    """Return a command that is such a program, for what starts commands by itself."""
    return [sys.executable, "-ISE", str(SCRIPT), "run", str(Path(os.environ[PLACE], "programs")), *arguments]


class Forked(subprocess.Popen[str]):
    """A `Popen` that a server starts, by the words of `[sys.executable, ...]`."""

    def __init__(self, words: list[str], *, of: str = "programs", **options: Any) -> None:
        self._server = server(of)
        super().__init__(words, **{"text": True, **options})

    def _execute_child(self, words: list[str], *how: Any) -> None:
        _, _, _, pass_fds, cwd, env, _, _, _, stdin, write_in, read_out, stdout, read_errors, stderr, *_ = how
        assert words[0] == sys.executable
        assert not pass_fds
        files = [own if given == -1 else given for own, given in enumerate((stdin, stdout, stderr))]
        env = dict(os.environ if env is None else env)
        self._told = forks.ask(self._server, words[1:], str(cwd or Path.cwd()), env, files)
        self.pid = self._number()
        self._child_created = True
        self._close_pipe_fds(stdin, write_in, read_out, stdout, read_errors, stderr)  # type: ignore[attr-defined]

    def _number(self) -> int:
        (number,) = forks.NUMBER.unpack(os.read(self._told, forks.NUMBER.size))
        return int(number)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.returncode = os.waitstatus_to_exitcode(self._number())
            os.close(self._told)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None and not select.select([self._told], [], [], timeout)[0]:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        self._internal_poll()
        assert self.returncode is not None
        return self.returncode


def run(words: list[str], *, of: str = "programs", **options: Any) -> subprocess.CompletedProcess[str]:
    """Stand for `subprocess.run` with the output captured."""
    pipe = subprocess.PIPE
    with Forked(words, of=of, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, **options) as process:
        out, errors = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode, out, errors)
