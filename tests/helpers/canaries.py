"""Looks for a word in everything that is stored."""

from __future__ import annotations

from typing import Any

import redis


def keys_with(raw: redis.Redis, prefix: str, word: str) -> list[str]:
    """Return the keys whose names or values hold a word: of all types, vectors and trash included."""
    reads: dict[Any, Any] = {
        b"string": raw.get,
        b"hash": raw.hgetall,
        b"zset": lambda key: raw.zrange(key, 0, -1),
        b"set": raw.smembers,
        b"list": lambda key: raw.lrange(key, 0, -1),
        b"stream": raw.xrange,
    }
    keys = [*raw.scan_iter(f"{prefix}:*", count=10_000)]
    return sorted(key.decode() for key in keys if word in repr((key, reads[raw.type(key)](key))))
