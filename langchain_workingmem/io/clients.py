"""Clients from URLs: the only place that knows how Redis is reached."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from datetime import timedelta

    from redis.asyncio import Redis as AsyncRedis
    from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
    from redis.cluster import RedisCluster

    SyncClient = redis.Redis | RedisCluster
    AsyncClient = AsyncRedis | AsyncRedisCluster

DEFAULT_URL = "redis://localhost:6379"
_SCHEMES = ("redis://", "rediss://", "unix://", "redis+sentinel://")
_SENTINEL_PORT = 26379
_LOGIN = ("username", "password")
# Search replies of RESP3 are maps in maps, which cost a third more to read than the lists of RESP2 (200 candidates: 957
# against 681 us with hiredis). A `protocol` in the URL wins, a borrowed client may speak either.
_PROTOCOL = 2
# More callers than connections take turns, where redis-py's usual pool raises.
_TURNS: dict[str, Any] = {"max_connections": 64, "timeout": None}
_SENTINEL_URL = "a sentinel URL reads redis+sentinel://[user:password@]host:port,host:port/service[/db][?option=value]"


def check_url(url: str) -> str:
    """Return a URL that can be connected to; the error does not repeat it, because it may hold a password."""
    if not isinstance(url, str):
        msg = f"redis_url is of type {type(url).__name__}: pass a str, or a client as client=... or async_client=..."
        raise OptionError(msg)
    if not url.startswith(_SCHEMES):
        scheme = url.split("://", 1)[0] if "://" in url else "none"
        msg = f"redis_url has the scheme {scheme!r}: use one of {', '.join(_SCHEMES)}"
        raise OptionError(msg)
    if url.startswith("redis+sentinel://"):
        _sentinel_parts(url)
        return url
    _options(url)
    return url


def _options(url: str) -> dict[str, Any]:
    try:
        return dict(redis.connection.parse_url(url))  # type: ignore[no-untyped-call]
    except ValueError:
        # not `from error`, which quotes what stands behind an unescaped # or / of the password
        msg = "redis_url cannot be read: percent-encode the characters / # ? @ : in user and password, and check its options"
        raise OptionError(msg) from None


def sync_client(url: str, timeout: timedelta, connect: timedelta) -> SyncClient:
    """Make a client; it connects at its first command, and repeats nothing: `plans.effects` does, where that is safe."""
    if url.startswith("redis+sentinel://"):
        return cast("SyncClient", _master(Sentinel, Retry(NoBackoff(), 0), url, timeout, connect))
    return redis.Redis.from_pool(redis.BlockingConnectionPool.from_url(url, **_TURNS, **_defaults(timeout, connect)))


def async_client(url: str, timeout: timedelta, connect: timedelta) -> AsyncClient:
    """Make a client for the running event loop, like `sync_client`."""
    if url.startswith("redis+sentinel://"):
        return cast("AsyncClient", _master(AsyncSentinel, AsyncRetry(NoBackoff(), 0), url, timeout, connect))
    return redis.asyncio.Redis.from_pool(
        redis.asyncio.BlockingConnectionPool.from_url(url, **_TURNS, **_defaults(timeout, connect))
    )


def _defaults(timeout: timedelta, connect: timedelta) -> dict[str, Any]:
    """What holds where the URL says nothing else. Clients made from URLs retry nothing, in any redis-py since 6.3."""
    return {
        "protocol": _PROTOCOL,
        "socket_timeout": timeout.total_seconds(),
        "socket_connect_timeout": min(connect, timeout).total_seconds(),
    }


def _master(sentinel: Any, retry: Any, url: str, timeout: timedelta, connect: timedelta) -> Any:
    hosts, service, options = _sentinel_parts(url)
    asking = _defaults(connect, connect) | options  # where the master is: a part of connecting
    shared = {name: value for name, value in asking.items() if name in _LOGIN or name.startswith("socket_")}
    options = _defaults(timeout, connect) | options
    # a Sentinel that does not answer is not asked again: the next one knows the master as well
    return sentinel(hosts, sentinel_kwargs={**shared, "retry": retry}, **options).master_for(service)


def reach(client: Any) -> None:
    """Make sure that the next command finds an open connection: whatever fails here has sent nothing."""
    pool = client.connection_pool
    pool.release(pool.get_connection())


async def areach(client: Any) -> None:
    """Async twin of `reach`."""
    # a loop that has not run for a while has not seen yet what the server has closed: let it look, and act on it
    for _ in range(2):
        await asyncio.sleep(0)
    pool = client.connection_pool
    await pool.release(await pool.get_connection())


def close(client: Any) -> None:
    """Close a client, and those that its Sentinel asks for the master, which nobody else closes."""
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


def _sentinel_parts(url: str) -> tuple[list[tuple[str, int]], str, dict[str, Any]]:
    """Read redis+sentinel://[user:password@]host[:port],host[:port].../service[/db][?option=value]."""
    parts = urlsplit(url)
    login, _, places = parts.netloc.rpartition("@")
    service, _, db = parts.path.strip("/").partition("/")
    hosts: list[tuple[str, int]] = []
    for place in filter(None, places.split(",")):
        host, _, port = place.rpartition(":") if ":" in place else (place, "", str(_SENTINEL_PORT))
        if not port.isdecimal():
            raise OptionError(_SENTINEL_URL)
        hosts.append((host, int(port)))
    if not hosts or not service or not (db or "0").isdecimal():
        raise OptionError(_SENTINEL_URL)
    username, _, password = login.partition(":")
    options: dict[str, Any] = _options(f"redis://?{parts.query}") | {"db": int(db or 0)}
    if username:
        options["username"] = unquote(username)
    if password:
        options["password"] = unquote(password)
    return hosts, service, options
