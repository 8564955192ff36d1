"""The two faces of a memory: which methods have a twin, and the async face called like the sync one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any

from langchain_workingmem import Memory
from langchain_workingmem._engine.run import AsyncRunner, Runner
from langchain_workingmem.store import RedisMemoryStore


def twins(kind: object) -> set[str]:
    """Return the public methods that have an async twin."""
    return {name for name in dir(kind) if name[0] != "_" and callable(getattr(kind, f"a{name}", None))}


def public_methods(memory: Memory) -> set[str]:
    """Return the names of the methods that have a twin, as the list of operations has them."""
    parts = {name: type(getattr(memory, name)) for name in dir(memory) if name[0] != "_"}
    return twins(memory) | {f"{part}.{name}" for part, kind in parts.items() for name in twins(kind)}


def runners_of(target: Memory | RedisMemoryStore) -> tuple[Runner, AsyncRunner]:
    """Return what runs the plans of a memory or a store."""
    if isinstance(target, Memory):
        return target._core.runner, target._core.async_runner
    return target._runner, target._async_runner


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
        return AsyncFace(value, self._runner) if twins(type(value)) else value
