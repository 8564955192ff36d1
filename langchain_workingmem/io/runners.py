"""The runners: the only code that performs the effects of a plan, once for sync and once for async callers."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from redis.client import NEVER_DECODE
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.exceptions import (
    ConnectionError as ConnectionLost,
)
from redis.exceptions import (
    TimeoutError as TimedOut,
)

from langchain_workingmem.errors import (
    ModelError,
    OptionError,
    RedisConnectionError,
    RedisReplyError,
    WorkingMemError,
)
from langchain_workingmem.io import clients
from langchain_workingmem.io.tracing import Trace
from langchain_workingmem.options import check_time
from langchain_workingmem.plans.effects import (
    PAUSES,
    Ask,
    Effect,
    Embed,
    Enter,
    Later,
    Leave,
    Pause,
    Plan,
    Progress,
    Send,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from langchain_workingmem.io.clients import AsyncClient, SyncClient
    from langchain_workingmem.io.embedder import Embedder
    from langchain_workingmem.plans.effects import Command

_log = logging.getLogger("langchain_workingmem")

T = TypeVar("T")
# Replies come as bytes whatever a borrowed client was told to do: vectors are not text.
_RAW = {NEVER_DECODE: True}
_ERRORS = (RedisError, RedisClusterException)  # redis-py does not count the latter among its own
_CODES = {NoScriptError: "NOSCRIPT", ReadOnlyError: "READONLY", OutOfMemoryError: "OOM", NoPermissionError: "NOPERM"}
_REMEDIES = {
    "OOM": "raise maxmemory, or delete threads",
    "READONLY": "this is a replica, connect to its master, or through redis+sentinel://",
    "NOREPLICAS": "fewer replicas are connected than min-replicas-to-write asks for",
    "MISCONF": "Redis cannot write to its disk, its log says why",
}
_RIGHTS = "`workingmem doctor --acl` prints the rights that a Redis user of this package needs"
TIMEOUT = timedelta(seconds=10)


class Runner:
    """Runs plans for sync callers."""

    def __init__(
        self, connect: Callable[[], SyncClient], embedder: Embedder, *, borrowed: SyncClient | None = None
    ) -> None:
        self._connect = connect
        self._embedder = embedder
        self._borrowed = borrowed
        self.revive: Callable[[], None] | None = None  # starts a server that is ours and has died
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
                try:
                    result = self._perform(effect, progress, trace)
                except WorkingMemError as error:
                    effect = plan.throw(error)
                else:
                    effect = plan.send(result)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        finally:
            plan.close()

    def _perform(self, effect: Effect, progress: Callable[[int, int], object] | None, trace: Trace) -> Any:
        match effect:
            case Send():
                return self._send(effect)
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
            case Enter():
                return trace.enter(effect)
            case Leave():
                trace.leave(effect)
        return None

    def _send(self, effect: Send) -> list[Any]:
        client, own, unsure = self.client, self._borrowed is None, False
        try:
            if effect.once and own:
                clients.reach(client)
            unsure = effect.once
            if len(effect.commands) == 1:
                return [client.execute_command(*effect.commands[0], **_sent(client, effect.commands[0]))]
            with client.pipeline(transaction=False) as pipe:
                for command in effect.commands:
                    pipe.execute_command(*command, **_RAW)
                return _checked(pipe.execute(raise_on_error=False))
        except _ERRORS as error:
            if self.revive is not None and isinstance(error, ConnectionLost):
                self.revive()
            return _refused(error, own=own, unsure=unsure)

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
        self._own: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[AsyncClient, AsyncGenerator[None]]]
        self._own = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    async def client(self) -> Any:
        """Return the client of the running loop, made at the first use."""
        if self._borrowed is not None:
            return self._borrowed
        loop = asyncio.get_running_loop()
        if loop not in self._own:
            client = self._connect()
            keeper = _keep_open(client)
            self._own[loop] = (client, keeper)
            await anext(keeper)
        return self._own[loop][0]

    async def run(self, plan: Plan[T], progress: Callable[[int, int], object] | None = None) -> T:
        """Drive a plan to its result."""
        trace = Trace()
        try:
            effect = next(plan)
            while True:
                try:
                    result = await self._perform(effect, progress, trace)
                except WorkingMemError as error:
                    effect = plan.throw(error)
                else:
                    effect = plan.send(result)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        finally:
            plan.close()

    async def _perform(self, effect: Effect, progress: Callable[[int, int], object] | None, trace: Trace) -> Any:
        match effect:
            case Send():
                return await self._send(effect)
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
            case Enter():
                return await trace.aenter(effect)
            case Leave():
                await trace.aleave(effect)
        return None

    async def _send(self, effect: Send) -> list[Any]:
        client, own, unsure = await self.client(), self._borrowed is None, False
        try:
            if effect.once and own:
                await clients.areach(client)
            unsure = effect.once
            if len(effect.commands) == 1:
                return [await client.execute_command(*effect.commands[0], **_sent(client, effect.commands[0]))]
            async with client.pipeline(transaction=False) as pipe:
                for command in effect.commands:
                    pipe.execute_command(*command, **_RAW)
                return _checked(await pipe.execute(raise_on_error=False))
        except _ERRORS as error:
            if self.revive is not None and isinstance(error, ConnectionLost):
                await asyncio.to_thread(self.revive)
            return _refused(error, own=own, unsure=unsure)

    async def aclose(self) -> None:
        """Wait for what this loop runs in the background, and close its client; other loops close theirs at their end."""
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(task for task in self._tasks if task.get_loop() is loop))
        entry = self._own.pop(asyncio.get_running_loop(), None)
        if entry is not None:
            await entry[1].aclose()


async def _keep_open(client: AsyncClient) -> AsyncGenerator[None]:
    """Close a client when its event loop ends.

    A loop that shuts down closes the async generators that it has seen; nothing else tells us in time, and a
    connection that outlives its loop can only be closed with "Event loop is closed".
    """
    try:
        yield
    finally:
        await clients.aclose(client)


def runners(
    redis_url: str | None,
    client: SyncClient | None,
    async_client: AsyncClient | None,
    timeout: timedelta,
    embedder: Embedder,
) -> tuple[Runner, AsyncRunner]:
    """Make the runners for a URL (None: the environment's), or for clients that stay their owner's."""
    check_time(timeout, "timeout")
    given = client is not None or async_client is not None
    if given and (redis_url is not None or timeout != TIMEOUT):
        msg = "redis_url or timeout beside client or async_client: pass one or the other, a client has its own timeouts"
        raise OptionError(msg)
    url = None if given else clients.check_url(redis_url or os.environ.get("REDIS_URL") or clients.DEFAULT_URL)

    def connect(make: Callable[[str, timedelta], T], missing: str) -> T:
        if url is None:
            calls = "sync" if missing == "client" else "async"
            msg = f"no client for {calls} calls: pass {missing}=... as well, or a redis_url instead of clients"
            raise OptionError(msg)
        return make(url, timeout)

    # not partial, which would show the URL, with its password, in its repr
    return (
        Runner(lambda: connect(clients.sync_client, "client"), embedder, borrowed=client),
        AsyncRunner(lambda: connect(clients.async_client, "async_client"), embedder, borrowed=async_client),
    )


def _no_answer(error: Exception) -> ModelError:
    return ModelError(f"the chat model failed: {type(error).__name__}: {error}")


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


def _sent(client: Any, command: Command) -> dict[str, Any]:
    """Give the options of a command; a cluster must be told where to send one that names no key."""
    if command[0] in {"HELLO", "CONFIG"} and hasattr(client, "nodes_manager"):
        return {**_RAW, "target_nodes": client.get_default_node()}
    return _RAW


def _seconds(pause: Pause) -> float:
    return random.uniform(0, pause.seconds) if pause.jitter else pause.seconds  # noqa: S311 - no secret


def _checked(replies: list[Any]) -> list[Any]:
    """Turn the errors among the replies into ours."""
    return [_refused(reply)[0] if isinstance(reply, Exception) else reply for reply in replies]


def _refused(error: Exception, *, own: bool = False, unsure: bool = False) -> list[RedisReplyError]:
    """Return what Redis refused as a reply; raise what went wrong on the way there.

    On a client of our `own` that may be repeated, unless it is `unsure` whether something happened that must happen
    once. Whoever lends a client decides himself what it repeats.
    """
    # the client's own words name host and port at most, never the password
    if isinstance(error, AuthenticationError | AuthorizationError):
        msg = f"Redis refused the login ({error}): check the user and password in the URL"
        raise RedisConnectionError(msg) from error
    if isinstance(error, ConnectionLost | TimedOut | RedisClusterException):
        if unsure and not isinstance(error, BusyLoadingError):
            msg = f"the reply of Redis was lost ({error}): the call may have taken effect, so look before you repeat it"
            raise RedisConnectionError(msg) from error
        msg = f"Redis cannot be reached ({error}): check that it runs and that the URL is right"
        # who was silent once may have been behind a dead connection; who is silent twice keeps his caller waiting
        repeats = 1 if isinstance(error, TimedOut) else len(PAUSES)
        raise RedisConnectionError(msg, repeats=repeats if own else 0) from error
    if isinstance(error, ResponseError):
        return [RedisReplyError(reply_text(error))]
    msg = f"the Redis client failed: {type(error).__name__}: {error}"
    raise RedisConnectionError(msg) from error


def reply_text(error: ResponseError) -> str:
    """Give back the reply as the server wrote it, and the remedy where there is one.

    redis-py takes the code off those replies that have a class of their own.
    """
    code = _CODES.get(type(error))
    text = f"{code} {error}" if code else str(error)
    remedy = _RIGHTS if "no permissions" in text.lower() else _REMEDIES.get(text.split(" ", 1)[0])
    return f"{text}; {remedy}" if remedy else text
