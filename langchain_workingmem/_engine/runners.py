"""The runners: the only code that performs the effects of a plan, once for sync and once for async callers."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakKeyDictionary

from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.cluster import RedisCluster
from redis.exceptions import (
    ConnectionError as ConnectionLost,
)

from langchain_workingmem._engine import clients
from langchain_workingmem._engine.effects import (
    Ask,
    Effect,
    Embed,
    Emit,
    Enter,
    Later,
    Leave,
    Pause,
    Plan,
    Progress,
    Pull,
    Scan,
    Send,
    Work,
)
from langchain_workingmem._engine.replies import ERRORS, RAW, checked, raw_options, refused, scan_step, scanned
from langchain_workingmem._engine.tracing import Trace
from langchain_workingmem.errors import (
    ModelError,
    WorkingMemError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence

    from langchain_workingmem._engine.breaker import Breaker
    from langchain_workingmem._engine.clients import AsyncClient, SyncClient
    from langchain_workingmem._engine.effects import Command
    from langchain_workingmem._engine.embedder import Embedder

_log = logging.getLogger("langchain_workingmem")

T = TypeVar("T")
_THREADS = 4


class Runner:
    """Runs plans for sync callers."""

    def __init__(
        self, connect: Callable[[], SyncClient], embedder: Embedder, *, borrowed: SyncClient | None = None
    ) -> None:
        self._connect = connect
        self._embedder = embedder
        self._borrowed = borrowed
        self.revive: Callable[[], None] | None = None  # starts a server that is ours and has died
        self.breaker: Breaker | None = None  # learns here that Redis answers
        self._own: SyncClient | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._lock = Lock()

    @property
    def client(self) -> Any:  # redis-py types its commands for direct callers only
        """Return the client, made at the first use."""
        if self._borrowed is not None:
            return self._borrowed
        with self._lock:
            if self._own is None:
                self._own = self._connect()
            return self._own

    def run(self, plan: Plan[T], progress: Callable[[int, int], object] | None = None) -> T:
        """Drive a plan to its result."""
        trace = Trace()
        try:
            effect = next(plan)
            while True:
                effect = _advance(plan, self._outcome(effect, progress, trace))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        finally:
            plan.close()

    def stream(self, plan: Plan[None]) -> Iterator[Any]:
        """Drive a plan, and yield what it emits on the way."""
        trace = Trace()
        try:
            effect = next(plan)
            while True:
                if isinstance(effect, Emit):
                    yield from effect.items
                effect = _advance(plan, self._outcome(effect, None, trace))
        except StopIteration:
            return
        finally:
            plan.close()

    def _outcome(self, effect: Effect, progress: Callable[[int, int], object] | None, trace: Trace) -> Any:
        try:
            return self._perform(effect, progress, trace)
        except WorkingMemError as error:
            return error

    def _perform(self, effect: Effect, progress: Callable[[int, int], object] | None, trace: Trace) -> Any:
        match effect:
            case Send():
                return _answered(self.breaker, self._send(effect))
            case Scan():
                return _answered(self.breaker, self._scan(effect))
            case Pull(source):
                return tuple(islice(cast("Iterator[Any]", source), 1))
            case Embed():
                return self._embedder.embed(effect)
            case Pause():
                time.sleep(_seconds(effect))
            case Progress(done, total) if progress is not None:
                progress(done, total)
            case Ask(model, messages):
                try:
                    return model.invoke(messages)
                except Exception as error:  # a model may raise anything
                    raise _no_answer(error) from error
            case Later(plan):
                with self._lock:
                    self._pool = self._pool or ThreadPoolExecutor(2, "workingmem")
                    self._pool.submit(_logged, self.run, plan)
            case Work(call):
                return call()
            case Enter():
                return trace.enter(effect)
            case Leave():
                trace.leave(effect)
        return None

    def _send(self, effect: Send) -> list[Any]:
        client, commands = self.client, effect.commands
        if effect.in_order and isinstance(client, RedisCluster):
            return [
                reply
                for command in commands
                for reply in self._pipeline(client, [command], at_most_once=effect.at_most_once)
            ]
        return self._pipeline(client, commands, at_most_once=effect.at_most_once)

    def _scan(self, effect: Scan) -> tuple[list[bytes], Scan | None]:
        client = self.client
        if not isinstance(client, RedisCluster):
            return scanned(self._pipeline(client, [scan_step(effect)]), effect, 1)
        nodes = client.get_primaries()  # type: ignore[no-untyped-call]
        node = client.get_redis_connection(nodes[effect.node])
        return scanned(self._pipeline(node, [scan_step(effect)]), effect, len(nodes))

    def _pipeline(self, client: Any, commands: Sequence[Command], *, at_most_once: bool = False) -> list[Any]:
        own, unsure = self._borrowed is None, False
        try:
            if at_most_once and own:
                clients.reach(client)
            unsure = at_most_once
            if len(commands) == 1:
                return [client.execute_command(*commands[0], **raw_options(client, commands[0]))]
            pipe = client.pipeline(transaction=False)  # `execute` gives the connection back, as leaving a `with` would
            for command in commands:
                pipe.execute_command(*command, **RAW)
            return checked(pipe.execute(raise_on_error=False))
        except ERRORS as error:
            if self.revive is not None and isinstance(error, ConnectionLost):
                self.revive()
            return refused(error, own=own, unsure=unsure)

    def close(self) -> None:
        """Wait for what runs in the background, and close the client that was made here."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        if self._own is not None:
            clients.close(self._own)
            self._own = None


class AsyncRunner:
    """Runs plans for async callers; each event loop has a client of its own, closed when the loop is shut down."""

    def __init__(
        self, connect: Callable[[], AsyncClient], embedder: Embedder, *, borrowed: AsyncClient | None = None
    ) -> None:
        self._connect = connect
        self._embedder = embedder
        self._borrowed = borrowed
        self.revive: Callable[[], None] | None = None
        self.breaker: Breaker | None = None
        self._own: dict[asyncio.AbstractEventLoop, tuple[AsyncClient, AsyncGenerator[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # One pool for each loop: a process that was forked has loops of its own, but none of the threads.
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = WeakKeyDictionary()

    async def client(self) -> Any:
        """Return the client of the running loop, made at the first use."""
        if self._borrowed is not None:
            return self._borrowed
        loop = asyncio.get_running_loop()
        if loop not in self._own:
            self._forget_closed_loops()
            client = self._connect()
            keeper = self._keep_open(loop, client)
            self._own[loop] = (client, keeper)
            await anext(keeper)
        return self._own[loop][0]

    async def _keep_open(self, loop: asyncio.AbstractEventLoop, client: AsyncClient) -> AsyncGenerator[None]:
        """Close a client when its event loop ends, and forget both.

        A loop that shuts down closes the async generators that it has seen; nothing else tells us in time, and a
        connection that outlives its loop can only be closed with "Event loop is closed".
        """
        try:
            yield
        finally:
            self._own.pop(loop, None)
            self._end_threads(loop)
            await clients.aclose(client)

    def _forget_closed_loops(self) -> None:
        """Forget loops that were closed without a shutdown: their clients refer to them, and would keep them for ever."""
        for loop in [loop for loop in list(self._own) if loop.is_closed()]:
            self._own.pop(loop, None)
        for task in [task for task in list(self._tasks) if task.get_loop().is_closed()]:
            self._tasks.discard(task)

    async def run(self, plan: Plan[T], progress: Callable[[int, int], object] | None = None) -> T:
        """Drive a plan to its result."""
        trace = Trace()
        try:
            effect = next(plan)
            while True:
                effect = _advance(plan, await self._outcome(effect, progress, trace))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        finally:
            plan.close()

    async def stream(self, plan: Plan[None]) -> AsyncGenerator[Any]:
        """Drive a plan, and yield what it emits on the way."""
        trace = Trace()
        try:
            effect = next(plan)
            while True:
                if isinstance(effect, Emit):
                    for item in effect.items:
                        yield item
                effect = _advance(plan, await self._outcome(effect, None, trace))
        except StopIteration:
            return
        finally:
            plan.close()

    async def _outcome(self, effect: Effect, progress: Callable[[int, int], object] | None, trace: Trace) -> Any:
        before = _cancellations()
        try:
            outcome = await self._perform(effect, progress, trace)
        except WorkingMemError as error:
            outcome = error
        # timeouts of Python 3.11 lose a cancellation that comes together with theirs, and a model may swallow one
        if _cancellations() > before:
            raise asyncio.CancelledError
        return outcome

    async def _perform(self, effect: Effect, progress: Callable[[int, int], object] | None, trace: Trace) -> Any:
        match effect:
            case Send():
                return _answered(self.breaker, await self._send(effect))
            case Scan():
                return _answered(self.breaker, await self._scan(effect))
            case Pull(source):
                return await _next(source)
            case Embed():
                return await self._embedder.aembed(effect)
            case Pause():
                await asyncio.sleep(_seconds(effect))
            case Progress(done, total) if progress is not None:
                progress(done, total)
            case Ask(model, messages):
                try:
                    return await model.ainvoke(messages)
                except Exception as error:  # a model may raise anything
                    raise _no_answer(error) from error
            case Later(plan):
                # a context of its own: what runs later is no part of the run that it came from
                task = asyncio.get_running_loop().create_task(_alogged(self.run, plan), context=contextvars.Context())
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case Work(call):
                return await self._in_thread(call)
            case Enter():
                return await trace.aenter(effect)
            case Leave():
                await trace.aleave(effect)
        return None

    async def _send(self, effect: Send) -> list[Any]:
        client, commands = await self.client(), effect.commands
        if effect.in_order and isinstance(client, AsyncRedisCluster):
            return [
                reply
                for command in commands
                for reply in await self._pipeline(client, [command], at_most_once=effect.at_most_once)
            ]
        return await self._pipeline(client, commands, at_most_once=effect.at_most_once)

    async def _scan(self, effect: Scan) -> tuple[list[bytes], Scan | None]:
        client = await self.client()
        if not isinstance(client, AsyncRedisCluster):
            return scanned(await self._pipeline(client, [scan_step(effect)]), effect, 1)
        nodes = (await client.initialize()).get_primaries()
        return scanned(await self._pipeline(nodes[effect.node], [scan_step(effect)]), effect, len(nodes))

    async def _pipeline(self, client: Any, commands: Sequence[Command], *, at_most_once: bool = False) -> list[Any]:
        own, unsure = self._borrowed is None, False
        try:
            if at_most_once and own:
                await clients.areach(client)
            unsure = at_most_once
            if len(commands) == 1:
                return [await client.execute_command(*commands[0], **raw_options(client, commands[0]))]
            pipe = client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command, **RAW)
            return checked(await pipe.execute(raise_on_error=False))
        except ERRORS as error:
            if self.revive is not None and isinstance(error, ConnectionLost):
                await self._in_thread(self.revive)
            return refused(error, own=own, unsure=unsure)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Run a call in a thread of ours: sync models that hang keep those of the loop, which `to_thread` would wait for."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = ThreadPoolExecutor(_THREADS, "workingmem-async")
        return await loop.run_in_executor(pool, contextvars.copy_context().run, call)

    def _end_threads(self, loop: asyncio.AbstractEventLoop) -> None:
        pool = self._pools.pop(loop, None)
        if pool is not None:
            pool.shutdown(wait=False)  # what runs in it is finished, and its threads end then

    async def aclose(self) -> None:
        """Wait for what this loop runs in the background, and close its client; other loops close theirs at their end."""
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(task for task in self._tasks if task.get_loop() is loop))
        entry = self._own.pop(loop, None)
        self._end_threads(loop)
        if entry is not None:
            await entry[1].aclose()


def _advance(plan: Plan[Any], outcome: Any) -> Effect:
    """Give a plan what came of its effect, an error included, and return the next."""
    return plan.throw(outcome) if isinstance(outcome, WorkingMemError) else plan.send(outcome)


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def _answered(breaker: Breaker | None, replies: T) -> T:
    if breaker is not None:
        breaker.close()
    return replies


def _no_answer(error: Exception) -> ModelError:
    seen = f"the chat model failed ({type(error).__name__}: {error})"
    return ModelError(seen, remedy="check the model, its key and its network")


def _logged(run: Callable[[Plan[None]], None], plan: Plan[None]) -> None:
    try:
        run(plan)
    except Exception:  # noqa: BLE001 - nobody waits for it: the log is all there is
        _log.exception("what ran in the background has failed")


async def _alogged(run: Callable[[Plan[None]], Awaitable[None]], plan: Plan[None]) -> None:
    try:
        await run(plan)
    except Exception:  # noqa: BLE001 - likewise
        _log.exception("what ran in the background has failed")


def _seconds(pause: Pause) -> float:
    return random.uniform(0, pause.seconds) if pause.jitter else pause.seconds  # noqa: S311 - no secret


async def _next(source: Iterator[Any] | AsyncIterator[Any]) -> tuple[Any, ...]:
    if isinstance(source, AsyncIterator):
        async for item in source:
            return (item,)
        return ()
    return tuple(islice(source, 1))
