"""Notice plans that are made and never run: their calls look right, and do nothing."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from inspect import GEN_CREATED, getgeneratorstate
from types import FunctionType, GeneratorType
from typing import Any

# They are handed to a plan that an open breaker closes before it begins, or to a runner that a test lets die.
_HANDED_ON = frozenset({"gather", "reindex_documents"})
_MOST = 500  # plans that are kept before those that have begun are dropped, beside those that wait


class Plans:
    """The plans that functions of the package have made."""

    def __init__(self) -> None:
        self._made: list[GeneratorType[Any, Any, Any]] = []
        self._most = _MOST

    def watch(self) -> None:
        """Watch the plan functions of all modules that are loaded, ours and those of tests: those whose result is a `Plan`."""
        modules = [
            module for name, module in list(sys.modules.items()) if name.startswith(("langchain_workingmem", "tests"))
        ]
        owners = [*modules, *{value for module in modules for value in vars(module).values() if _is_ours(value)}]
        watched = functools.cache(self._watched)
        for owner in owners:
            for name, value in list(vars(owner).items()):
                if isinstance(value, FunctionType) and not name.startswith("__") and _makes_a_plan(value):
                    setattr(owner, name, watched(value))

    def _watched(self, function: FunctionType) -> Callable[..., Any]:
        @functools.wraps(function)
        def made(*args: Any, **options: Any) -> Any:
            plan = function(*args, **options)
            if isinstance(plan, GeneratorType):
                self._made.append(plan)
                if len(self._made) > self._most:
                    self._made = self._waiting()
                    self._most = _MOST + 2 * len(self._made)
            return plan

        return made

    def _waiting(self) -> list[GeneratorType[Any, Any, Any]]:
        return [plan for plan in self._made if getgeneratorstate(plan) == GEN_CREATED]

    def dropped(self) -> list[str]:
        """Name the plans that nobody can run any more and nobody has run or closed, and forget all."""
        waiting, self._made = self._waiting(), []
        # the list, the variable and the argument refer to each
        return [plan.__qualname__ for plan in waiting if sys.getrefcount(plan) == 3 and plan.__name__ not in _HANDED_ON]


def _is_ours(value: object) -> bool:
    return isinstance(value, type) and value.__module__.startswith("langchain_workingmem")


def _makes_a_plan(function: FunctionType) -> bool:
    return str(function.__annotations__.get("return", "")).startswith("Plan[")


def plan_of(operation: Any, memory: Any, *args: Any, **options: Any) -> Any:
    """Return the plan that an operation, such as `Threads.transfer`, runs for a memory: a test may drive it by hand."""
    return operation.__wrapped__(memory, *args, **options)
