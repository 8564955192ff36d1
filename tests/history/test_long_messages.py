"""Long messages are prepared, read and cut in a thread of their own where others share the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory
from langchain_workingmem._engine.plan import LONG
from langchain_workingmem._redis import codec
from langchain_workingmem.history import read
from langchain_workingmem.turn import gather

pytestmark = pytest.mark.in_turn("face")

IDS: dict[str, Any] = {"thread_id": "t", "user_id": "u"}
SPIED = [(codec, "body_of"), (read, "is_readable"), (gather, "is_readable")]


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Note in which threads messages are worked on."""
    seen: set[str] = set()

    def watch(module: Any, name: str) -> None:
        call = getattr(module, name)

        def watched(*arguments: Any) -> Any:
            is_main = threading.current_thread() is threading.main_thread()
            seen.add("main" if is_main else "other")
            return call(*arguments)

        monkeypatch.setattr(module, name, watched)

    for module, name in SPIED:
        watch(module, name)
    return seen


def text(size: int) -> str:
    return ("The gearbox of the red tractor is noisy. " * (size // 40 + 1))[:size]


def picture(size: int) -> list[Any]:
    return [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * size}"}}]


MESSAGES: dict[str, Callable[[int], BaseMessage]] = {
    "a text": lambda size: HumanMessage(text(size), id="1"),
    "a picture": lambda size: HumanMessage(picture(size), id="1"),
}


@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("size", [1000, LONG + 1])
def test_a_long_message_is_saved_and_read_beside_the_event_loop(
    plain: Memory, face: str, threads: set[str], kind: str, size: int
) -> None:
    message = MESSAGES[kind](size)
    place = "other" if face == "async" and size > LONG else "main"
    assert plain.history.append([message], **IDS) == [message]
    assert threads == {place}
    reads: list[Callable[[], list[BaseMessage]]] = [
        lambda: plain.history.messages("t"),
        lambda: plain.history.messages("t", superseded=True),
        lambda: [row.message for row in plain.history.page("t").items],
    ]
    for look in reads:
        threads.clear()
        assert look() == [message]
        assert threads == {place}


@pytest.mark.parametrize("size", [1000, LONG + 1])
def test_a_turn_with_a_long_message_is_put_together_beside_the_event_loop(
    memory: Memory, face: str, threads: set[str], size: int
) -> None:
    turn = [HumanMessage(text(size), id="1"), AIMessage("Oil it.", id="2")]
    assert memory.save_turn(turn, **IDS) == turn
    place = "other" if face == "async" and size > LONG else "main"
    assert threads == {place}
    threads.clear()
    context = memory.context("And now?", **IDS)
    assert [message.content for message in context.messages[:2]] == [text(size), "Oil it."]
    assert threads <= {place}
    assert threads or size <= LONG
