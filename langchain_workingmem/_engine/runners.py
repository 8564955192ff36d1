"""The runners perform the effects of plans: `Runner` for sync callers, `AsyncRunner` for async callers."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import random
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from weakref import WeakKeyDictionary

from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.cluster import RedisCluster
from redis.exceptions import ConnectionError as ConnectionLost

from langchain_workingmem._engine import clients, cluster, effects, models
from langchain_workingmem._engine.breaker import Breaker
from langchain_workingmem._engine.effects import advance
from langchain_workingmem._engine.models import Background, in_thread, log_failure
from langchain_workingmem._engine.replies import ERRORS, RAW, checked, raw_options, refused
from langchain_workingmem._engine.tracing import Report, Trace
from langchain_workingmem.errors import WorkingMemError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

    from langchain_workingmem._engine.clients import AsyncClient, SyncClient
    from langchain_workingmem._engine.effects import Command, Effect, Plan
    from langchain_workingmem._engine.embedder import Embedder

    Watcher = Callable[[int, int], object] | None

T = TypeVar("T")
ClientT = TypeVar("ClientT")
_THREADS = 4


@dataclass(eq=False, repr=False)
class _Base(Generic[ClientT]):
    """What both runners hold. A borrowed client belongs to the caller, who closes it."""

    connect: Callable[[], ClientT]
    embedder: Embedder
    borrowed: ClientT | None = None
    revive: Callable[[], None] | None = field(default=None, init=False)  # restarts the embedded server if it died
    breaker: Breaker = field(default_factory=Breaker, init=False)  # is closed when Redis answers


@dataclass(eq=False, repr=False)
class Runner(_Base["SyncClient"]):
    """Runs plans for sync callers."""

    _own: SyncClient | None = field(default=None, init=False)
    _background: Background = field(default_factory=Background, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    @property
    def client(self) -> Any:  # redis-py types its commands for direct callers only
        """The client, made at the first use."""
        if self.borrowed is not None:
            return self.borrowed
        with self._lock:
            if self._own is None:
                self._own = self.connect()
            return self._own

    def run(self, plan: Plan[T], progress: Watcher = None) -> T:
        """Run a plan and return its result."""
        trace, outcome = Trace(), None
        try:
            while True:
                outcome = self._perform(advance(plan, outcome), progress, trace)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        finally:
            plan.close()

    def stream(self, plan: Plan[None]) -> Iterator[Any]:
        """Run a plan and yield the items that it emits."""
        trace, outcome = Trace(), None
        try:
            while True:
                effect = advance(plan, outcome)
                if isinstance(effect, effects.Emit):
                    yield from effect.items
                outcome = self._perform(effect, None, trace)
        except StopIteration:
            return
        finally:
            plan.close()

    def _perform(self, effect: Effect[object], progress: Watcher, trace: Trace) -> Any:
        """Return the result of an effect; an error of ours is a result, which `advance` throws into the plan."""
        try:
            match effect:
                case effects.Send():
                    return self._send(effect)
                case effects.Masters():
                    return cluster.at_once(cluster.masters(self.client))
                case effects.Pull(source):
                    return tuple(islice(cast("Iterator[Any]", source), 1))
                case effects.Embed():
                    return self.embedder.embed(effect)
                case effects.Pause():
                    time.sleep(_seconds(effect))
                case effects.Emit(items) if progress is not None:
                    for item in items:
                        progress(*item)
                case effects.Ask() | effects.Rerank():
                    return models.call(effect, trace.child())
                case effects.Later(plan, slow):
                    self._background.start(functools.partial(self.run, plan), slow=slow)
                case effects.Work(call):
                    return call()
                case Report(span):
                    trace.report(span)
        except WorkingMemError as error:
            return error
        return None

    def _send(self, effect: effects.Send) -> list[Any]:
        client, commands = self.client, effect.commands
        if effect.master:
            client = cluster.node_of(client, effect.master)
        if effect.in_order and isinstance(client, RedisCluster):  # its nodes work in parallel
            return [reply for one in commands for reply in self._call(client, [one], at_most_once=effect.at_most_once)]
        return self._call(client, commands, at_most_once=effect.at_most_once)

    def _call(self, client: Any, commands: Sequence[Command], *, at_most_once: bool = False) -> list[Any]:
        """Send commands in one round trip."""
        own = self.borrowed is None
        unsure = at_most_once and not own
        try:
            if own:
                line = clients.free_line(client)  # a failure here has sent nothing
                unsure = at_most_once
                replies = checked(clients.read_as(client, commands, line.exchange(commands)))
            elif isinstance(client, RedisCluster) and cluster.has_search(commands):
                call = functools.partial(self._call, client, at_most_once=at_most_once)
                replies = cluster.search(client, commands, call, again=not at_most_once)
            elif len(commands) == 1:
                replies = [client.execute_command(*commands[0], **raw_options(client, commands[0]))]
            else:
                pipe = client.pipeline(transaction=False)  # `execute` returns the connection: no `with` is needed
                for command in commands:
                    pipe.execute_command(*command, **RAW)
                replies = checked(pipe.execute(raise_on_error=False))
        except ERRORS as error:
            if self.revive is not None and isinstance(error, ConnectionLost):
                self.revive()
            replies = refused(error, own=own, unsure=unsure)
        self.breaker.close()
        return replies

    def settled(self) -> None:
        """Wait for the background plans, also for those that they start."""
        self._background.close()

    async def asettled(self) -> None:
        """Async twin of `settled`; it does not hold up the event loop."""
        await self._background.aclose()

    def close(self) -> None:
        """Wait for background plans, and close the client that was made here."""
        self.settled()
        with self._lock:
            own, self._own = self._own, None
        if own is not None:
            own.close()


@dataclass(eq=False, repr=False)
class AsyncRunner(_Base["AsyncClient"]):
    """Runs plans for async callers. Each event loop has its own client, which is closed when the loop shuts down."""

    _own: dict[asyncio.AbstractEventLoop, tuple[AsyncClient, AsyncGenerator[None]]] = field(
        default_factory=dict, init=False
    )
    _tasks: dict[asyncio.Task[None], effects.Later] = field(default_factory=dict, init=False)
    # One pool for each loop: a forked process has its own loops, but none of the threads.
    _pools: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = field(
        default_factory=WeakKeyDictionary, init=False
    )

    async def client(self) -> Any:
        """Return the client of the running loop, made at the first use."""
        if self.borrowed is not None:
            return self.borrowed
        loop = asyncio.get_running_loop()
        if loop not in self._own:
            self._forget_closed_loops()
            client = self.connect()
            keeper = self._keep_open(loop, client)
            self._own[loop] = (client, keeper)
            await anext(keeper)
        return self._own[loop][0]

    async def _keep_open(self, loop: asyncio.AbstractEventLoop, client: AsyncClient) -> AsyncGenerator[None]:
        """Close a client when its event loop ends, and forget both.

        A loop that shuts down closes its async generators. No other hook runs before the loop is closed, and a connection
        that is closed after its loop raises "Event loop is closed".
        """
        try:
            yield
        finally:
            self._own.pop(loop, None)
            self._end_threads(loop)
            await client.aclose()

    def _forget_closed_loops(self) -> None:
        """Forget loops that were closed without a shutdown: their clients refer to them and keep them in memory."""
        for loop in [loop for loop in list(self._own) if loop.is_closed()]:
            self._own.pop(loop, None)
        for task in [task for task in list(self._tasks) if task.get_loop().is_closed()]:
            self._ended(task)

    async def run(self, plan: Plan[T], progress: Watcher = None) -> T:
        """Run a plan and return its result."""
        trace, outcome, task = Trace(), None, asyncio.current_task()
        try:
            while True:
                outcome = await self._outcome(advance(plan, outcome), progress, trace, task)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        finally:
            plan.close()

    async def stream(self, plan: Plan[None]) -> AsyncGenerator[Any]:
        """Run a plan and yield the items that it emits."""
        trace, outcome = Trace(), None
        try:
            while True:
                effect = advance(plan, outcome)
                if isinstance(effect, effects.Emit):
                    for item in effect.items:
                        yield item
                outcome = await self._outcome(effect, None, trace, asyncio.current_task())
        except StopIteration:
            return
        finally:
            plan.close()

    async def _outcome(
        self, effect: Effect[object], progress: Watcher, trace: Trace, task: asyncio.Task[Any] | None
    ) -> Any:
        before = 0 if task is None else task.cancelling()
        try:
            outcome = await self._perform(effect, progress, trace)
        except WorkingMemError as error:
            outcome = error
        # timeouts of Python 3.11 lose a cancellation that comes together with theirs, and a model may swallow one
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
        return outcome

    async def _perform(self, effect: Effect[object], progress: Watcher, trace: Trace) -> Any:
        match effect:
            case effects.Send():
                return await self._send(effect)
            case effects.Masters():
                return await cluster.masters(await self.client())
            case effects.Pull(source):
                return await _next(source)
            case effects.Embed():
                return await self.embedder.aembed(effect)
            case effects.Pause():
                await asyncio.sleep(_seconds(effect))
            case effects.Emit(items) if progress is not None:
                for item in items:
                    progress(*item)
            case effects.Ask() | effects.Rerank():
                return await models.acall(effect, trace.child())
            case effects.Later(plan):
                # an empty context: a background plan is no part of the run that started it
                task = asyncio.get_running_loop().create_task(self.run(plan), context=contextvars.Context())
                self._tasks[task] = effect
                task.add_done_callback(self._ended)
            case effects.Work(call):
                return await self._in_thread(call)
            case Report(span):
                await trace.areport(span)
        return None

    def _ended(self, task: asyncio.Task[None]) -> None:
        later = self._tasks.pop(task, None)
        if later is not None and (task.cancelled() or not task.done()):
            later.lost()
        if task.done():
            log_failure(task)

    async def _send(self, effect: effects.Send) -> list[Any]:
        client, commands = await self.client(), effect.commands
        if effect.master:
            client = cluster.node_of(client, effect.master)
        if effect.in_order and isinstance(client, AsyncRedisCluster):  # its nodes work in parallel
            return [
                reply for one in commands for reply in await self._call(client, [one], at_most_once=effect.at_most_once)
            ]
        return await self._call(client, commands, at_most_once=effect.at_most_once)

    async def _call(self, client: Any, commands: Sequence[Command], *, at_most_once: bool = False) -> list[Any]:
        """Send commands in one round trip."""
        own = self.borrowed is None
        unsure = at_most_once and not own
        try:
            if own:
                for _ in range(2 if at_most_once else 0):  # let the event loop process pending disconnects first
                    await asyncio.sleep(0)
                line = await clients.afree_line(client)
                unsure = at_most_once
                replies = checked(clients.read_as(client, commands, await line.exchange(commands)))
            elif isinstance(client, AsyncRedisCluster) and cluster.has_search(commands):
                call = functools.partial(self._call, client, at_most_once=at_most_once)
                replies = await cluster.asearch(client, commands, call, again=not at_most_once)
            elif len(commands) == 1:
                replies = [await client.execute_command(*commands[0], **raw_options(client, commands[0]))]
            else:
                pipe = client.pipeline(transaction=False)
                for command in commands:
                    pipe.execute_command(*command, **RAW)
                replies = checked(await pipe.execute(raise_on_error=False))
        except (*ERRORS, AttributeError) as met:
            error = cluster.lost(met)
            if self.revive is not None and isinstance(error, ConnectionLost):
                await self._in_thread(self.revive)
            replies = refused(error, own=own, unsure=unsure)
        self.breaker.close()
        return replies

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Run a call in a thread of our own: `to_thread` may wait for threads of the loop that hanging models occupy."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = ThreadPoolExecutor(_THREADS, "workingmem-async")
        return await loop.run_in_executor(pool, contextvars.copy_context().run, call)

    def _end_threads(self, loop: asyncio.AbstractEventLoop) -> None:
        pool = self._pools.pop(loop, None)
        if pool is not None:
            pool.shutdown(wait=False)  # the threads finish their work and end

    async def settled(self) -> None:
        """Wait for the background plans of this loop, also for those that they start."""
        loop = asyncio.get_running_loop()
        while tasks := [task for task in list(self._tasks) if task.get_loop() is loop]:
            await asyncio.wait(tasks)

    async def aclose(self, then: Callable[[], None]) -> None:
        """Wait for the background plans of this loop, close its client, and call `then` in a thread, because it may wait.

        Other loops close their clients at their end.
        """
        await self.settled()
        loop = asyncio.get_running_loop()
        entry = self._own.pop(loop, None)
        self._end_threads(loop)
        if entry is not None:
            await entry[1].aclose()
        await in_thread(then)


def _seconds(pause: effects.Pause) -> float:
    return random.uniform(0, pause.seconds) if pause.jitter else pause.seconds  # noqa: S311 - no secret


async def _next(source: Iterator[Any] | AsyncIterator[Any]) -> tuple[Any, ...]:
    if isinstance(source, AsyncIterator):
        async for item in source:
            return (item,)
        return ()
    await asyncio.sleep(0)  # records that are at hand do not hold the loop
    return tuple(islice(source, 1))
