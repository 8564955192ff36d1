"""The invariants of observations hold through random lives, whatever the model answers; `fuzz.py` draws and checks them.

WORKINGMEM_FUZZ_SEEDS=1000-1999 chooses other lives. The notes of a failure hold its life; `python -m tests.observations.fuzz`
repeats and shortens it.
"""

from __future__ import annotations

import os

import pytest

from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.examples import NIGHTLY
from tests.helpers.trips import Trips
from tests.observations.fuzz import life_of, live

_first, _, _last = os.environ.get("WORKINGMEM_FUZZ_SEEDS", "0-599" if NIGHTLY else "0-29").partition("-")
SEEDS = range(int(_first), int(_last or _first) + 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_life_breaks_the_contract(server: EmbeddedRedis, prefix: str, trips: Trips, seed: int) -> None:
    config, steps = life_of(seed)
    live(server.url, prefix, config, steps, trips)


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_lives_without_observations_keep_it_too(server: EmbeddedRedis, prefix: str, trips: Trips, seed: int) -> None:
    """The driver alone: all is shown raw."""
    config, steps = life_of(seed, off=True)
    live(server.url, prefix, config, steps, trips)
