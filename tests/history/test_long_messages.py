"""Long messages are prepared, read and cut in a thread of their own where others share the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage

from langchain_workingmem import Memory
from langchain_workingmem._engine.plan import LONG
from langchain_workingmem._redis import codec
from langchain_workingmem.history import read

pytestmark = pytest.mark.in_turn("face")

IDS: dict[str, Any] = {"thread_id": "t", "user_id": "u"}


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

    watch(codec, "body_of")
    watch(read, "is_readable")
    return seen


def text(size: int) -> str:
    return ("The gearbox of the red tractor is noisy. " * (size // 40 + 1))[:size]


@pytest.mark.parametrize("size", [1000, LONG + 1])
def test_a_long_message_is_saved_and_read_beside_the_event_loop(
    plain: Memory, face: str, threads: set[str], size: int
) -> None:
    message = HumanMessage(text(size), id="1")
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
