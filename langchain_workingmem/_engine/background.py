"""Threads for background plans, and for calls that wait."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from concurrent.futures import Future
from threading import Lock, Thread, current_thread
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_QUICK, _SLOW = 2, 4  # threads for background plans
_log = logging.getLogger("langchain_workingmem")


class Background:
    """The threads of a sync runner in which plans run that no caller waits for, except `settled` and `close`."""

    def __init__(self) -> None:
        self._lock = Lock()
        # quick calls and slow ones
        self._waiting: dict[bool, deque[Callable[[], None]]] = {False: deque(), True: deque()}
        self._threads: dict[bool, set[Thread]] = {False: set(), True: set()}

    def start(self, call: Callable[[], None], *, slow: bool) -> None:
        """Run a call in the background.

        What is slow has threads of its own, so that the other calls do not wait for it. The end of the process waits for the
        other calls alone.
        """
        with self._lock:
            self._waiting[slow].append(call)
            # a forked process has none of the threads
            alive = {thread for thread in self._threads[slow] if thread.is_alive()}
            if len(alive) < (_SLOW if slow else _QUICK):
                # an empty context: a background plan is no part of the run that started it
                run, name = contextvars.Context().run, "workingmem-slow" if slow else "workingmem"
                thread = Thread(target=run, args=(self._work, slow), name=name, daemon=slow)
                self._threads[slow] = {*alive, thread}
                thread.start()

    def _work(self, slow: bool) -> None:  # noqa: FBT001
        while True:
            with self._lock:
                if not self._waiting[slow]:
                    self._threads[slow].discard(current_thread())
                    return
                call = self._waiting[slow].popleft()
            done: Future[None] = Future()
            done.add_done_callback(log_failure)
            settle(done, call)
            del call, done  # the plan and its messages must not stay until the next one

    def wait(self) -> None:
        """Wait for all calls, and for those that they start."""
        while True:
            with self._lock:
                alive = [thread for kind in self._threads.values() for thread in kind if thread.is_alive()]
            if not alive:
                return
            for thread in alive:
                thread.join()


async def in_thread(call: Callable[[], None]) -> None:
    """Run a call that waits; it goes on if the caller gives up, and the end of the process does not wait for its thread."""
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()
    Thread(target=settle, args=(done, call), name="workingmem-waiting", daemon=True).start()
    await asyncio.wrap_future(done)


def settle(future: Future[T], call: Callable[[], T]) -> None:
    """Give a future the result of a call, or its error."""
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - whoever reads the future raises it
        future.set_exception(error)


def log_failure(done: Future[None] | asyncio.Task[None]) -> None:
    """Log why a background plan failed: no caller waits for it."""
    if not done.cancelled() and (error := done.exception()) is not None:
        _log.error("a background plan has failed", exc_info=error)
