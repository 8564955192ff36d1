"""Random lives of observed threads: two processes, observers of many kinds, edits, deletions, branches."""

from __future__ import annotations

import pytest
import redis

from langchain_workingmem import HistoryOptions
from tests.helpers.examples import sample
from tests.helpers.types import Make
from tests.observations.lives import World
from tests.observations.observers import Observer, observing

pytestmark = pytest.mark.in_turn("face")


@pytest.mark.parametrize("seed", sample(range(299), 4))
def test_each_message_reaches_the_model_once(make_memory: Make, raw: redis.Redis, seed: int) -> None:
    """Raw or through a line; what is deleted reaches it never, and stands in no key."""
    observer, scope, tokens = Observer(), ("thread", "user")[seed % 3 == 0], (200, 2_000)[seed % 5 == 0]
    small = {"block_after": 100_000, "observation_tokens": tokens}
    log = observing(observer, scope=scope, background=seed % 2 == 0, **small)
    memories = [make_memory(history=HistoryOptions(last_messages=None), observations=log) for _ in range(2)]
    plain = getattr(make_memory(observations=log), "_target", None) or make_memory(observations=log)
    World(memories, plain, seed, raw, observer, scope).live(40)
