"""What calls of the models cost: each call reaches the callbacks of its model, with who it was for."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler, UsageMetadataCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import ObservationOptions, TitleOptions
from langchain_workingmem.observations.log import Remembered
from tests.helpers.embedded import wait_until
from tests.helpers.models import Scripted
from tests.observations.observers import Echo
from tests.helpers.types import Make

pytestmark = [pytest.mark.in_turn("face"), pytest.mark.programs]

IDS: Any = {"thread_id": "t", "user_id": "u"}


class Bill(BaseCallbackHandler):
    """Notes who each call was for."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, Any]] = []

    def on_chat_model_start(self, *_: Any, metadata: Any = None, name: str = "", **__: Any) -> None:
        found = metadata or {}
        self.calls.append((name, found.get("thread_id"), found.get("user_id")))


class Priced(Echo):
    """Says what a call takes, as providers do."""

    def _generate(self, *arguments: Any, **more: Any) -> Any:
        result = super()._generate(*arguments, **more)
        answer: Any = result.generations[0].message
        answer.usage_metadata = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
        answer.response_metadata = {"model_name": "small"}
        return result


def test_callbacks_of_the_models_learn_the_usage_of_each_call_and_who_it_was_for(make_memory: Make) -> None:
    """Also of what runs in the background, whose runs are children of no other."""
    bill, usage = Bill(), UsageMetadataCallbackHandler()
    options = ObservationOptions(
        model=Priced(callbacks=[bill, usage]), message_tokens=60, keep_tokens=0, observation_tokens=20
    )
    memory = make_memory(observations=options, title=TitleOptions(model=Scripted(script=["Hi"], callbacks=[bill])))
    for at in range(8):
        memory.save_turn([HumanMessage(f"fact number {at} is here"), AIMessage("I will note it")], **IDS)
    memory.settled()
    wait_until(lambda: not memory._core.state.room(Remembered).observing)
    log = memory.observations.observe("t")
    names = [name for name, *_ in bill.calls]
    assert {*names} == {"observer", "reflector", "title"}
    assert {(thread, owner) for name, thread, owner in bill.calls if name != "title"} == {("t", "u")}
    assert (log.usage.calls, log.usage.failures) == (len(names) - names.count("title"), 0)
    assert usage.usage_metadata["small"]["input_tokens"] == log.usage.input_tokens == 100 * log.usage.calls
