"""Random lives of threads whose rows are written by two processes, checked by an oracle that is not incremental."""

from __future__ import annotations

import pytest
import redis

from tests.derived.lives import Life
from tests.helpers.examples import sample
from tests.helpers.types import Make


@pytest.mark.parametrize("seed", sample(range(400), 4))
def test_rows_follow_their_messages(make_memory: Make, raw: redis.Redis, seed: int) -> None:
    """Whatever happens to messages, rows are shown, hidden and deleted as the rules of `rows.lua` say."""
    Life(raw, [make_memory(), make_memory()], seed).live(60)
