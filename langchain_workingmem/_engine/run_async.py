"""The runner of async callers: it performs the effects of plans."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from redis.asyncio.cluster import RedisCluster
from redis.exceptions import ConnectionError as ConnectionLost

from langchain_workingmem._engine import cluster
from langchain_workingmem._engine.background import in_thread, log_failure
from langchain_workingmem._engine.breaker import Breaker
from langchain_workingmem._engine.exchange import aexchange, apipelined
from langchain_workingmem._engine.plan import Call, Send, Sleep, Spawn
from langchain_workingmem._engine.replies import ERRORS, answered, refused
from langchain_workingmem.errors import RedisConnectionError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from langchain_workingmem._engine.exchange import AsyncClient
    from langchain_workingmem._engine.plan import Command, Effect, Plan

T = TypeVar("T")
_THREADS = 4  # for calls that have no async twin


@dataclass(eq=False, repr=False)
class AsyncRunner:
    """Runs plans for async callers. Each event loop has its own client, which is closed when the loop shuts down.

    A borrowed client belongs to the caller, who closes it.
    """

    connect: Callable[[], AsyncClient]
    borrowed: AsyncClient | None = None
    revive: Callable[[], None] | None = field(default=None, init=False)  # restarts the embedded server if it died
    breaker: Breaker = field(default_factory=Breaker, init=False)  # is closed when Redis answers
    _own: dict[asyncio.AbstractEventLoop, tuple[AsyncClient, AsyncGenerator[None]]] = field(
        default_factory=dict, init=False
    )
    _tasks: dict[asyncio.Task[None], Spawn] = field(default_factory=dict, init=False)
    # One pool for each loop: a forked process has its own loops, but none of the threads
    _pools: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadPoolExecutor] = field(
        default_factory=WeakKeyDictionary, init=False
    )

    # ------------------------------------------------------------------ plans

    async def run(self, plan: Plan[T]) -> T:
        """Run a plan and return its result."""
        task = asyncio.current_task()
        cancelling = task.cancelling if task is not None else int
        try:
            effect = next(plan)
            while True:
                # timeouts of Python 3.11 lose a cancellation that comes together with theirs, and a model may swallow one
                before = cancelling()
                try:
                    result = await (self.send(effect) if isinstance(effect, Send) else self._perform(effect))
                except Exception as error:
                    if cancelling() > before:
                        raise asyncio.CancelledError from error
                    effect = plan.throw(error)
                else:
                    if cancelling() > before:
                        raise asyncio.CancelledError
                    effect = plan.send(result)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        finally:
            plan.close()

    async def _perform(self, effect: Effect[Any]) -> Any:
        match effect:
            case Call(call, acall):
                return await (self._in_thread(call) if acall is None else acall())
            case Sleep(seconds, jitter):
                await asyncio.sleep(random.uniform(0, seconds) if jitter else seconds)  # noqa: S311 - no secret
            case Spawn(plan):
                # an empty context: a background plan is no part of the run that started it
                task = asyncio.get_running_loop().create_task(self.run(plan), context=contextvars.Context())
                self._tasks[task] = effect
                task.add_done_callback(self._ended)
        return None

    def _ended(self, task: asyncio.Task[None]) -> None:
        spawned = self._tasks.pop(task, None)
        if spawned is not None and (task.cancelled() or not task.done()):
            spawned.lost()
        if task.done():
            log_failure(task)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Run a call in a thread of our own: `to_thread` may wait for threads of the loop that hanging models occupy."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = ThreadPoolExecutor(_THREADS, "workingmem-async")
        return await loop.run_in_executor(pool, contextvars.copy_context().run, call)

    def _end_threads(self, loop: asyncio.AbstractEventLoop) -> None:
        if (pool := self._pools.pop(loop, None)) is not None:
            pool.shutdown(wait=False)  # the threads finish their work and end

    # ------------------------------------------------------------------ Redis

    async def send(self, effect: Send) -> Any:
        """Perform a `Send`."""
        client, commands, node = await self.client(), effect.commands, effect.node
        if node == "*":
            return await self._everywhere(client, commands)
        if effect.in_order and isinstance(client, RedisCluster):  # its nodes work in parallel
            return [
                reply
                for one in commands
                for reply in await self._exchange(client, [one], at_most_once=effect.at_most_once)
            ]
        return await self._exchange(
            cluster.node_of(client, node) if node else client, commands, at_most_once=effect.at_most_once
        )

    async def _everywhere(
        self, client: Any, commands: Sequence[Command]
    ) -> dict[str, list[Any] | RedisConnectionError]:
        found: dict[str, list[Any] | RedisConnectionError] = {}
        for name in await cluster.masters(client):
            try:
                found[name] = await self._exchange(cluster.node_of(client, name), commands)
            except RedisConnectionError as error:
                found[name] = error
        return answered(found)

    async def _exchange(self, client: Any, commands: Sequence[Command], *, at_most_once: bool = False) -> list[Any]:
        """Make one round trip; a refused command gives a `RedisReplyError`."""
        own = self.borrowed is None
        unsure = at_most_once and not own
        try:
            if own:
                for _ in range(2 if at_most_once else 0):  # let the event loop process pending disconnects first
                    await asyncio.sleep(0)
                connection = await client.connection_pool.get_connection()  # a failure here has sent nothing
                unsure = at_most_once
                replies = await aexchange(client, connection, commands)
            elif isinstance(client, RedisCluster) and cluster.has_search(commands):
                call = functools.partial(self._exchange, client, at_most_once=at_most_once)
                replies = await cluster.asearch(client, commands, call, again=not at_most_once)
            else:
                replies = await apipelined(client, commands)
        except (*ERRORS, AttributeError, RuntimeError) as met:
            error = cluster.lost(met)
            if self.revive is not None and isinstance(error, ConnectionLost):
                await self._in_thread(self.revive)
            replies = [refused(error, own=own, unsure=unsure)]
        if self.breaker.since is not None:
            self.breaker.close()
        return replies

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

    # ------------------------------------------------------------------ the end

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
