"""The recipe for the functional API: tasks and whole runs are repeated, and nothing is stored twice."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import task
from langgraph.types import RetryPolicy

from langchain_workingmem import Memory
from tests.helpers.models import CONFIG, Bench, ModelDownError, Scripted, said

pytestmark = [
    pytest.mark.parametrize("face", ["async"], indirect=True),  # the page shows the async one
    pytest.mark.filterwarnings(
        "ignore:create_react_agent has been moved", "ignore:get_async_redis_connection will become"
    ),
]


TRIED: Any = partial(task, retry_policy=RetryPolicy(max_attempts=3, initial_interval=0.1))


@pytest.fixture
def build(page: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(page["remembering"].__globals__, "task", TRIED)  # as the page says
    return page["remembering"]


def losing(memory: Memory, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the reply of the first saves get lost: what they wrote is written."""
    left = [ConnectionError("the reply is lost")] * times
    save = memory.asave_turn

    async def lost(*given: Any, **more: Any) -> Any:
        await save(*given, **more)
        if left:
            raise left.pop()

    monkeypatch.setattr(memory, "asave_turn", lost)


@pytest.mark.parametrize("saver", [True, False], ids=["checkpointer", "no checkpointer"])
def test_tasks_that_are_tried_again_store_a_turn_once(
    bench: Bench, build: Any, monkeypatch: pytest.MonkeyPatch, *, saver: bool
) -> None:
    memory = bench.memory()
    losing(memory, 2, monkeypatch)
    model = Scripted.says(ModelDownError("down"), "2", "4")
    chat = build(model, memory, InMemorySaver() if saver else None)
    bench.run(chat, HumanMessage("1", id="q1"), CONFIG)
    bench.run(chat, HumanMessage("3", id="q3"), CONFIG)
    assert [said(messages) for messages in model.seen] == [["human: 1"]] * 2 + [["human: 1", "ai: 2", "human: 3"]]
    assert said(memory.history.messages("t", superseded=True)) == ["human: 1", "ai: 2", "human: 3", "ai: 4"]


def test_a_run_that_is_repeated_as_a_whole_stores_a_turn_once(bench: Bench, build: Any) -> None:
    memory = bench.memory()
    model = Scripted.says("2", "two", "4")
    chat = build(model, memory)
    for text, id in (("1", "q1"), ("1", "q1"), ("3", "q3")):
        bench.run(chat, HumanMessage(text, id=id), CONFIG)
    assert said(model.seen[1]) == ["human: 1"]
    assert said(model.seen[2]) == ["human: 1", "ai: two", "human: 3"]
    assert said(memory.history.messages("t")) == ["human: 1", "ai: two", "human: 3", "ai: 4"]
