"""The two runners, which perform the effects of plans: one for sync callers, and the same again for async ones."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from threading import Lock, Thread, current_thread
from typing import TYPE_CHECKING, Any, TypeVar

import redis.asyncio

from langchain_workingmem._engine.clients import at_once, check_url, client_of, failure, perform
from langchain_workingmem._engine.exchange import aexchange, exchange
from langchain_workingmem._engine.plan import Call, Send, Sleep, with_each
from langchain_workingmem.checks import check_time
from langchain_workingmem.errors import MemoryClosedError, OptionError, RedisConnectionError
from langchain_workingmem.options import CONNECT_TIMEOUT, TIMEOUT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from datetime import timedelta

    from langchain_workingmem._engine.clients import AsyncClient, SyncClient
    from langchain_workingmem._engine.plan import Effect, Plan, Spawn

T = TypeVar("T")
DEFAULT_URL = "redis://localhost:6379"
FEW_REPEATS = 2  # repeats for agents
COOL_DOWN = 5.0  # seconds without calls of Redis after a failure
_log = logging.getLogger("langchain_workingmem")


@dataclass(slots=True)
class Link:
    """What both runners know of Redis, and the circuit breaker: after a failure, one call each `COOL_DOWN` seconds."""

    revive: Callable[[], None] | None = None  # restarts the embedded server if it died
    closed: bool = False
    until: float | None = None  # no agent may ask Redis before this time; None: Redis answers
    clock: Callable[[], float] = time.monotonic

    def guard(self, plan: Plan[T]) -> Plan[T]:
        """Run a plan with few repeats, and note a failure; raise at once while nobody may ask Redis."""
        if self.until is not None and self.clock() < self.until:
            plan.close()
            problem = f"Redis has failed, and is asked again every {COOL_DOWN:g} s"
            raise RedisConnectionError(problem, remedy="check that it runs and that the URL is right")
        if self.until is not None:
            self.until = self.clock() + COOL_DOWN
        try:
            return (yield from with_each(plan, _with_few_repeats))
        except RedisConnectionError:
            if self.until is None:
                _log.warning("Redis has failed: agents continue without memory, and ask again every %g s", COOL_DOWN)
            self.until = self.clock() + COOL_DOWN
            raise

    def answered(self) -> None:
        """End the cool-down."""
        self.until = None
        _log.warning("Redis answers again")


def _with_few_repeats(effect: Effect[Any]) -> Plan[Any]:
    """Let few repeats replace a connection that the server closed while it was idle; none after a timeout."""
    try:
        return (yield effect)
    except RedisConnectionError as error:
        error.repeats = 0 if error.timed_out else min(error.repeats, FEW_REPEATS)
        raise


class Background:
    """Threads in which plans run that no caller waits for; nor does the end of the process for `slow` ones."""

    def __init__(self, most: int, *, slow: bool) -> None:
        self._most, self._slow, self._lock = most, slow, Lock()
        self._waiting: deque[Callable[[], object]] = deque()
        self.threads: set[Thread] = set()

    def start(self, call: Callable[[], object]) -> None:
        """Run a call in the background."""
        with self._lock:
            self._waiting.append(call)
            self.threads = {thread for thread in self.threads if thread.is_alive()}  # a forked process has none of them
            if len(self.threads) < self._most:
                # an empty context: a background plan is no part of the run that started it
                run, name = contextvars.Context().run, "workingmem-slow" if self._slow else "workingmem"
                worker = Thread(target=run, args=(self._work,), name=name, daemon=self._slow)
                self.threads.add(worker)
                worker.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self.threads.discard(current_thread())
                    return
                call = self._waiting.popleft()
            try:
                call()
            except Exception:  # noqa: BLE001 - of a plan, and logged
                _log.exception("a background plan has failed")  # no caller waits for it
            del call  # the plan and its messages must not stay until the next one


@dataclass(eq=False, repr=False)
class Runner:
    """Runs plans for sync callers. A borrowed client belongs to the caller, who closes it."""

    connect: Callable[[], SyncClient]
    borrowed: SyncClient | None = None
    link: Link = field(default_factory=Link)
    _own: Any = field(default=None, init=False)
    _quick: Background = field(default_factory=partial(Background, 2, slow=False), init=False)
    _slow: Background = field(default_factory=partial(Background, 4, slow=True), init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    @property
    def client(self) -> Any:  # redis-py types its commands for direct callers only
        """The client, made at the first use."""
        if self.link.closed:
            raise MemoryClosedError
        if self.borrowed is not None:
            return self.borrowed
        with self._lock:
            if self._own is None:
                self._own = self.connect()
            return self._own

    def run(self, plan: Plan[T]) -> T:
        """Run a plan and return its result."""
        result: Any
        try:
            effect: Any = next(plan)
            while True:
                try:
                    result = None
                    if isinstance(effect, Send):
                        result = self.send(effect)
                    elif isinstance(effect, Call):
                        result = effect.call()
                    elif isinstance(effect, Sleep):
                        time.sleep(effect.seconds)
                    else:
                        (self._slow if effect.slow else self._quick).start(partial(self.run, effect.plan))
                except Exception as error:  # noqa: BLE001 - raised in the plan
                    effect = plan.throw(error)
                else:
                    effect = plan.send(result)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        finally:
            plan.close()

    def send(self, effect: Send) -> Any:
        """Perform a `Send`."""
        client = self._own or self.client
        if client is self.borrowed:
            replies = at_once(perform(client, effect))
        else:
            try:
                replies = exchange(client, effect)
            except RedisConnectionError as error:
                if self.link.revive is not None and not error.timed_out:
                    self.link.revive()
                raise
            if effect.node:
                replies = {"": replies}
        if self.link.until is not None:
            self.link.answered()
        return replies

    def settled(self) -> None:
        """Wait for the background plans, also for those that they start."""
        pools = (self._quick, self._slow)
        while working := [thread for pool in pools for thread in pool.threads.copy() if thread.is_alive()]:
            working[0].join()

    async def asettled(self) -> None:
        """Async twin of `settled`; it does not hold up the event loop."""
        await asyncio.to_thread(self.settled)

    def close(self) -> None:
        """Wait for background plans, and close the client that was made here; later calls raise."""
        self.settled()
        with self._lock:
            self.link.closed, self.link.revive = True, None
            client, self._own = self._own, None
        if client is not None:
            client.close()


@dataclass(eq=False, repr=False)
class AsyncRunner:
    """Runs plans for async callers. Each event loop has its own client, closed at its shutdown unless borrowed."""

    connect: Callable[[], AsyncClient]
    borrowed: AsyncClient | None = None
    link: Link = field(default_factory=Link)
    _own: dict[asyncio.AbstractEventLoop, tuple[Any, AsyncGenerator[None]]] = field(default_factory=dict, init=False)
    _tasks: dict[asyncio.Task[None], Spawn] = field(default_factory=dict, init=False)

    async def client(self) -> Any:
        """Return the client of the running loop, made at the first use."""
        if self.link.closed:
            raise MemoryClosedError
        if self.borrowed is not None:
            return self.borrowed
        running = asyncio.get_running_loop()
        if running not in self._own:
            # loops that were closed without a shutdown: their clients refer to them, and keep them in memory
            for closed in [loop for loop in list(self._own) if loop.is_closed()]:
                self._own.pop(closed, None)
            for task in [task for task in list(self._tasks) if task.get_loop().is_closed()]:
                self._ended(task)
            client = self.connect()
            keeper = self._keep_open(running, client)
            self._own[running] = (client, keeper)
            await anext(keeper)
        return self._own[running][0]

    async def _keep_open(self, loop: asyncio.AbstractEventLoop, client: AsyncClient) -> AsyncGenerator[None]:
        """Close a client when its event loop ends: a loop closes async generators first, no other hook is in time."""
        try:
            yield
        finally:
            self._own.pop(loop, None)
            await client.aclose()

    async def run(self, plan: Plan[T]) -> T:
        """Run a plan and return its result."""
        task = asyncio.current_task()
        cancelling = task.cancelling if task is not None else lambda: 0
        result: Any
        try:
            effect: Any = next(plan)
            while True:
                # timeouts of Python 3.11 lose a cancellation that comes with theirs, and a model may swallow one
                before = cancelling()
                try:
                    result = None
                    if isinstance(effect, Send):
                        result = await self.send(effect)
                    elif isinstance(effect, Call):
                        result = await (effect.acall() if effect.acall else asyncio.to_thread(effect.call))
                    elif isinstance(effect, Sleep):
                        await asyncio.sleep(effect.seconds)
                    else:
                        # an empty context: a background plan is no part of the run that started it
                        background = asyncio.create_task(self.run(effect.plan), context=contextvars.Context())
                        self._tasks[background] = effect
                        background.add_done_callback(self._ended)
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

    def _ended(self, task: asyncio.Task[None]) -> None:
        spawned = self._tasks.pop(task, None)
        if spawned is not None and (task.cancelled() or not task.done()):
            spawned.lost()
        elif not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a background plan has failed", exc_info=error)

    async def send(self, effect: Send) -> Any:
        """Perform a `Send`."""
        client = await self.client()
        if client is self.borrowed:
            replies = await perform(client, effect)
        else:
            try:
                replies = await _in_turn(client, effect)
            except RedisConnectionError as error:
                if self.link.revive is not None and not error.timed_out:
                    await asyncio.to_thread(self.link.revive)
                raise
            if effect.node:
                replies = {"": replies}
        if self.link.until is not None:
            self.link.answered()
        return replies

    async def settled(self) -> None:
        """Wait for the background plans of this loop, also for those that they start."""
        loop = asyncio.get_running_loop()
        while tasks := [task for task in list(self._tasks) if task.get_loop() is loop]:
            await asyncio.wait(tasks)

    async def aclose(self, then: Callable[[], None]) -> None:
        """Wait for background plans of this loop, close its client, and call `then`, which may wait, in a thread."""
        await self.settled()
        if (entry := self._own.pop(asyncio.get_running_loop(), None)) is not None:
            await entry[1].aclose()
        await asyncio.to_thread(then)


async def _in_turn(client: Any, effect: Send) -> list[Any]:
    """Perform a `Send` after the callers that wait for a connection: redis-py's own queue lets new ones overtake."""
    pool = client.connection_pool
    try:
        async with asyncio.timeout(pool.timeout):
            await pool.turns.acquire()
    except TimeoutError:
        raise failure(redis.exceptions.MaxConnectionsError()) from None
    try:
        return await aexchange(client, effect)
    finally:
        pool.turns.release()


def runners(
    redis_url: str | None,
    client: SyncClient | None,
    async_client: AsyncClient | None,
    timeout: timedelta,
    connect_timeout: timedelta,
) -> tuple[Runner, AsyncRunner]:
    """Make the runners for a URL (None: REDIS_URL of the environment, or localhost), or for clients of the caller."""
    check_time(timeout, "timeout")
    check_time(connect_timeout, "connect_timeout")
    is_borrowed = client is not None or async_client is not None
    if is_borrowed and (redis_url is not None or timeout != TIMEOUT or connect_timeout != CONNECT_TIMEOUT):
        raise OptionError(
            "redis_url, timeout or connect_timeout beside client or async_client",
            remedy="pass one or the other, a client has its own timeouts",
        )
    default = os.environ.get("REDIS_URL") or DEFAULT_URL
    url = None if is_borrowed else check_url(default if redis_url is None else redis_url)

    # not partial, whose repr shows the URL with its password
    def connect(library: Any, missing: str) -> Any:
        if url is None:
            remedy = f"pass {missing}=... as well, or a redis_url instead of clients"
            raise OptionError(f"no {missing} for these calls", remedy=remedy)
        return client_of(library, url, timeout, connect_timeout)

    link = Link()
    return (
        Runner(lambda: connect(redis, "client"), client, link),
        AsyncRunner(lambda: connect(redis.asyncio, "async_client"), async_client, link),
    )
