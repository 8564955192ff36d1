"""The invariants of observations hold through random lives, whatever the model answers; `fuzz.py` draws and checks them.

WORKINGMEM_FUZZ_SEEDS=1000-1999 chooses other lives, each in one of the scopes, nightly in both. The notes of a failure hold its life; `python -m tests.observations.fuzz`
repeats and shortens it.
"""

from __future__ import annotations

import os
from typing import Any, Literal

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import ObservationOptions, RecallOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import NIGHTLY
from tests.helpers.trips import Trips
from tests.helpers.types import Make
from tests.observations.fuzz import life_of, live
from tests.observations.scripted import INSTRUCTIONS, Observer

_first, _, _last = os.environ.get("WORKINGMEM_FUZZ_SEEDS", "0-599" if NIGHTLY else "0-1").partition("-")
SEEDS = range(int(_first), int(_last or _first) + 1)


@pytest.mark.parametrize("scope", ["thread", "user"])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_life_breaks_the_contract(server: EmbeddedRedis, prefix: str, trips: Trips, seed: int, scope: str) -> None:
    config, steps = life_of(seed, scope=scope)
    live(server.url, prefix, config, steps, trips)


@pytest.mark.in_turn("face")
@pytest.mark.parametrize("recall", [False, True], ids=["without recall", "with recall"])
@pytest.mark.parametrize("scope", ["thread", "user"])
def test_a_turn_costs_the_same_round_trips_with_observations(
    make_memory: Make, trips: Trips, scope: Literal["thread", "user"], recall: bool
) -> None:
    """Also right after the log has changed, and from a process that has not read it yet."""
    observing = ObservationOptions(
        model=Observer(),
        scope=scope,
        message_tokens=60,
        keep_tokens=20,
        batch_tokens=60,
        instructions=INSTRUCTIONS,
        background=False,
    )
    more: dict[str, Any] = {"embeddings": WordEmbeddings(), "recall": RecallOptions(threshold=0.0)} if recall else {}
    costs = []
    for name, observations in (("with", observing), ("without", None)):
        memory, other = (make_memory(observations=observations, **more) for _ in range(2))
        ids: dict[str, Any] = {"thread_id": name, "user_id": name}
        old = [HumanMessage(f"word {at}") for at in range(12)]  # so that recall finds something from the first turn on
        memory.history.append(old, thread_id=f"{name} old", user_id=name)
        found = []
        for at in range(8):
            if observations is not None and at % 3 == 2:
                assert memory.observations.observe(name, user_id=name).observations
            question, answer = f"zq{2 * at}x {'word ' * 20}", AIMessage(f"zq{2 * at + 1}x {'word ' * 20}")
            before = trips.count
            context = (other if at % 2 else memory).context(question, **ids)
            read = trips.count
            memory.save_turn([context.messages[-1], answer], **ids)
            found.append((read - before, trips.count - read))
        costs.append(found[2:])  # the first ones load scripts
    assert costs[0] == costs[1]


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_lives_without_observations_keep_it_too(server: EmbeddedRedis, prefix: str, trips: Trips, seed: int) -> None:
    """The driver alone: all is shown raw."""
    config, steps = life_of(seed, off=True)
    live(server.url, prefix, config, steps, trips)
