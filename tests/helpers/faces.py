"""The async face of a memory or a store, in sync clothes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any


async def _all_of(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


class AsyncFace:
    """Looks like a Memory or a part of it, and answers every call with the async twin."""

    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self._target = target
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        twin = getattr(self._target, f"a{name}", None)
        if twin is not None:

            def call(*args: Any, **kwargs: Any) -> Any:
                made = twin(*args, **kwargs)
                return self._runner.run(_all_of(made) if inspect.isasyncgen(made) else made)

            return call
        value = getattr(self._target, name)
        is_part = type(value).__module__.startswith("langchain_workingmem.parts")
        return AsyncFace(value, self._runner) if is_part and not inspect.isroutine(value) else value
