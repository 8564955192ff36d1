"""A call that waits for another process says so, and waits no longer than a call of the model may take."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import ObservationOptions
from langchain_workingmem.observations.observer import runs
from langchain_workingmem.options import Scope
from tests.helpers.observers import Echo
from tests.helpers.types import Make

pytestmark = [pytest.mark.both_faces, pytest.mark.programs]

IDS: Any = {"thread_id": "t", "user_id": "u"}


@pytest.mark.parametrize("scope", ["thread", "user"])
def test_observe_says_that_it_waits_for_a_process_that_was_killed(
    make_memory: Make,
    raw: redis.Redis,
    prefix: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    scope: Scope,
) -> None:
    monkeypatch.setattr(runs, "POLL", 0.01)
    memory = make_memory(
        observations=ObservationOptions(
            model=Echo(), scope=scope, message_tokens=20, keep_tokens=0, background=False, timeout=timedelta(seconds=9)
        )
    )
    said = [(HumanMessage(f"fact {at}"), AIMessage("noted")) for at in range(4)]
    memory.history.append([one for turn in said for one in turn], **IDS)
    log = f"{prefix}:observations:{scope[0]}:{{{'t' if scope == 'thread' else 'u'}}}"
    seconds, micros = raw.time()
    end = seconds * 1_000_000 + micros + 1_000_000
    raw.hset(log, mapping={"lease": "killed", "leased_until": end})
    with caplog.at_level(logging.WARNING, "langchain_workingmem"):
        assert memory.observations.observe("t")
    (line,) = [one for one in caplog.messages if "waits" in one]
    assert line == "another process observes thread 't'; this one waits: at most 1 s if that was killed"


def test_a_lease_ends_soon_after_the_call_of_the_model_may(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    left: list[float] = []

    class Asked(Echo):
        def _generate(self, *arguments: Any, **more: Any) -> Any:
            seconds, micros = raw.time()
            end: Any = raw.hget(f"{prefix}:observations:t:{{t}}", "leased_until")
            left.append(int(end) / 1e6 - seconds - micros / 1e6)
            return super()._generate(*arguments, **more)

    options = ObservationOptions(
        model=Asked(), message_tokens=20, keep_tokens=0, background=False, timeout=timedelta(seconds=60)
    )
    memory = make_memory(observations=options)
    memory.history.append([HumanMessage("one"), AIMessage("two"), HumanMessage("three")], **IDS)
    memory.observations.observe("t")
    assert [60 < one <= 65 for one in left] == [True]
