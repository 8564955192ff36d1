"""The runners: the only code that performs the effects of a plan, once for sync and once for async callers."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from redis.client import NEVER_DECODE
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
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
from langchain_workingmem.plans.effects import Ask, Effect, Embed, Enter, Later, Leave, Pause, Plan, Progress, Send

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
_RIGHTS = "`workingmem doctor --acl` prints the rights that a Redis user of this package needs"


class Runner:
    """Runs plans for sync callers."""

    def __init__(
        self, connect: Callable[[], SyncClient], embedder: Embedder, *, borrowed: SyncClient | None = None
    ) -> None:
        self._connect = connect
        self._embedder = embedder
        self._borrowed = borrowed
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
            case Send(commands):
                try:
                    if len(commands) == 1:
                        return [self.client.execute_command(*commands[0], **_sent(self.client, commands[0]))]
                    with self.client.pipeline(transaction=False) as pipe:
                        for command in commands:
                            pipe.execute_command(*command, **_RAW)
                        return _checked(pipe.execute(raise_on_error=False))
                except _ERRORS as error:
                    return _refused(error)
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
            case Send(commands):
                client = await self.client()
                try:
                    if len(commands) == 1:
                        return [await client.execute_command(*commands[0], **_sent(client, commands[0]))]
                    async with client.pipeline(transaction=False) as pipe:
                        for command in commands:
                            pipe.execute_command(*command, **_RAW)
                        return _checked(await pipe.execute(raise_on_error=False))
                except _ERRORS as error:
                    return _refused(error)
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
    redis_url: str | None, client: SyncClient | None, async_client: AsyncClient | None, embedder: Embedder
) -> tuple[Runner, AsyncRunner]:
    """Make the runners for a URL (None: the environment's), or for clients that stay their owner's."""
    given = client is not None or async_client is not None
    if given and redis_url is not None:
        msg = "redis_url beside client or async_client: pass one or the other"
        raise OptionError(msg)
    url = None if given else clients.check_url(redis_url or os.environ.get("REDIS_URL") or clients.DEFAULT_URL)
    # not partial, which would show the URL, with its password, in its repr
    return (
        Runner(lambda: _connect(clients.sync_client, url, "client"), embedder, borrowed=client),
        AsyncRunner(lambda: _connect(clients.async_client, url, "async_client"), embedder, borrowed=async_client),
    )


def _connect(make: Callable[[str], T], url: str | None, missing: str) -> T:
    if url is None:
        calls = "sync" if missing == "client" else "async"
        msg = f"no client for {calls} calls: pass {missing}=... as well, or a redis_url instead of clients"
        raise OptionError(msg)
    return make(url)


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


def _refused(error: Exception) -> list[RedisReplyError]:
    """Return what Redis refused as a reply; raise what went wrong on the way there."""
    # the client's own words name host and port at most, never the password
    if isinstance(error, AuthenticationError | AuthorizationError):
        msg = f"Redis refused the login ({error}): check the user and password in the URL"
        raise RedisConnectionError(msg) from error
    if isinstance(error, ConnectionLost | TimedOut | RedisClusterException):
        msg = f"Redis cannot be reached ({error}): check that it runs and that the URL is right"
        raise RedisConnectionError(msg) from error
    if isinstance(error, ResponseError):
        return [RedisReplyError(reply_text(error))]
    msg = f"the Redis client failed: {type(error).__name__}: {error}"
    raise RedisConnectionError(msg) from error


def reply_text(error: ResponseError) -> str:
    """Give back the reply as the server wrote it, and the remedy where rights are missing.

    redis-py takes the code off those replies that have a class of their own.
    """
    code = _CODES.get(type(error))
    text = f"{code} {error}" if code else str(error)
    return f"{text}; {_RIGHTS}" if "no permissions" in text.lower() else text
