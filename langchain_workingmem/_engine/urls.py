"""URLs of Redis: which ones can be connected to.

No error here repeats a piece of a URL but its scheme. In a URL that was not percent-encoded, any other piece may come from
the password.
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
# A URL can only hold text, which fails at the first connection where redis-py wants these.
_OBJECTS = {"credential_provider", "redis_connect_func", "retry_on_error"}


def check_url(url: str) -> str:
    """Return a URL that can be connected to; `OptionError` says what is wrong with it, and repeats nothing of it."""
    if not isinstance(url, str):
        raise OptionError(
            f"redis_url is of type {type(url).__name__}",
            remedy="pass a str, or a client as client=... or async_client=...",
        )
    if not url.startswith(_SCHEMES):
        scheme = re.match(r"([a-z][a-z+.-]{0,20})://", url, re.IGNORECASE)
        seen = repr(scheme[1]) if scheme else "none"
        raise OptionError(f"redis_url has the scheme {seen}", remedy=f"use one of {', '.join(_SCHEMES)}")
    if not _is_readable(url):  # asked, not caught here: errors of parsers quote what they cannot read
        raise OptionError("redis_url cannot be read", remedy=_UNREADABLE)
    if url.startswith(SENTINEL) and _sentinel_places(urlsplit(url)) is None:
        raise OptionError("redis_url does not name a service of Sentinels", remedy=_SENTINEL_URL)
    return url


def sentinel_parts(url: str) -> tuple[list[tuple[str, int]], str, dict[str, Any]]:
    """Read a checked redis+sentinel://[user:password@]host[:port],host[:port].../service[/db][?option=value]."""
    parts = urlsplit(url)
    places = _sentinel_places(parts)
    if places is None:
        raise OptionError("redis_url does not name a service of Sentinels", remedy=_SENTINEL_URL)
    hosts, service, db = places
    options: dict[str, Any] = dict(redis.connection.parse_url(f"redis://?{parts.query}")) | {"db": db}  # type: ignore[no-untyped-call]
    username, _, password = parts.netloc.rpartition("@")[0].partition(":")
    options |= {"username": unquote(username)} if username else {}
    options |= {"password": unquote(password)} if password else {}
    return hosts, service, options


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
        pool.make_connection()  # connects to nothing, and reads every option
    except (ValueError, TypeError, AttributeError, RedisError):
        return False
    return _OBJECTS.isdisjoint(pool.connection_kwargs)


def _is_whole(parts: SplitResult) -> bool:
    """Tell whether a URL can be what its author meant, or was cut by a character of the password."""
    if parts.fragment or "\0" in unquote(parts.netloc + parts.path):
        return False
    if any(option and "=" not in option for option in parts.query.split("&")):
        return False
    if parts.scheme in {"redis", "rediss"}:
        return parts.path.strip("/").isdecimal() or not parts.path.strip("/")
    return not (parts.netloc and "@" in parts.path)


def _sentinel_places(parts: SplitResult) -> tuple[list[tuple[str, int]], str, int] | None:
    """Read the hosts, the service and the database of a sentinel URL; None where it has another form."""
    service, _, db = parts.path.strip("/").partition("/")
    hosts: list[tuple[str, int]] = []
    for place in filter(None, parts.netloc.rpartition("@")[2].split(",")):
        host, _, port = place.rpartition(":") if ":" in place else (place, "", str(_SENTINEL_PORT))
        if not port.isdecimal() or int(port) >= 1 << 16:
            return None
        hosts.append((host, int(port)))
    if not hosts or not service or not (db or "0").isdecimal():
        return None
    return hosts, service, int(db or 0)
