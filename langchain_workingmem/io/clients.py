"""Clients from URLs: the only place that knows how Redis is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

import redis
import redis.asyncio
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.sentinel import Sentinel

from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from redis.asyncio import Redis as AsyncRedis
    from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
    from redis.cluster import RedisCluster

    SyncClient = redis.Redis | RedisCluster
    AsyncClient = AsyncRedis | AsyncRedisCluster

DEFAULT_URL = "redis://localhost:6379"
_SCHEMES = ("redis://", "rediss://", "unix://", "redis+sentinel://")
_SENTINEL_PORT = 26379
# Search replies of RESP3 are maps in maps, which cost a third more to read than the lists of RESP2 (200 candidates: 957
# against 681 us with hiredis). A `protocol` in the URL wins, a borrowed client may speak either.
_PROTOCOL = 2
# More callers than connections take turns, where redis-py's usual pool raises.
_POOL: dict[str, Any] = {"protocol": _PROTOCOL, "max_connections": 64, "timeout": None}
_SENTINEL_URL = "a sentinel URL reads redis+sentinel://[user:password@]host:port,host:port/service[/db]"


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
    try:
        redis.connection.parse_url(url)  # type: ignore[no-untyped-call]
    except ValueError:
        # not `from error`, which quotes what stands behind an unescaped # or / of the password
        msg = "redis_url cannot be read: percent-encode the characters / # ? @ : in user and password, and check its options"
        raise OptionError(msg) from None
    return url


def sync_client(url: str) -> SyncClient:
    """Make a client; it connects at its first command."""
    if url.startswith("redis+sentinel://"):
        hosts, service, options = _sentinel_parts(url)
        sentinel: Any = Sentinel(hosts, sentinel_kwargs=_login(options), **options)  # type: ignore[no-untyped-call]
        return cast("SyncClient", sentinel.master_for(service))
    return redis.Redis.from_pool(redis.BlockingConnectionPool.from_url(url, **_POOL))


def async_client(url: str) -> AsyncClient:
    """Make a client for the running event loop; it connects at its first command."""
    if url.startswith("redis+sentinel://"):
        hosts, service, options = _sentinel_parts(url)
        sentinel: Any = AsyncSentinel(hosts, sentinel_kwargs=_login(options), **options)  # type: ignore[no-untyped-call]
        return cast("AsyncClient", sentinel.master_for(service))
    return redis.asyncio.Redis.from_pool(redis.asyncio.BlockingConnectionPool.from_url(url, **_POOL))


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


def _login(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in ("username", "password") if name in options}


def _sentinel_parts(url: str) -> tuple[list[tuple[str, int]], str, dict[str, Any]]:
    """Read redis+sentinel://[user:password@]host[:port],host[:port].../service[/db]."""
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
    options: dict[str, Any] = {"db": int(db or 0), "protocol": _PROTOCOL}
    if username:
        options["username"] = unquote(username)
    if password:
        options["password"] = unquote(password)
    return hosts, service, options
