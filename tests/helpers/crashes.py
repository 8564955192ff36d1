"""The end of a process in the middle of a plan."""

from __future__ import annotations

from typing import TypeVar

from langchain_workingmem._engine.effects import Plan

T = TypeVar("T")


class CrashError(Exception):
    """Stands for the end of the process."""


def cut(plan: Plan[T], after: int) -> Plan[T]:
    """Perform so many effects of a plan, then crash."""
    effect = next(plan)
    for _ in range(after):
        effect = plan.send((yield effect))
    raise CrashError
