"""The runs of plans that callbacks and LangSmith see."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

from langchain_workingmem._engine.plan import Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workingmem._engine.plan import Plan, T

# What `telemetry.instrument` puts around each plan that a memory runs: the plan, its name, and the name of the memory.
watch: Callable[[Plan[Any], str, str], Plan[Any]] | None = None
# What `telemetry` is told of the results of the runs inside a plan
found: ContextVar[Callable[[Any], object] | None] = ContextVar("found", default=None)
_open: ContextVar[Any] = ContextVar("open", default=None)  # LangChain's manager of the innermost run that is open


def traced(
    kind: Literal["chain", "retriever"], name: str, input: object, plan: Plan[T], output: Callable[[T], object]
) -> Plan[T]:
    """Show a plan as a run to callbacks and LangSmith; return the plan itself if nobody listens."""
    if watch is not None:
        plan = _noted(plan)
    if _open.get() is None and not _is_in_a_run() and not _is_traced():
        return plan  # the usual case outside of a chain; configuring a manager takes time
    return _shown(kind, name, input, plan, output)


def child() -> Any:
    """Return callbacks for runs inside the innermost run that is open; None without a listener."""
    run = _open.get()
    return None if run is None else run.get_child()


def _noted(plan: Plan[T]) -> Plan[T]:
    result = yield from plan
    if note := found.get():
        note(result)
    return result


def _shown(kind: str, name: str, input: object, plan: Plan[T], output: Callable[[T], object]) -> Plan[T]:
    def begin(manager: str) -> Any:
        found = _manager(manager) if outer is None else outer.get_child()
        return found.handlers and getattr(found, f"on_{kind}_start")({"name": name}, input, name=name)

    async def abegin() -> Any:
        run = begin("AsyncCallbackManager")
        return run and await run

    outer = _open.get()
    run = yield from Call(partial(begin, "CallbackManager"), abegin)
    if run:
        _open.set(run)
    try:
        result = yield from plan
    except Exception as error:
        if run:
            yield from _tell(run, f"on_{kind}_error", error)
        raise
    finally:
        _open.set(outer)
    if run:
        yield from _tell(run, f"on_{kind}_end", output(result))
    return result


def _tell(run: Any, method: str, value: object) -> Call[None]:
    call = partial(getattr(run, method), value)
    return Call(call, call)  # a run that an async caller has begun has async methods


def _manager(kind: str) -> Any:
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
