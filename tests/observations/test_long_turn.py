"""One long turn of a coding agent beside observers that are quick, slow, or down: what its model is sent stays small, and valid.

The harness checks each request: a provider accepts it, and the question is in it.
"""

from __future__ import annotations

from typing import Any

import pytest

from langchain_workingmem.embedded import EmbeddedRedis
from tests.observations.long_turn import STEP_TOKENS, Observer, run_turn


def test_a_quick_observer_keeps_the_prompt_small(server: EmbeddedRedis) -> None:
    found = run_turn(server.url, Observer(seconds=0.3), steps=60, scale=0.25)
    assert found.requests.most_raw <= 7_500 + 2 * STEP_TOKENS
    assert found.requests.most <= 10_000
    assert found.pending <= 7_500 + STEP_TOKENS


@pytest.mark.parametrize("options", [{"max_tokens": 15_000}, {"window": 20_000}], ids=["max_tokens", "the window"])
@pytest.mark.parametrize("seconds", [30, None], ids=["slow", "down"])
def test_a_slow_observer_or_none_leaves_a_limit(
    server: EmbeddedRedis, options: dict[str, Any], seconds: int | None
) -> None:
    """Three fifths of what was said do not fit; the oldest steps are left out, several at once."""
    observer = Observer(seconds=seconds or 0.3, fails=lambda _: seconds is None)
    limit = options.get("max_tokens", 16_000)
    found = run_turn(server.url, observer, steps=40, scale=0.25, **options)
    assert limit * 3 // 5 < found.requests.most_raw <= limit
    assert found.requests.breaks <= 40 // 4
    assert found.pending > 30_000


@pytest.mark.nightly
@pytest.mark.parametrize("fails", [False, True], ids=["", "every third call fails"])
def test_a_turn_of_four_hundred_thousand_tokens_needs_forty_thousand(server: EmbeddedRedis, fails: bool) -> None:
    observer = Observer(seconds=0.3, fails=lambda call: fails and call % 3 == 0)
    found = run_turn(server.url, observer)
    assert found.requests.most_raw <= 30_000 + 3 * STEP_TOKENS
    assert found.requests.most < 40_000
    assert fails or found.requests.prefix_share >= 0.92
    assert found.pending <= 30_000 + STEP_TOKENS


@pytest.mark.nightly
@pytest.mark.parametrize("fails", [False, True], ids=["", "every third call fails"])
@pytest.mark.parametrize("seconds", [0.3, 8, 30])
def test_no_observer_is_too_slow_for_a_step_that_waits(server: EmbeddedRedis, seconds: float, fails: bool) -> None:
    observer = Observer(seconds=seconds, fails=lambda call: fails and call % 3 == 0)
    found = run_turn(server.url, observer, block_after=40_000)
    assert found.requests.most_raw <= 40_000
    assert found.pending <= 40_000 + STEP_TOKENS


@pytest.mark.nightly
@pytest.mark.parametrize("block_after", [None, 40_000])
@pytest.mark.parametrize("options", [{"max_tokens": 60_000}, {"window": 75_000}], ids=["max_tokens", "the window"])
def test_an_observer_that_is_down_leaves_the_last_limit(
    server: EmbeddedRedis, options: dict[str, Any], block_after: int | None
) -> None:
    observer = Observer(seconds=0.3, fails=lambda _: True)
    found = run_turn(server.url, observer, block_after=block_after, **options)
    assert found.requests.most_raw <= 60_000
    assert found.requests.breaks <= 400 / 15


@pytest.mark.nightly
def test_the_prompt_keeps_its_beginning_for_fifteen_steps(server: EmbeddedRedis) -> None:
    assert run_turn(server.url, Observer(seconds=0.3)).requests.breaks <= 400 / 15
