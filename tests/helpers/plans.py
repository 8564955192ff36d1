"""Plans that a test drives by hand."""

from __future__ import annotations

from typing import Any


def plan_of(operation: Any, memory: Any, *args: Any, **options: Any) -> Any:
    """Return the plan that an operation, such as `Threads.transfer`, runs for a memory: a test may drive it by hand."""
    return operation.__wrapped__(memory, *args, **options)
