"""Makes the two runners of a `Memory` or a store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from langchain_workingmem._engine import clients
from langchain_workingmem._engine.clients import DEFAULT_URL, check_url
from langchain_workingmem._engine.runners import AsyncRunner, Runner
from langchain_workingmem.checks import check_time
from langchain_workingmem.errors import OptionError
from langchain_workingmem.options import CONNECT_TIMEOUT, TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from langchain_workingmem._engine.clients import AsyncClient, SyncClient
    from langchain_workingmem._engine.embedder import Embedder

T = TypeVar("T")


def runners(
    redis_url: str | None,
    client: SyncClient | None,
    async_client: AsyncClient | None,
    timeout: timedelta,
    connect_timeout: timedelta,
    embedder: Embedder,
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
        Runner(lambda: connect(clients.sync_client, "sync", "client"), embedder, borrowed=client),
        AsyncRunner(lambda: connect(clients.async_client, "async", "async_client"), embedder, borrowed=async_client),
    )
