"""The state of a `Memory` that its parts and faces share, and the two ways to run a plan."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from langchain_workingmem._engine import calls
from langchain_workingmem._engine.plan import Give
from langchain_workingmem._redis.indexes import with_layout
from langchain_workingmem.errors import RedisConnectionError, RedisReplyError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._engine.run import AsyncRunner, Runner
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.options import OnError

_log = logging.getLogger("langchain_workingmem")
T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The state, runners and options that the parts and faces of a `Memory` share."""

    state: MemoryState
    runner: Runner
    async_runner: AsyncRunner
    new_id: Callable[[], str]
    on_error: OnError

    def run(self, plan: Plan[T], name: str = "") -> T:
        """Run a plan now; telemetry calls it by `name`, else by the name of its function."""
        if calls.watch is not None or not self.state.layout_known:
            plan = self.ready(plan, name)
        return self.runner.run(plan)

    async def arun(self, plan: Plan[T], name: str = "") -> T:
        """Run a plan in the running event loop."""
        if calls.watch is not None or not self.state.layout_known:
            plan = self.ready(plan, name)
        return await self.async_runner.run(plan)

    def ready(self, plan: Plan[T], name: str) -> Plan[T]:
        """Let telemetry see a plan by `name`, and check the layout first where that was not done."""
        if calls.watch is not None:
            plan = calls.watch(plan, name, self.state.keys.prefix)
        return plan if self.state.layout_known else with_layout(self.state, plan)

    def stream(self, plan: Plan[None]) -> Iterator[Any]:
        """Run a long operation, while the caller takes what it gives."""
        try:
            while (records := self.run(_given(plan), getattr(plan, "__name__", ""))) is not None:
                yield from records
        finally:
            plan.close()

    async def astream(self, plan: Plan[None]) -> AsyncIterator[Any]:
        """Async twin of `stream`."""
        try:
            while (records := await self.arun(_given(plan), getattr(plan, "__name__", ""))) is not None:
                for record in records:
                    yield record
        finally:
            plan.close()

    def with_breaker(self, plan: Plan[T]) -> Plan[T]:
        """Run a plan behind the circuit breaker, which raises at once while it is open; with on_error="raise" without it."""
        return plan if self.on_error == "raise" else self.runner.link.guard(plan)

    def with_fallback(self, plan: Plan[T], fallback: T, note: str) -> Plan[T]:
        """Run a plan with the breaker; with on_error="log", log an error of Redis, and return the fallback."""
        try:
            return (yield from self.with_breaker(plan))
        except (RedisConnectionError, RedisReplyError) as error:
            if self.on_error == "raise":
                raise
            _log.warning("%s: %s", note, error)
            return fallback


def _given(plan: Plan[None]) -> Plan[Sequence[Any] | None]:
    """Run a plan up to what it gives next, and return that; None at its end."""
    with suppress(StopIteration):
        effect = next(plan)
        while not isinstance(effect, Give):
            try:
                result = yield effect
            except Exception as error:  # noqa: BLE001 - raised in the plan
                effect = plan.throw(error)
            else:
                effect = plan.send(result)
        return effect.records
    return None


class HasCore(Protocol):
    """A memory, or a part of one."""

    _core: Core


class Operations:
    """The operations of one part of a memory."""

    def __init__(self, core: Core) -> None:
        self._core = core


S = TypeVar("S", bound=HasCore)


def operation(plan: Callable[Concatenate[S, P], Plan[T]]) -> Callable[Concatenate[S, P], T]:
    """Make a method of a memory from one that returns a plan: it runs the plan, and returns its result."""
    returned: str = plan.__annotations__["return"]
    plan.__annotations__["return"] = returned.removeprefix("Plan[").removesuffix("]")  # for `help`
    name = plan.__qualname__

    @wraps(plan)
    def run(self: S, /, *args: P.args, **options: P.kwargs) -> T:
        return self._core.run(plan(self, *args, **options), name)

    return run


def plan_of(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Plan[T]]:
    """Return what makes the plan of a method that `operation` has made, for a plan that has it as a part."""
    plan: Callable[Concatenate[S, P], Plan[T]] = method.__wrapped__  # type: ignore[attr-defined]
    return plan


def twin(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[object, None, T]]:
    """Make the async twin of a method that `operation` has made."""
    plan = plan_of(method)
    name = plan.__qualname__

    @wraps(plan)
    async def run(self: S, /, *args: P.args, **options: P.kwargs) -> T:
        return await self._core.arun(plan(self, *args, **options), name)

    run.__name__, run.__doc__ = f"a{plan.__name__}", f"Async twin of `{plan.__name__}`."
    run.__qualname__ = plan.__qualname__.removesuffix(plan.__name__) + run.__name__
    return run


class SetUpOnEntry:
    """A context manager that sets up on entry, and closes on exit or if setting up fails."""

    setup: Any  # methods, and their async twins
    asetup: Any
    close: Any
    aclose: Any

    def __enter__(self) -> Self:
        try:
            self.setup()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            await self.asetup()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
