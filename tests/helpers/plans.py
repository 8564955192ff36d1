"""Plans that a test drives by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_workingmem._engine.plan import Plan, Send


def plan_of(operation: Any, memory: Any, *args: Any, **options: Any) -> Any:
    """Return the plan that an operation, such as `Threads.transfer`, runs for a memory: a test may drive it by hand."""
    return operation.__wrapped__(memory, *args, **options)


def meanwhile(plan: Plan[Any], event: Callable[[Any], object]) -> Plan[Any]:
    """Perform a plan, and tell of each of its effects before it is performed."""
    reply: Any = None
    try:
        while True:
            effect = plan.send(reply)
            event(effect)
            reply = yield effect
    except StopIteration as done:
        return done.value


def twice(plan: Plan[Any]) -> Plan[Any]:
    """Send everything a second time, as after a lost reply."""
    effect = next(plan)
    while True:
        try:
            reply = yield effect
            effect = plan.send((yield effect) if isinstance(effect, Send) else reply)
        except StopIteration as done:
            return done.value
