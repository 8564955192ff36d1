"""Checks URLs of Redis, and makes the clients for them.

Errors quote only the scheme of a URL: if the URL is not percent-encoded, any other piece may be a part of the password.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import redis
import redis.asyncio
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import RedisError, ResponseError

from langchain_workingmem._engine.wires.tasks import Lane, LanePool
from langchain_workingmem._engine.wires.threads import Wire, WirePool
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from urllib.parse import SplitResult

    from redis.asyncio import Redis as AsyncRedis
    from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
    from redis.cluster import RedisCluster

    from langchain_workingmem._engine.effects import Command

    SyncClient = redis.Redis | RedisCluster
    AsyncClient = AsyncRedis | AsyncRedisCluster

DEFAULT_URL = "redis://localhost:6379"
_SCHEMES = ("redis://", "rediss://", "unix://")
_NOT_READ = "percent-encode the characters / # ? @ : in user and password, and check its options"
_SENTINEL = (
    "pass client=redis.sentinel.Sentinel([(host, 26379)], ...).master_for(service), and async_client= of "
    "redis.asyncio.sentinel"
)
# RESP3 replies of Search are nested maps and take 40 % longer to read than the lists of RESP2 (200 candidates: 957 against
# 681 us with hiredis). A `protocol` in the URL wins; a borrowed client may use either.
_PROTOCOL = 2
_CONNECTIONS = 64


def check_url(url: str) -> str:
    """Return the URL if a client can be made from it; else `OptionError`."""
    if not isinstance(url, str):
        raise OptionError(
            f"redis_url is of type {type(url).__name__}",
            remedy="pass a str, or a client as client=... or async_client=...",
        )
    if url.startswith("redis+sentinel://"):
        raise OptionError("redis_url names Sentinels", remedy=_SENTINEL)
    if not url.startswith(_SCHEMES):
        scheme = re.match(r"([a-z][a-z+.-]{0,20})://", url, re.IGNORECASE)
        seen = repr(scheme[1]) if scheme else "none"
        raise OptionError(f"redis_url has the scheme {seen}", remedy=f"use one of {', '.join(_SCHEMES)}")
    if not _is_readable(url):  # not from the parser's error, which quotes the URL
        raise OptionError("redis_url cannot be read", remedy=_NOT_READ)
    return url


def _is_readable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        redis.BlockingConnectionPool.from_url(url).make_connection()  # type: ignore[no-untyped-call]  # reads every option, but does not connect
        return _is_whole(parts)
    except (ValueError, TypeError, AttributeError, RedisError):
        return False


def _is_whole(parts: SplitResult) -> bool:
    """Return False if a character of the password that is not percent-encoded has cut the URL."""
    if parts.fragment or "\0" in unquote(parts.netloc + parts.path):
        return False
    if any(option and "=" not in option for option in parts.query.split("&")):
        return False
    if parts.scheme in {"redis", "rediss"}:
        return parts.path.strip("/").isdecimal() or not parts.path.strip("/")
    return not (parts.netloc and "@" in parts.path)


def sync_client(url: str, timeout: timedelta, connect: timedelta) -> SyncClient:
    """Make a client, which connects at its first command. It repeats nothing: `effects` repeats what is safe."""
    return redis.Redis.from_pool(WirePool.from_url(url, **_options(timeout, connect)))


def async_client(url: str, timeout: timedelta, connect: timedelta) -> AsyncClient:
    """Make a client for the running event loop, as `sync_client` does."""
    return redis.asyncio.Redis.from_pool(LanePool.from_url(url, **_options(timeout, connect)))


def _options(timeout: timedelta, connect: timedelta) -> dict[str, Any]:
    """Return the options that apply unless the URL sets them."""
    return {
        "max_connections": _CONNECTIONS,
        "timeout": timeout.total_seconds(),  # of a caller for a free connection
        "protocol": _PROTOCOL,
        "socket_timeout": timeout.total_seconds(),
        "socket_connect_timeout": min(connect, timeout).total_seconds(),
    }


class _Line:
    """A connection that is used in the way of redis-py."""

    def __init__(self, pool: Any, connection: Any) -> None:
        self._pool, self._connection = pool, connection

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one write, give the connection back, and return all replies, errors among them.

        A connection whose replies are not read to the end is closed, also where a signal handler raises between two of them:
        whoever took it next would read them.
        """
        connection = self._connection
        try:
            connection.send_packed_command(connection.pack_commands(commands))
            replies = [_reply(connection) for _ in commands]
        except BaseException:
            connection.disconnect()
            self._pool.release(connection)  # not in a `finally`: one that could not be closed is not given back
            raise
        self._pool.release(connection)
        return replies


class _AsyncLine(_Line):
    async def exchange(self, commands: Sequence[Command]) -> list[Any]:  # type: ignore[override]
        """Async twin."""
        connection = self._connection
        try:
            await connection.send_packed_command(connection.pack_commands(commands))
            replies = [await _areply(connection) for _ in commands]
        except BaseException:
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)
            raise
        await self._pool.release(connection)
        return replies


def free_line(client: Any) -> Wire | _Line:
    """Take what commands are sent over: a wire, else a connection from the pool of a client.

    Where a signal handler raises during a handshake, redis-py gives the connection back half made: without its login, or with
    replies that whoever took it next would read.
    """
    pool = client.connection_pool
    try:
        return pool.take() if _is_direct(pool) else _Line(pool, pool.get_connection())
    except RedisError:  # then redis-py has closed it
        raise
    except BaseException:
        pool.disconnect(inuse_connections=False)
        raise


async def afree_line(client: Any) -> Lane | _AsyncLine:
    """Async twin of `free_line`; a lane is shared with other tasks."""
    pool = client.connection_pool
    return await pool.take() if _is_direct(pool) else _AsyncLine(pool, await pool.get_connection())


def _is_direct(pool: Any) -> bool:
    return getattr(pool, "is_direct", False)  # pools of Sentinels are redis-py's own


def read_as(client: Any, commands: Sequence[Command], replies: list[Any]) -> list[Any]:
    """Give replies the forms of redis-py: INFO as a dict, and so on; raise what is no reply, of a server that still loads."""
    for at, command in enumerate(commands):
        read = dict.get(client.response_callbacks, command[0])  # its own look-up is slow, because it ignores case
        if isinstance(replies[at], ConnectionLost):
            raise replies[at]
        if read is not None and not isinstance(replies[at], Exception):
            replies[at] = read(replies[at])
    return replies


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response(disable_decoding=True)
    except ResponseError as error:
        return error


async def _areply(connection: Any) -> Any:
    try:
        return await connection.read_response(disable_decoding=True)
    except ResponseError as error:
        return error
