"""A private Redis server with Search, for programs without a Redis to connect to."""

import os
import shutil
import sys
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import Literal, Self, get_args
from urllib.parse import quote

from langchain_workingmem.errors import OptionError, RedisCapabilityError

AppendFsync = Literal["always", "everysec"]


class EmbeddedRedis:
    """A Redis server with Search in a data directory, started on demand and stopped after its last user.

        with EmbeddedRedis("data/memory") as server:
            client = redis.Redis.from_url(server.url)

    Any number of objects and processes may open the same path: they share one server. It stops within two seconds after
    the last of them has called `close`, is garbage collected or has ended, even by SIGKILL. A child made by `os.fork` is a
    user until it ends; a program run by `subprocess` is not. Only this user of the machine can open the server's socket.

    Args:
        path: The data directory, on a local disk; made if missing, and kept. None: a temporary one, removed with the server.
        appendfsync: When writes reach the disk: before the reply, or every second. With both, acknowledged writes survive a
            crash of the server; the difference is a power failure, or a crash while the disk is full (docs/reliability.md).
            The strictest value of all users applies.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        appendfsync: AppendFsync = "everysec",
    ) -> None:
        if path is not None and (not os.fspath(path) or "\0" in os.fspath(path)):
            raise OptionError(f"path is {path!r}", remedy="give the name of a directory, or None for a temporary one")
        # not checked by `options`, whose imports take longer than the start of a server
        if appendfsync not in (allowed := get_args(AppendFsync)):
            raise OptionError(f"appendfsync is {appendfsync!r}", remedy=f"use one of {', '.join(allowed)}")
        self._given = None if path is None else Path(path).expanduser().absolute()
        self._appendfsync = appendfsync
        self._mutex = threading.Lock()
        self._claim: tuple[Path, int] | None = None  # the resolved path of the directory, and its lock
        self._release: weakref.finalize[[int], EmbeddedRedis] | None = None
        self._url: str | None = None

    @property
    def path(self) -> Path | None:
        """The data directory; None before `start` if it is temporary."""
        return self._given or (self._claim[0] if self._claim else None)

    @property
    def url(self) -> str:
        """URL of the server for `redis.Redis.from_url`; `OptionError` before `start` and after `close`."""
        if self._url is None:
            raise OptionError("the embedded server has no URL yet", remedy="call start(), or use it in a `with` block")
        return self._url

    def start(self) -> None:
        """Start the server or join a running one. Blocks for about 0.1 s, longer if there is much data to load.

        Call it again at any time: it does nothing if the server answers, and restarts a server that died, with its data.
        `OptionError` if the path cannot be a data directory, `RedisCapabilityError` if no server with Search is installed,
        `RedisConnectionError` with the end of the server's log if it does not get ready.
        """
        if sys.platform == "win32":
            raise RedisCapabilityError(
                "the embedded server does not run on Windows",
                remedy="run `docker run -p 6379:6379 redis:8` and pass its URL, redis://localhost:6379/0, instead",
            )
        from langchain_workingmem._engine import child, server

        deadline = time.monotonic() + server.START_SECONDS
        with self._mutex:
            if self._claim and not child.is_current(*self._claim):
                self._give_up()  # the directory was removed
            fresh = self._claim is None
            wanted = self._given
            try:
                if self._claim is None:
                    wanted = self._given or Path(tempfile.mkdtemp(prefix="workingmem-"))
                    self._claim = server.claim(wanted, deadline)
                    self._release = weakref.finalize(self, os.close, self._claim[1])
                socket_path = server.ensure_running(
                    self._claim[0], appendfsync=self._appendfsync, temporary=self._given is None, deadline=deadline
                )
            except BaseException:  # Ctrl-C, too
                if self._claim is None and wanted is not None and self._given is None:
                    shutil.rmtree(wanted, ignore_errors=True)
                if fresh:
                    self._give_up()
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

    def __repr__(self) -> str:
        state = "started" if self._url else "not started"
        return f"<EmbeddedRedis {self.path or 'in a temporary directory'} ({state})>"

    def _give_up(self) -> None:
        if self._claim is None or self._release is None:
            return
        from langchain_workingmem._engine import server

        self._release()
        server.discard(self._claim[0], temporary=self._given is None)
        self._claim = self._release = self._url = None
