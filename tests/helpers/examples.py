"""How many examples and cases the tests try: some by default, all with `make nightly`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings

NIGHTLY = settings().max_examples > 1000  # the profile of `make nightly`
Case = TypeVar("Case")


def examples(usual: int, *, server: bool = False, **more: Any) -> settings:
    """Try a tenth of so many examples, and with `make nightly` twenty times as many.

    On a server each example works under names of its own, so that they may share the fixtures of one test.
    """
    if server:
        more["suppress_health_check"] = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=usual * 20 if NIGHTLY else max(usual // 10, 5), deadline=None, **more)


def sample(cases: Iterable[Case], count: int, offset: int = 0) -> list[Case]:
    """Return `count` of the cases, evenly spread, later ones with each offset; all with `make nightly`."""
    every = list(cases)
    if NIGHTLY or count >= len(every):
        return every
    return [every[(at * len(every) // count + offset) % len(every)] for at in range(count)]
