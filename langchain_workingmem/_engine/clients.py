"""Checks URLs of Redis, and makes the clients and runners for them.

Errors quote only the scheme of a URL: if the URL is not percent-encoded, any other piece may be a part of the password.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import redis
import redis.asyncio
from redis.exceptions import RedisError

from langchain_workingmem._engine.run_async import AsyncRunner
from langchain_workingmem._engine.run_sync import Runner
from langchain_workingmem.checks import check_time
from langchain_workingmem.errors import OptionError
from langchain_workingmem.options import CONNECT_TIMEOUT, TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from urllib.parse import SplitResult

    from langchain_workingmem._engine.exchange import AsyncClient, SyncClient

T = TypeVar("T")
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


def sync_client_of(url: str, timeout: timedelta, connect: timedelta) -> SyncClient:
    """Make a client, which connects at its first command. It repeats nothing: plans repeat what is safe."""
    return redis.Redis.from_pool(redis.BlockingConnectionPool.from_url(url, **_options(timeout, connect)))


def async_client_of(url: str, timeout: timedelta, connect: timedelta) -> AsyncClient:
    """Make a client for the running event loop, as `sync_client_of` does."""
    return redis.asyncio.Redis.from_pool(
        redis.asyncio.BlockingConnectionPool.from_url(url, **_options(timeout, connect))
    )


def _options(timeout: timedelta, connect: timedelta) -> dict[str, Any]:
    """Return the options that apply unless the URL sets them."""
    return {
        "max_connections": _CONNECTIONS,
        "timeout": timeout.total_seconds(),  # of a caller for a free connection
        "protocol": _PROTOCOL,
        "socket_timeout": timeout.total_seconds(),
        "socket_connect_timeout": min(connect, timeout).total_seconds(),
    }


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
    given = client is not None or async_client is not None
    if given and (redis_url is not None or timeout != TIMEOUT or connect_timeout != CONNECT_TIMEOUT):
        raise OptionError(
            "redis_url, timeout or connect_timeout beside client or async_client",
            remedy="pass one or the other, a client has its own timeouts",
        )
    url = None if given else check_url((os.environ.get("REDIS_URL") or DEFAULT_URL) if redis_url is None else redis_url)

    def connect(make: Callable[[str, timedelta, timedelta], T], calls: str, missing: str) -> T:
        if url is None:
            remedy = f"pass {missing}=... as well, or a redis_url instead of clients"
            raise OptionError(f"no client for {calls} calls", remedy=remedy)
        return make(url, timeout, connect_timeout)

    # not partial, whose repr shows the URL with its password
    return (
        Runner(lambda: connect(sync_client_of, "sync", "client"), client),
        AsyncRunner(lambda: connect(async_client_of, "async", "async_client"), async_client),
    )
