"""Runs that callbacks and LangSmith see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import AsyncCallbackManager, CallbackManager
from langchain_core.runnables.config import ensure_config, var_child_runnable_config
from langsmith.utils import tracing_is_enabled

if TYPE_CHECKING:
    from langchain_workingmem._engine.effects import Enter, Leave


class Trace:
    """The runs inside one plan: each is a child of the one around it, the outermost of whatever calls us."""

    def __init__(self) -> None:
        self._open: list[Any] = []
        self._is_seen = True

    def enter(self, effect: Enter) -> Any:
        """Begin a run; None when nobody looks."""
        manager = self._manager(CallbackManager)
        if manager is None or not manager.handlers:
            return None
        start = manager.on_retriever_start if effect.kind == "retriever" else manager.on_chain_start
        self._open.append(start({"name": effect.name}, effect.input, name=effect.name))
        return self._open[-1]

    def leave(self, effect: Leave) -> None:
        """End a run."""
        if effect.run is not None:
            self._open.remove(effect.run)
            end, value = _end(effect)
            end(value)

    async def aenter(self, effect: Enter) -> Any:
        """Async twin of `enter`."""
        manager = self._manager(AsyncCallbackManager)
        if manager is None or not manager.handlers:
            return None
        start = manager.on_retriever_start if effect.kind == "retriever" else manager.on_chain_start
        self._open.append(await start({"name": effect.name}, effect.input, name=effect.name))
        return self._open[-1]

    async def aleave(self, effect: Leave) -> None:
        """Async twin of `leave`."""
        if effect.run is not None:
            self._open.remove(effect.run)
            end, value = _end(effect)
            await end(value)

    def _manager(self, kind: Any) -> Any:
        if self._open:
            return self._open[-1].get_child()
        if self._is_seen:
            self._is_seen = var_child_runnable_config.get() is not None or bool(tracing_is_enabled())
        if not self._is_seen:
            return None  # the usual case outside of a chain, and configuring a manager is not free
        config = ensure_config()
        return kind.configure(
            inheritable_callbacks=config.get("callbacks"),
            inheritable_tags=config.get("tags"),
            inheritable_metadata=config.get("metadata"),
        )


def _end(effect: Leave) -> tuple[Any, Any]:
    run = effect.run
    is_retriever = hasattr(run, "on_retriever_end")
    if effect.error is not None:
        return (run.on_retriever_error if is_retriever else run.on_chain_error), effect.error
    return (run.on_retriever_end if is_retriever else run.on_chain_end), effect.output
