"""The runners: the only code that performs the effects of a plan, once for sync and once for async callers."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from redis.client import NEVER_DECODE
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    RedisError,
    ResponseError,
)
from redis.exceptions import (
    ConnectionError as ConnectionLost,
)
from redis.exceptions import (
    TimeoutError as TimedOut,
)

from langchain_workingmem.errors import RedisConnectionError, RedisReplyError, WorkingMemError
from langchain_workingmem.io.clients import aclose, close
from langchain_workingmem.plans.effects import Effect, Embed, Pause, Plan, Progress, Send

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from langchain_workingmem.io.clients import AsyncClient, SyncClient
    from langchain_workingmem.io.embedder import Embedder

T = TypeVar("T")
# Replies come as bytes whatever a borrowed client was told to do: vectors are not text.
_RAW = {NEVER_DECODE: True}


class Runner:
    """Runs plans for sync callers."""

    def __init__(
        self, connect: Callable[[], SyncClient], embedder: Embedder, *, borrowed: SyncClient | None = None
    ) -> None:
        self._connect = connect
        self._embedder = embedder
        self._borrowed = borrowed
        self._own: SyncClient | None = None

    @property
    def client(self) -> Any:  # redis-py types its commands for direct callers only
        """Return the client, made at the first use."""
        if self._borrowed is not None:
            return self._borrowed
        if self._own is None:
            self._own = self._connect()
        return self._own

    def run(self, plan: Plan[T], progress: Callable[[int, int], object] | None = None) -> T:
        """Drive a plan to its result."""
        try:
            effect = next(plan)
            while True:
                try:
                    result = self._perform(effect, progress)
                except WorkingMemError as error:
                    effect = plan.throw(error)
                else:
                    effect = plan.send(result)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        finally:
            plan.close()

    def _perform(self, effect: Effect, progress: Callable[[int, int], object] | None) -> Any:
        match effect:
            case Send(commands):
                try:
                    if len(commands) == 1:
                        return [self.client.execute_command(*commands[0], **_RAW)]
                    with self.client.pipeline(transaction=False) as pipe:
                        for command in commands:
                            pipe.execute_command(*command, **_RAW)
                        return _checked(pipe.execute(raise_on_error=False))
                except RedisError as error:
                    return _refused(error)
            case Embed():
                return self._embedder.embed(effect)
            case Pause():
                time.sleep(_seconds(effect))
            case Progress(done, total) if progress is not None:
                progress(done, total)
        return None

    def close(self) -> None:
        """Close the client that was made here."""
        if self._own is not None:
            close(self._own)
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
        try:
            effect = next(plan)
            while True:
                try:
                    result = await self._perform(effect, progress)
                except WorkingMemError as error:
                    effect = plan.throw(error)
                else:
                    effect = plan.send(result)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        finally:
            plan.close()

    async def _perform(self, effect: Effect, progress: Callable[[int, int], object] | None) -> Any:
        match effect:
            case Send(commands):
                client = await self.client()
                try:
                    if len(commands) == 1:
                        return [await client.execute_command(*commands[0], **_RAW)]
                    async with client.pipeline(transaction=False) as pipe:
                        for command in commands:
                            pipe.execute_command(*command, **_RAW)
                        return _checked(await pipe.execute(raise_on_error=False))
                except RedisError as error:
                    return _refused(error)
            case Embed():
                return await self._embedder.aembed(effect)
            case Pause():
                await asyncio.sleep(_seconds(effect))
            case Progress(done, total) if progress is not None:
                progress(done, total)
        return None

    async def aclose(self) -> None:
        """Close the client of the running loop; other loops close theirs when they end."""
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
        await aclose(client)


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
    if isinstance(error, ConnectionLost | TimedOut):
        msg = f"Redis cannot be reached ({error}): check that it runs and that the URL is right"
        raise RedisConnectionError(msg) from error
    if isinstance(error, ResponseError):
        return [RedisReplyError(reply_text(error))]
    msg = f"the Redis client failed: {type(error).__name__}: {error}"
    raise RedisConnectionError(msg) from error


def reply_text(error: ResponseError) -> str:
    """Give back the reply as the server wrote it: redis-py takes the code off those that have a class of their own."""
    code = {"NoScriptError": "NOSCRIPT", "ReadOnlyError": "READONLY", "OutOfMemoryError": "OOM"}.get(
        type(error).__name__
    )
    return f"{code} {error}" if code else str(error)
