"""Closing a memory whose observer is at work."""

from __future__ import annotations

from threading import Thread

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from tests.helpers.embedded import wait_until
from tests.observations.noting import Noting, observing, words
from tests.helpers.types import Make


@pytest.mark.parametrize("fails", [True, False])
def test_closing_waits_for_one_call_of_the_model(make_memory: Make, *, fails: bool) -> None:
    """A model that fails is not asked again, and what is left is not begun."""
    observer = Noting(fails=fails)
    observer.gate.clear()
    memory = make_memory(observations=observing(observer, background=True))
    for at in range(20):
        memory.save_turn([HumanMessage(words(2 * at)), AIMessage(words(2 * at + 1))], thread_id="t", user_id="ann")
    wait_until(lambda: len(observer.asked) == 1)

    closing = Thread(target=memory.close)
    closing.start()
    wait_until(lambda: memory._core.state.closing)
    observer.gate.set()
    closing.join()

    assert len(observer.asked) == 1
