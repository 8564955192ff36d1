"""The recipe for the functional API: tasks and whole runs are repeated, and nothing is stored twice."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.types import RetryPolicy

from langchain_workingmem import Memory
from tests.helpers.models import CONFIG, Bench, ModelDownError, Scripted, said

pytestmark = [
    pytest.mark.in_turn("face"),
    pytest.mark.filterwarnings(
        "ignore:create_react_agent has been moved", "ignore:get_async_redis_connection will become"
    ),
]


TRIED: Any = partial(task, retry_policy=RetryPolicy(max_attempts=3, initial_interval=0.1))


def sync_twin(model: Any, memory: Memory, checkpointer: Any = None) -> Any:
    """Build what the page says of the sync twin."""

    def answer(question: HumanMessage, ids: dict[str, Any]) -> AIMessage:
        made: AIMessage = model.invoke(memory.context([question], **ids).messages)
        return made.model_copy(update={"id": f"{question.id}-answer"})

    def save(turn: list[Any], ids: dict[str, Any]) -> None:
        memory.save_turn(turn, **ids)

    answering, saving = TRIED(answer), TRIED(save)

    def chat(question: HumanMessage) -> Any:
        ids = {"thread_id": "t", "user_id": "ann"}
        answered = answering(question, ids).result()
        saving([question, answered], ids).result()
        return answered

    made: Any = entrypoint
    return made(checkpointer=checkpointer)(chat)


@pytest.fixture
def build(page: dict[str, Any], face: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(page["remembering"].__globals__, "task", TRIED)  # as the page says
    return sync_twin if face == "sync" else page["remembering"]


def losing(memory: Memory, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the reply of the first saves get lost: what they wrote is written."""
    left = [ConnectionError("the reply is lost")] * times
    save, asave = memory.save_turn, memory.asave_turn

    def lost(*given: Any, **more: Any) -> Any:
        save(*given, **more)
        if left:
            raise left.pop()

    async def alost(*given: Any, **more: Any) -> Any:
        await asave(*given, **more)
        if left:
            raise left.pop()

    monkeypatch.setattr(memory, "save_turn", lost)
    monkeypatch.setattr(memory, "asave_turn", alost)


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


def test_a_run_that_is_resumed_does_not_ask_the_model_again(
    bench: Bench, build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = bench.memory()
    losing(memory, 3, monkeypatch)
    model = Scripted.says("2")
    chat = build(model, memory, InMemorySaver())
    with pytest.raises(ConnectionError):
        bench.run(chat, HumanMessage("1", id="q1"), CONFIG)
    assert bench.run(chat, None, CONFIG).text == "2"
    assert len(model.seen) == 1
    assert said(memory.history.messages("t", superseded=True)) == ["human: 1", "ai: 2"]
