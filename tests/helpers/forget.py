"""Leave a shared server as it was."""

from __future__ import annotations

from typing import Any

import redis


def forget(url: str, prefix: str) -> None:
    """Delete all keys and indexes of a prefix."""
    with redis.Redis.from_url(url) as client:
        bare: Any = client
        for index in bare.execute_command("FT._LIST"):
            if index.startswith(prefix.encode()):
                bare.execute_command("FT.DROPINDEX", index)
        if keys := list(client.scan_iter(f"{prefix}*", count=1000)):
            client.unlink(*keys)
