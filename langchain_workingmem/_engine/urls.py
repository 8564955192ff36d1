"""Checks URLs of Redis and reads those of Sentinels.

Errors quote only the scheme of a URL: if the URL is not percent-encoded, any other piece may be a part of the password.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import redis
from redis.exceptions import RedisError

from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from urllib.parse import SplitResult

DEFAULT_URL = "redis://localhost:6379"
SENTINEL = "redis+sentinel://"
_SCHEMES = ("redis://", "rediss://", "unix://", SENTINEL)
_SENTINEL_PORT = 26379
_SENTINEL_URL = "a sentinel URL reads redis+sentinel://[user:password@]host:port,host:port/service[/db][?option=value]"
_UNREADABLE = "percent-encode the characters / # ? @ : in user and password, and check its options"
# These options need objects: text from a URL fails at the first connection.
_OBJECTS = {"credential_provider", "redis_connect_func", "retry_on_error"}


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
        raise OptionError("redis_url cannot be read", remedy=_UNREADABLE)
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
            pool = redis.ConnectionPool.from_url(f"redis://?{parts.query}")
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
