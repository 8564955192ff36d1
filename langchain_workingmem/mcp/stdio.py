"""The server over standard input and output, as clients start it: ends with its input, or on a signal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from concurrent.futures import CancelledError as Cancelled
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, TextIO

from mcp.server.stdio import stdio_server

from langchain_workingmem.mcp.protocol import refusal
from langchain_workingmem.serving import leave_soon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from mcp.server.lowlevel import Server

_WAITING = 16  # lines that are read ahead


@contextmanager
def protocol_streams() -> Iterator[tuple[int, TextIO]]:
    """Take standard input and output for the protocol: what the process prints goes to standard error from now on."""
    sys.stdout.flush()
    source, sink = os.dup(0), os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace", newline="\n")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    with suppress(BrokenPipeError), sink:  # the client may be gone
        yield source, sink


def run_stdio(server: Server[Any, Any], source: int, sink: TextIO) -> None:
    """Serve the client that has started this process, until it closes standard input, or SIGINT or SIGTERM comes.

    To be called in the main thread, at the end of a program: the process ends soon after, whatever still waits for a model.
    """
    asyncio.run(_serve(server, source, sink))


async def _serve(server: Server[Any, Any], source: int, sink: TextIO) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None  # noqa: S101 - for mypy

    def end(*_: object) -> None:
        leave_soon(at_once=task.cancelling() > 0)
        loop.call_soon_threadsafe(task.cancel)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    output: Any = _Output(sink)
    lines: Any = _valid(_lines(source), output)
    with suppress(asyncio.CancelledError):
        async with stdio_server(lines, output) as (read, write):
            await server.run(read, write, server.create_initialization_options())
    leave_soon()


class _Output:
    """Writes in threads. If the client has closed its end, nobody reads what is written."""

    def __init__(self, sink: TextIO) -> None:
        self._sink = sink

    async def write(self, text: str) -> None:
        with suppress(BrokenPipeError):
            await asyncio.to_thread(print, text, end="", file=self._sink, flush=True)

    async def flush(self) -> None:
        """Nothing is left to write."""


async def _lines(source: int) -> AsyncIterator[str]:
    """Read lines in a thread that ends with the process: a read that waits for input cannot be interrupted."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[bytes] = asyncio.Queue(_WAITING)

    def read() -> None:
        with suppress(RuntimeError, Cancelled, OSError), os.fdopen(source, "rb") as file:  # the loop may be closed
            for line in file:
                asyncio.run_coroutine_threadsafe(waiting.put(line), loop).result()
            asyncio.run_coroutine_threadsafe(waiting.put(b""), loop).result()

    Thread(target=read, name="workingmem-stdin", daemon=True).start()
    while line := await waiting.get():
        yield line.decode(errors="replace")


async def _valid(lines: AsyncIterator[str], output: _Output) -> AsyncIterator[str]:
    """Pass on what the SDK can answer, and answer the rest."""
    async for line in lines:
        if not line.strip():
            continue
        if (refused := refusal(line)) is None:
            yield line
        elif refused.text:
            await output.write(f"{refused.text}\n")
