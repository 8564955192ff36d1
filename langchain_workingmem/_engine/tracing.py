"""The runs of plans that callbacks and LangSmith receive."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

from langchain_workingmem._engine.effects import Effect, Plan, T

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class Span:
    """A run that callbacks and LangSmith see."""

    kind: Literal["chain", "retriever"]
    name: str
    input: Any
    output: Any = None
    error: Exception | None = None
    run: Any = None  # LangChain's manager of the run, once it has begun; None without a listener
    watcher: Callable[[Any], object] | None = None  # of telemetry: is given the result


@dataclass(frozen=True, slots=True)
class Report(Effect[None]):
    """Report a run to callbacks and LangSmith: first that it begins, then that it has ended."""

    span: Span


# What `telemetry.instrument` puts around each plan that a memory runs: the plan, its name, and the name of the memory.
watch: Callable[[Plan[Any], str, str], Plan[Any]] | None = None


class Trace:
    """The runs inside one plan: each is a child of the run around it, the outermost of the run that calls us."""

    def __init__(self) -> None:
        self._open: list[Any] = []
        self._has_listener = True

    def report(self, span: Span) -> None:
        """Begin a run, or end it."""
        call = self._call(span, "CallbackManager")
        if call is not None:
            self._note(span, call())

    async def areport(self, span: Span) -> None:
        """Async twin of `report`."""
        call = self._call(span, "AsyncCallbackManager")
        if call is not None:
            self._note(span, await call())

    def child(self) -> Any:
        """Return callbacks for runs inside the innermost open run; None without a listener."""
        return self._open[-1].get_child() if self._open else None

    def _call(self, span: Span, kind: str) -> Callable[[], Any] | None:
        """Return the call that begins a run or ends it; None without a listener."""
        if span.run is not None:
            ended, value = ("end", span.output) if span.error is None else ("error", span.error)
            return partial(getattr(span.run, f"on_{span.kind}_{ended}"), value)
        manager = self._manager(kind)
        if manager is None or not manager.handlers:
            return None
        return partial(getattr(manager, f"on_{span.kind}_start"), {"name": span.name}, span.input, name=span.name)

    def _note(self, span: Span, run: Any) -> None:
        if span.run is None:
            span.run = run
            self._open.append(run)
        else:
            self._open.remove(span.run)

    def _manager(self, kind: str) -> Any:
        if self._open:
            return self._open[-1].get_child()
        if self._has_listener:
            self._has_listener = _is_in_a_run() or _is_traced()
        if not self._has_listener:
            return None  # the usual case outside of a chain; configuring a manager takes time
        from langchain_core import callbacks
        from langchain_core.runnables.config import ensure_config

        config = ensure_config()
        return getattr(callbacks, kind).configure(
            inheritable_callbacks=config.get("callbacks"),
            inheritable_tags=config.get("tags"),
            inheritable_metadata=config.get("metadata"),
        )


# What is not imported has not been used: neither is imported only to learn that, which takes 0.3 s for langsmith.
_RUNS, _TRACING = "langchain_core.runnables.config", "langsmith.run_trees"
_ASKED = ("LANGSMITH_TRACING_V2", "LANGCHAIN_TRACING_V2", "LANGSMITH_TRACING", "LANGCHAIN_TRACING")


def _is_in_a_run() -> bool:
    """Tell whether LangChain calls us in a run."""
    runs = getattr(sys.modules.get(_RUNS), "var_child_runnable_config", None)  # None while a thread imports it
    return runs is not None and runs.get() is not None


def _is_traced() -> bool:
    """Tell whether LangSmith traces, as a program asks for by its functions or by the environment."""
    if _TRACING not in sys.modules and not _is_asked():
        return False
    from langsmith.utils import tracing_is_enabled

    return bool(tracing_is_enabled())


@cache  # as LangSmith reads the environment once
def _is_asked() -> bool:
    return any(map(os.environ.get, _ASKED))


def traced(
    kind: Literal["chain", "retriever"], name: str, input: Any, plan: Plan[T], output: Callable[[T], Any]
) -> Plan[T]:
    """Show a plan as a run to callbacks and LangSmith. Without a listener, `output` is not called."""
    span = Span(kind, name, input)
    yield Report(span)
    try:
        result = yield from plan
    except Exception as error:
        if span.run is not None:
            span.error = error
            yield Report(span)
        raise
    if span.watcher is not None:
        span.watcher(result)
    if span.run is not None:
        span.output = output(result)
        yield Report(span)
    return result
