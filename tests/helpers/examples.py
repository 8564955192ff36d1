"""How many random examples a property is tried on."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

NIGHTLY = settings().max_examples > 1000  # the profile of `make nightly`


def examples(usual: int, *, server: bool = False, **more: Any) -> settings:
    """Try so many examples, and with `make nightly` twenty times as many.

    On a server each example works under names of its own, so that they may share the fixtures of one test.
    """
    if server:
        more["suppress_health_check"] = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=usual * (20 if NIGHTLY else 1), deadline=None, **more)
