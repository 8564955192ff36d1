"""Calls of a store at the same time."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from langgraph.store.base import BaseStore

from tests.helpers.faces import AsyncFace

Call = tuple[Any, ...]  # the name of a method, and its arguments


def at_once(store: BaseStore, calls: list[Call]) -> list[Any]:
    """Do calls from several threads, or of the async twins at once, and return the replies in order."""
    found: Any = store
    if isinstance(found, AsyncFace):

        async def gathered() -> list[Any]:
            return await asyncio.gather(*(getattr(found._target, f"a{call[0]}")(*call[1:]) for call in calls))

        return found._runner.run(gathered())
    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(lambda call: getattr(found, call[0])(*call[1:]), calls))
