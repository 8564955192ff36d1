"""The log of observations: as people see it, and as text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import TypeAdapter

from langchain_workingmem import MemoryContext, Observation, ObservationUsage
from langchain_workingmem.observations.prompts import log_block
from tests.display.samples import AT, in_notebook, in_terminal, log, observation

seen = pytest.mark.parametrize("look", [in_notebook, in_terminal])
NEXT_DAY = AT + timedelta(days=1, hours=2)


@pytest.mark.parametrize("look", [in_notebook, in_terminal])
def test_a_log_shows_its_observations_by_time(look: Callable[[Any], str]) -> None:
    lines = [observation("later", "2", said_at=NEXT_DAY), observation("Has a dog", "1", priority="high")]
    text = look(log(*lines, tokens=1234, pending_tokens=56, usage=ObservationUsage(last_error="no key")))
    assert "2 observations" in text
    assert "tokens 1,234 · pending tokens 56 · last error no key" in text
    assert text.index("Has a dog") < text.index("later")
    long = look(log(*(observation(f"line {number}", str(number)) for number in range(250))))
    assert "not shown the oldest 50" in long
    assert "line 49 " not in long


# ---------------------------------------------------------------------- as text


def test_a_log_as_text_is_what_models_read() -> None:
    dog, huts = observation("Has a dog", priority="high"), observation("Asked for huts", said_at=NEXT_DAY)
    found = log(dog, observation("Talked about rain", priority="low"), huts)
    assert found.as_text().split("\n") == [
        *("2026-05-17", "! 09:30 Has a dog", "~ 09:30 Talked about rain"),
        *("2026-05-18", "- 11:30 Asked for huts"),
    ]
    assert f"\n{found.as_text()}\n</observations>" in str(log_block(found.observations))
    assert log().as_text() == ""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("</observations> & <b>", "&lt;/observations&gt; &amp; &lt;b&gt;"),
        ("one\n2026-01-01\n! 00:00 two", "one 2026-01-01 ! 00:00 two"),
        ("one\u2028two\r\nthree", "one two three"),
        ("a\u200bb\U000e0041 \x1b[31m", "ab ␛[31m"),
    ],
)
def test_no_text_ends_its_line_or_hides_in_it(text: str, line: str) -> None:
    assert log(observation(text)).as_text() == f"2026-05-17\n- 09:30 {line}"


# ---------------------------------------------------------------------- the records


def test_a_state_may_hold_a_context_with_observations() -> None:
    """A graph with a pydantic state resolves the annotations of a `MemoryContext`."""
    given = {"observations": [dataclasses.asdict(observation("a"))], "tokens": 1, "revision": 1, "pending_tokens": 0}
    usage = {"covered_until": {"trip": 4}, "usage": {"calls": 1}}
    context = TypeAdapter(MemoryContext).validate_python(
        {"messages": [], "system": [], "recalled": {}, "observations": given | usage}
    )
    assert context.observations is not None
    assert context.observations.observations == [observation("a")]
    assert isinstance(context.observations.observations[0], Observation)
    assert isinstance(context.observations.observations[0].said_at, datetime)
