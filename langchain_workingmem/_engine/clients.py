"""Makes and closes the clients for URLs of Redis."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost
from redis.retry import Retry
from redis.sentinel import Sentinel

from langchain_workingmem._engine.urls import SENTINEL, sentinel_parts

if TYPE_CHECKING:
    from datetime import timedelta

    from redis.asyncio import Redis as AsyncRedis
    from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
    from redis.cluster import RedisCluster

    SyncClient = redis.Redis | RedisCluster
    AsyncClient = AsyncRedis | AsyncRedisCluster

_LOGIN = ("username", "password")
# RESP3 replies of Search are nested maps and take 40 % longer to read than the lists of RESP2 (200 candidates: 957 against
# 681 us with hiredis). A `protocol` in the URL wins; a borrowed client may use either.
_PROTOCOL = 2
_CONNECTIONS = 64
# redis-py raises these for a Sentinel's answer in an unexpected form.
_UNREADABLE = (AttributeError, IndexError, KeyError, TypeError, ValueError)
_NO_SENTINEL = "the server is not a Sentinel: its answer cannot be read"


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
    if url.startswith(SENTINEL):
        return cast("SyncClient", _master(_Sentinel, Retry(NoBackoff(), 0), url, timeout, connect))
    return redis.Redis.from_pool(redis.BlockingConnectionPool.from_url(url, **_pool_options(timeout, connect)))


def async_client(url: str, timeout: timedelta, connect: timedelta) -> AsyncClient:
    """Make a client for the running event loop, as `sync_client` does."""
    if url.startswith(SENTINEL):
        return cast("AsyncClient", _master(_AsyncSentinel, AsyncRetry(NoBackoff(), 0), url, timeout, connect))
    return redis.asyncio.Redis.from_pool(
        redis.asyncio.BlockingConnectionPool.from_url(url, **_pool_options(timeout, connect))
    )


def _pool_options(timeout: timedelta, connect: timedelta) -> dict[str, Any]:
    """Let callers wait up to `timeout` for a free connection, where redis-py's usual pool raises at once."""
    return {"max_connections": _CONNECTIONS, "timeout": timeout.total_seconds(), **_defaults(timeout, connect)}


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
    shared = {name: value for name, value in asking.items() if name in _LOGIN or name.startswith("socket_")}
    # `retry` repeats nothing: if one Sentinel does not answer, the next one knows the master as well
    manager = sentinel(hosts, sentinel_kwargs={**shared, "retry": retry}, **_defaults(timeout, connect) | options)
    return manager.master_for(service)


def reach(client: Any) -> None:
    """Check that the pool has an open connection for the next command. A failure here has sent nothing."""
    pool = client.connection_pool
    pool.release(pool.get_connection())


async def areach(client: Any) -> None:
    """Async twin of `reach`."""
    # let the event loop process pending disconnects first
    for _ in range(2):
        await asyncio.sleep(0)
    pool = client.connection_pool
    await pool.release(await pool.get_connection())


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
