"""The end of a process in the middle of a plan."""

from __future__ import annotations

from typing import TypeVar

from langchain_workingmem import Memory
from langchain_workingmem._engine.plan import Plan

T = TypeVar("T")


class CrashError(Exception):
    """Stands for the end of the process."""


def cut(plan: Plan[T], after: int) -> Plan[T]:
    """Perform so many effects of a plan, then crash."""
    effect = next(plan)
    for _ in range(after):
        effect = plan.send((yield effect))
    raise CrashError


def ends_within(memory: Memory, plan: Plan[T], after: int) -> bool:
    """Crash after so many effects of a plan; tell whether it had come to its end before."""
    try:
        memory._core.run(cut(plan, after))
    except CrashError:
        plan.close()
        return False
    except RuntimeError:  # a generator may not raise StopIteration
        return True
    raise AssertionError
