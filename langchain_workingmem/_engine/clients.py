"""Checks URLs of Redis, and makes and closes the clients for them.

Errors quote only the scheme of a URL: if the URL is not percent-encoded, any other piece may be a part of the password.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel

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
SENTINEL = "redis+sentinel://"
_SCHEMES = ("redis://", "rediss://", "unix://", SENTINEL)
_SENTINEL_PORT = 26379
_SENTINEL_URL = "a sentinel URL reads redis+sentinel://[user:password@]host:port,host:port/service[/db][?option=value]"
_NOT_READ = "percent-encode the characters / # ? @ : in user and password, and check its options"
# These options need objects: text from a URL fails at the first connection.
_OBJECTS = {"credential_provider", "redis_connect_func", "retry_on_error"}
_LOGIN = ("username", "password")
_OF_SENTINEL = re.compile(r"(?<![^&])sentinel_(?:username|password)=[^&]*&?")
# RESP3 replies of Search are nested maps and take 40 % longer to read than the lists of RESP2 (200 candidates: 957 against
# 681 us with hiredis). A `protocol` in the URL wins; a borrowed client may use either.
_PROTOCOL = 2
_CONNECTIONS = 64
# redis-py raises these for a Sentinel's answer in an unexpected form.
_UNREADABLE = (AttributeError, IndexError, KeyError, TypeError, ValueError)
_NO_SENTINEL = "the server is not a Sentinel: its answer cannot be read"


def check_url(url: str) -> str:
    """Return the URL if a client can be made from it; else `OptionError`."""
    if not isinstance(url, str):
        raise OptionError(
            f"redis_url is of type {type(url).__name__}",
            remedy="pass a str, or a client as client=... or async_client=...",
        )
    if not url.startswith(_SCHEMES):
        scheme = re.match(r"([a-z][a-z+.-]{0,20})://", url, re.IGNORECASE)
        seen = repr(scheme[1]) if scheme else "none"
        raise OptionError(f"redis_url has the scheme {seen}", remedy=f"use one of {', '.join(_SCHEMES)}")
    if not _is_readable(url):  # not from the parser's error, which quotes the URL
        raise OptionError("redis_url cannot be read", remedy=_NOT_READ)
    options: dict[str, Any] = dict(redis.connection.parse_url(f"redis://?{urlsplit(url).query}"))  # type: ignore[no-untyped-call]
    for name in ("socket_timeout", "socket_connect_timeout"):
        if name in options and not options[name] > 0:  # 0 makes a socket that never waits, so every call would fail
            seen, remedy = f"{name}={options[name]:g} in redis_url", "name seconds above 0, or leave it out"
            raise OptionError(seen, remedy=remedy)
    if url.startswith(SENTINEL):
        sentinel_parts(url)
    return url


def sentinel_parts(url: str) -> tuple[list[tuple[str, int]], str, dict[str, Any]]:
    """Return the hosts, the service and the client's options of a redis+sentinel URL; `OptionError` for another form."""
    parts = urlsplit(url)
    login, _, addresses = parts.netloc.rpartition("@")
    service, _, db = parts.path.strip("/").partition("/")
    full = (address if ":" in address else f"{address}:{_SENTINEL_PORT}" for address in addresses.split(",") if address)
    hosts = [(host, port) for host, _, port in (address.rpartition(":") for address in full)]
    are_hosts = hosts and all(port.isdecimal() and int(port) < 1 << 16 for _, port in hosts)
    if not are_hosts or not service or not (db or "0").isdecimal():
        raise OptionError("redis_url does not name a service of Sentinels", remedy=_SENTINEL_URL)
    options: dict[str, Any] = dict(redis.connection.parse_url(f"redis://?{parts.query}")) | {"db": int(db or 0)}  # type: ignore[no-untyped-call]
    username, _, password = login.partition(":")
    options |= {"username": unquote(username)} if username else {}
    options |= {"password": unquote(password)} if password else {}
    return [(host, int(port)) for host, port in hosts], service, options


def _is_readable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        if not _is_whole(parts):
            return False
        if url.startswith(SENTINEL):
            pool = redis.ConnectionPool.from_url(f"redis://?{_OF_SENTINEL.sub('', parts.query)}")
        else:
            pool = redis.BlockingConnectionPool.from_url(url)
            (parts.hostname or "").encode("idna")
        pool.make_connection()  # reads every option, but does not connect
    except (ValueError, TypeError, AttributeError, RedisError):
        return False
    return _OBJECTS.isdisjoint(pool.connection_kwargs)


def _is_whole(parts: SplitResult) -> bool:
    """Return False if a character of the password that is not percent-encoded has cut the URL."""
    if parts.fragment or "\0" in unquote(parts.netloc + parts.path):
        return False
    if any(option and "=" not in option for option in parts.query.split("&")):
        return False
    if parts.scheme in {"redis", "rediss"}:
        return parts.path.strip("/").isdecimal() or not parts.path.strip("/")
    return not (parts.netloc and "@" in parts.path)


class _Sentinel(Sentinel):
    def discover_master(self, service_name: str) -> tuple[str, int]:
        with suppress(*_UNREADABLE):
            return super().discover_master(service_name)  # type: ignore[no-any-return, no-untyped-call]
        raise ConnectionLost(_NO_SENTINEL)  # without the cause, which quotes the answer


class _AsyncSentinel(AsyncSentinel):
    async def discover_master(self, service_name: str) -> tuple[str, int]:
        with suppress(*_UNREADABLE):
            return await super().discover_master(service_name)  # type: ignore[no-any-return]
        raise ConnectionLost(_NO_SENTINEL)


def sync_client(url: str, timeout: timedelta, connect: timedelta) -> SyncClient:
    """Make a client, which connects at its first command. It repeats nothing: `effects` repeats what is safe."""
    return cast("SyncClient", _client(redis, _Sentinel, Retry, url, timeout, connect))


def async_client(url: str, timeout: timedelta, connect: timedelta) -> AsyncClient:
    """Make a client for the running event loop, as `sync_client` does."""
    return cast("AsyncClient", _client(redis.asyncio, _AsyncSentinel, AsyncRetry, url, timeout, connect))


def _client(package: Any, sentinel: Any, retry: Any, url: str, timeout: timedelta, connect: timedelta) -> Any:
    if url.startswith(SENTINEL):
        return _master(sentinel, retry(NoBackoff(), 0), url, timeout, connect)
    # callers wait up to `timeout` for a free connection, where redis-py's usual pool raises at once
    waiting = {"max_connections": _CONNECTIONS, "timeout": timeout.total_seconds()}
    kind = WirePool if package is redis else LanePool
    return package.Redis.from_pool(kind.from_url(url, **waiting, **_defaults(timeout, connect)))


def _defaults(timeout: timedelta, connect: timedelta) -> dict[str, Any]:
    """Return the options that apply unless the URL sets them."""
    return {
        "protocol": _PROTOCOL,
        "socket_timeout": timeout.total_seconds(),
        "socket_connect_timeout": min(connect, timeout).total_seconds(),
    }


def _master(sentinel: Any, retry: Any, url: str, timeout: timedelta, connect: timedelta) -> Any:
    hosts, service, options = sentinel_parts(url)
    connect = min(connect, timeout)
    asking = _defaults(connect, connect) | options  # to ask for the master is a part of connecting
    own = {name: options.pop(f"sentinel_{name}") for name in _LOGIN if f"sentinel_{name}" in options}
    login = own or {name: options[name] for name in _LOGIN if name in options}
    shared = login | {name: value for name, value in asking.items() if name.startswith("socket_")}
    # `retry` repeats nothing: if one Sentinel does not answer, the next one knows the master as well
    manager = sentinel(hosts, sentinel_kwargs={**shared, "retry": retry}, **_defaults(timeout, connect) | options)
    return manager.master_for(service)


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


def close(client: Any) -> None:
    """Close a client and the clients of its Sentinels, which redis-py leaves open."""
    client.close()
    for watcher in _sentinels(client):
        watcher.close()


async def aclose(client: Any) -> None:
    """Async twin of `close`."""
    await client.aclose()
    for watcher in _sentinels(client):
        await watcher.aclose()


def _sentinels(client: Any) -> list[Any]:
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    return list(manager.sentinels) if manager else []
