"""One run of the observer: how far it goes, what it reads side by side, and what it does with messages that no model reads."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem.options import Scope
from tests.observations.noting import Noting, observing, words
from tests.helpers.types import Make

SCOPES: tuple[Scope, ...] = ("thread", "user")
IDS: dict[str, Any] = {"thread_id": "t", "user_id": "u"}


def step(at: int) -> list[BaseMessage]:
    """Make a tool call with its result: about 45 tokens."""
    call: Any = {"name": "look", "args": {}, "id": f"c{at}"}
    result = ToolMessage(words(at, 12), tool_call_id=f"c{at}", name="look", id=f"r{at}")
    return [AIMessage("", tool_calls=[call], id=f"s{at}"), result]


@pytest.mark.parametrize("scope", SCOPES)
def test_one_run_goes_down_to_what_stays_inside_a_turn_too(make_memory: Make, scope: Scope) -> None:
    observer = Noting()
    memory = make_memory(observations=observing(observer, scope=scope, background=True, batch_tokens=150))
    memory.history.append([HumanMessage(words(100), id="q")], **IDS)
    for at in range(30):
        memory.history.append(step(at), **IDS)
        before = len(observer.asked)
        memory.settled()
        if len(observer.asked) > before:
            assert len(observer.asked) - before > 1
            assert memory.observations.get(**IDS).pending_tokens < 120 + 60
    assert len(observer.asked) > 6
    raw = memory.context([HumanMessage("hm")], **IDS).messages
    assert next(message.id for message in raw) == "q", "the question stays"


class Interrupted(Noting):
    """While it is asked, more is said."""

    memory: Any = None
    said: int = 0

    def _generate(self, messages: list[BaseMessage], *rest: Any, **more: Any) -> Any:
        self.said += 1
        if self.said < 4:
            self.memory.history.append(step(500 + self.said), **IDS)
        return super()._generate(messages, *rest, **more)


def test_what_is_said_during_a_run_waits_until_it_is_due(make_memory: Make) -> None:
    observer = Interrupted()
    memory = make_memory(observations=observing(observer, background=True, batch_tokens=150))
    observer.memory = make_memory()
    for at in range(0, 16, 2):
        observer.memory.save_turn([HumanMessage(words(at)), AIMessage(words(at + 1))], **IDS)
    memory.save_turn([HumanMessage(words(16)), AIMessage(words(17))], **IDS)
    memory.settled()
    seen = "".join(str(asked[1].text) for asked in observer.asked)
    assert "mark13x" in seen
    assert "mark501x" not in seen
    assert observer.said > 2


def test_pictures_are_named_to_the_observer(make_memory: Make) -> None:
    observer = Noting(profile={"image_inputs": True})
    memory = make_memory(observations=observing(observer))
    block = {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png", "name": "map.png"}
    memory.history.append(
        [HumanMessage([{"type": "text", "text": words(1)}, block], id="q"), AIMessage(words(2))], **IDS
    )
    memory.history.append([HumanMessage(words(3)), AIMessage(words(4))], **IDS)
    memory.observations.observe("t")
    (call,) = observer.asked
    assert isinstance(call[1].content, str)
    assert "[picture: map.png]</message>" in call[1].content
