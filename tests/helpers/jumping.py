"""An event loop whose clock jumps: it waits for replies of Redis and for threads, and for nothing else."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from langchain_workingmem._engine.run import AsyncRunner

PATIENCE = 1.0  # seconds between two looks, while something is under way outside of the loop


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for the next timer, moves the clock on to it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.outside = 0  # round trips and calls in threads that are under way

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0 or self.outside:
            return super().select(PATIENCE if timeout is None or timeout > 0 else 0)
        events = super().select(0)
        if not events:
            self.now += timeout
        return events


class JumpingLoop(asyncio.SelectorEventLoop):
    """Sleeps and timeouts take no time: where all tasks sleep, it is at once as late as the first of them wants."""

    def __init__(self) -> None:
        self._jumps = _Selector()
        super().__init__(self._jumps)

    def time(self) -> float:
        return self._jumps.now

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Let the clock stand still."""
        self._jumps.outside += 1
        try:
            yield
        finally:
            self._jumps.outside -= 1

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        done: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)
        self._jumps.outside += 1
        done.add_done_callback(lambda _: setattr(self._jumps, "outside", self._jumps.outside - 1))
        return done


@contextmanager
def jumping() -> Iterator[asyncio.Runner]:
    """Make a runner of coroutines on such a clock. Round trips take no time on it, calls of models what they sleep."""
    send = AsyncRunner.send

    async def waited(self: AsyncRunner, effect: Any) -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        with loop.outside():
            return await send(self, effect)

    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=JumpingLoop) as runner:
        patch.setattr(AsyncRunner, "send", waited)
        yield runner
