"""Clients from URLs: the only place that knows how Redis is reached."""

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
# Search replies of RESP3 are maps in maps, which cost a third more to read than the lists of RESP2 (200 candidates: 957
# against 681 us with hiredis). A `protocol` in the URL wins, a borrowed client may speak either.
_PROTOCOL = 2
_CONNECTIONS = 64
# What redis-py raises about answers of a Sentinel that have another form.
_UNREADABLE = (AttributeError, IndexError, KeyError, TypeError, ValueError)
_NO_SENTINEL = "what answers for a Sentinel is none: its answer cannot be read"


class _Sentinel(Sentinel):
    def discover_master(self, service_name: str) -> tuple[str, int]:
        with suppress(*_UNREADABLE):
            return super().discover_master(service_name)  # type: ignore[no-any-return, no-untyped-call]
        raise ConnectionLost(_NO_SENTINEL)  # not from the error, which quotes the answer


class _AsyncSentinel(AsyncSentinel):
    async def discover_master(self, service_name: str) -> tuple[str, int]:
        with suppress(*_UNREADABLE):
            return await super().discover_master(service_name)  # type: ignore[no-any-return]
        raise ConnectionLost(_NO_SENTINEL)


def sync_client(url: str, timeout: timedelta, connect: timedelta) -> SyncClient:
    """Make a client; it connects at its first command, and repeats nothing: `plans.effects` does, where that is safe."""
    if url.startswith(SENTINEL):
        return cast("SyncClient", _master(_Sentinel, Retry(NoBackoff(), 0), url, timeout, connect))
    return redis.Redis.from_pool(redis.BlockingConnectionPool.from_url(url, **_turns(timeout, connect)))


def async_client(url: str, timeout: timedelta, connect: timedelta) -> AsyncClient:
    """Make a client for the running event loop, like `sync_client`."""
    if url.startswith(SENTINEL):
        return cast("AsyncClient", _master(_AsyncSentinel, AsyncRetry(NoBackoff(), 0), url, timeout, connect))
    return redis.asyncio.Redis.from_pool(redis.asyncio.BlockingConnectionPool.from_url(url, **_turns(timeout, connect)))


def _turns(timeout: timedelta, connect: timedelta) -> dict[str, Any]:
    """Let more callers than connections take turns, where redis-py's usual pool raises; but not wait without end."""
    return {"max_connections": _CONNECTIONS, "timeout": timeout.total_seconds(), **_defaults(timeout, connect)}


def _defaults(timeout: timedelta, connect: timedelta) -> dict[str, Any]:
    """What holds where the URL says nothing else. Clients made from URLs retry nothing."""
    return {
        "protocol": _PROTOCOL,
        "socket_timeout": timeout.total_seconds(),
        "socket_connect_timeout": min(connect, timeout).total_seconds(),
    }


def _master(sentinel: Any, retry: Any, url: str, timeout: timedelta, connect: timedelta) -> Any:
    hosts, service, options = sentinel_parts(url)
    connect = min(connect, timeout)
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
