"""The runs of plans that callbacks and LangSmith receive."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import AsyncCallbackManager, CallbackManager
from langchain_core.runnables.config import ensure_config, var_child_runnable_config
from langsmith.utils import tracing_is_enabled

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_workingmem._engine.effects import Enter, Leave


class Trace:
    """The runs inside one plan: each is a child of the run around it, the outermost of the run that calls us."""

    def __init__(self) -> None:
        self._open: list[Any] = []
        self._has_listener = True

    def enter(self, effect: Enter) -> Any:
        """Begin a run; None without a listener."""
        start = self._start(effect, CallbackManager)
        return start and self._opened(start())

    def leave(self, effect: Leave) -> None:
        """End a run."""
        if effect.run is not None:
            self._end(effect)()

    async def aenter(self, effect: Enter) -> Any:
        """Async twin of `enter`."""
        start = self._start(effect, AsyncCallbackManager)
        return start and self._opened(await start())

    async def aleave(self, effect: Leave) -> None:
        """Async twin of `leave`."""
        if effect.run is not None:
            await self._end(effect)()

    def child(self) -> Any:
        """Return callbacks for runs inside the innermost open run; None without a listener."""
        return self._open[-1].get_child() if self._open else None

    def _start(self, effect: Enter, kind: Any) -> Callable[[], Any] | None:
        manager = self._manager(kind)
        if manager is None or not manager.handlers:
            return None
        start = manager.on_retriever_start if effect.kind == "retriever" else manager.on_chain_start
        return partial(start, {"name": effect.name}, effect.input, name=effect.name)

    def _opened(self, run: Any) -> Any:
        self._open.append(run)
        return run

    def _manager(self, kind: Any) -> Any:
        if self._open:
            return self._open[-1].get_child()
        if self._has_listener:
            self._has_listener = var_child_runnable_config.get() is not None or bool(tracing_is_enabled())
        if not self._has_listener:
            return None  # the usual case outside of a chain; configuring a manager takes time
        config = ensure_config()
        return kind.configure(
            inheritable_callbacks=config.get("callbacks"),
            inheritable_tags=config.get("tags"),
            inheritable_metadata=config.get("metadata"),
        )

    def _end(self, effect: Leave) -> Callable[[], Any]:
        run = effect.run
        self._open.remove(run)
        kind = "retriever" if hasattr(run, "on_retriever_end") else "chain"
        if effect.error is not None:
            return partial(getattr(run, f"on_{kind}_error"), effect.error)
        return partial(getattr(run, f"on_{kind}_end"), effect.output)
