"""Calls the caller's chat model, and reranker, and runs background plans, which may call them for long.

Whatever the models raise becomes one of our errors.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
from collections import deque
from concurrent.futures import Future, wait
from threading import Lock, Thread, current_thread
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_workingmem._engine.effects import Ask, Rerank
from langchain_workingmem.errors import ModelError, RerankerError

if TYPE_CHECKING:
    from collections.abc import Callable

_REMEDY = "check the reranker, or leave RecallOptions(reranker=...) out"
_log = logging.getLogger("langchain_workingmem")

T = TypeVar("T")
_QUICK, _SLOW = 2, 4  # threads for background plans


def call(effect: Ask | Rerank, callbacks: Any) -> Any:
    """Return the answer of a chat model, or what a reranker returns, whose runs are children of `callbacks`."""
    return _ask(effect) if isinstance(effect, Ask) else _rerank(effect, callbacks)


async def acall(effect: Ask | Rerank, callbacks: Any) -> Any:
    """Async twin of `call`, with a timeout for a reranker."""
    return await (_aask(effect) if isinstance(effect, Ask) else _arerank(effect, callbacks))


def _ask(effect: Ask) -> Any:
    try:
        if effect.seconds is None:
            return effect.model.invoke(effect.messages, **_config(effect))
        asked = _in_time(functools.partial(effect.model.invoke, effect.messages, **_config(effect)), effect.seconds)
        if asked.done():
            return asked.result()
    except Exception as error:  # a model may raise anything
        raise _model_error(error) from error
    raise _too_slow(effect)


def _config(effect: Ask) -> dict[str, Any]:
    return {"config": dict(effect.run)} if effect.run else {}


def _in_time(call: Callable[[], Any], seconds: float) -> Future[Any]:
    """Make a call of the caller's code, and wait for it; it is not done if that takes longer."""
    asked: Future[Any] = Future()
    inside = contextvars.copy_context().run  # which carries the callbacks
    # no pool: the end of the process would wait for its threads
    Thread(target=inside, args=(settle, asked, call), name="workingmem-model", daemon=True).start()
    wait([asked], seconds)
    return asked


async def _aask(effect: Ask) -> Any:
    try:
        async with asyncio.timeout(effect.seconds) as waiting:
            return await effect.model.ainvoke(effect.messages, **_config(effect))
    except Exception as error:  # a model may raise anything
        raise (_too_slow(effect) if waiting.expired() else _model_error(error)) from error


def _too_slow(effect: Ask) -> ModelError:
    seen = f"the chat model did not answer within {effect.seconds:g} s"
    return ModelError(seen, remedy="check the model and its network, or give it more time with timeout=...")


def _model_error(error: Exception) -> ModelError:
    seen = f"the chat model failed ({type(error).__name__}: {error})"
    return ModelError(seen, remedy="check the model, its key and its network")


def _rerank(effect: Rerank, callbacks: Any) -> list[Any]:
    try:
        return list(effect.reranker.compress_documents(effect.documents, effect.question, callbacks=callbacks))
    except Exception as error:  # a reranker may raise anything
        raise _reranker_error(error) from error


async def _arerank(effect: Rerank, callbacks: Any) -> list[Any]:
    """Ask within a timeout."""
    try:
        async with asyncio.timeout(effect.seconds) as waiting:
            asked = effect.reranker.acompress_documents(effect.documents, effect.question, callbacks=callbacks)
            return list(await asked)
    except Exception as error:  # a reranker may raise anything
        if waiting.expired():
            raise RerankerError(
                f"the reranker did not answer within {effect.seconds:g} s",
                remedy="check it, or give it more time with RecallOptions(embedding_timeout=...)",
            ) from error
        raise _reranker_error(error) from error


def _reranker_error(error: Exception) -> RerankerError:
    return RerankerError(f"the reranker failed ({type(error).__name__}: {error})", remedy=_REMEDY)


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
            alive = self._alive(slow)
            if len(alive) < (_SLOW if slow else _QUICK):
                # an empty context: a background plan is no part of the run that started it
                run, name = contextvars.Context().run, "workingmem-slow" if slow else "workingmem"
                thread = Thread(target=run, args=(self._work, slow), name=name, daemon=slow)
                self._threads[slow] = {*alive, thread}
                thread.start()

    def _alive(self, *kinds: bool) -> set[Thread]:
        """Return the threads that run; a forked process has none of them."""
        return {thread for slow in kinds for thread in self._threads[slow] if thread.is_alive()}

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

    def close(self) -> None:
        """Wait for all calls, and for those that they start."""
        while True:
            with self._lock:
                alive = self._alive(False, True)  # noqa: FBT003
            if not alive:
                return
            for thread in alive:
                thread.join()

    async def aclose(self) -> None:
        """Wait as `close` does, without holding up the event loop."""
        await in_thread(self.close)


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
