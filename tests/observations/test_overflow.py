"""A prompt that is longer than the model's window: memory observes, sends a shorter one, and forgets nothing if that fails."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core import exceptions
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import Memory
from langchain_workingmem._text.said import weight_of
from langchain_workingmem.observations import reflecting
from tests.helpers.conversations import accept
from tests.helpers.models import CONFIG, Bench, Scripted, agent_of, ask, calling, own
from tests.observations.noting import Noting, check_shown_once, notes_in, observing, raw_marks, words

pytestmark = pytest.mark.in_turn("face")

CONFIGURED: Any = {**CONFIG, "recursion_limit": 500}
LONG: dict[str, Any] = {"message_tokens": 4_000, "keep_tokens": 600, "batch_tokens": 1_500}


class ProviderError(Exception):
    """What a provider answers with a status."""

    def __init__(self, words: str, status: int = 400) -> None:
        super().__init__(words)
        self.status_code = status


class Windowed(Scripted):
    """Refuses prompts of more than `window` tokens, as providers do."""

    window: int

    def _next(self, messages: list[BaseMessage], tools: Any) -> AIMessage:
        if weight_of(messages) > self.window:
            self.seen.append(messages)
            raise ProviderError(f"prompt is too long: {weight_of(messages)} tokens > {self.window} maximum")
        return super()._next(messages, tools)


@tool
def look(number: int) -> str:
    """Look at something: about 450 tokens."""
    return words(1000 + number, 300)


def steps(count: int) -> list[Any]:
    return [*(calling(("look", {"number": at}), id=f"c{at}") for at in range(count)), "done"]


def told(count: int) -> list[str]:
    return ["mark0x", *(f"mark{1000 + at}x" for at in range(count))]


def long_turn(bench: Bench, memory: Memory, model: Scripted, **options: Any) -> Any:
    return bench.run(agent_of(model, memory, tools=[look], **options), ask(words(0)), CONFIGURED)


@pytest.mark.parametrize("options", [{}, {"background": True}, {"scope": "user"}])
def test_a_turn_that_outgrows_the_window_goes_on(
    bench: Bench, saver: InMemorySaver | None, options: dict[str, Any]
) -> None:
    memory = bench.memory(observations=observing(Noting(), **LONG, **options))
    model = Windowed(window=3_000, script=steps(20))

    long_turn(bench, memory, model, checkpointer=saver)

    refused = [at for at, seen in enumerate(model.seen) if weight_of(seen) > 3_000]
    assert len(refused) >= 3  # the window is smaller than message_tokens
    assert len(model.seen) == 21 + len(refused)
    for at in refused:
        assert len(notes_in(model.seen[at + 1])) > len(notes_in(model.seen[at]))
    for at, seen in enumerate(one for at, one in enumerate(model.seen) if at not in refused):
        check_shown_once(seen, told(at))
        assert "mark0x" in raw_marks(seen)
    assert sum(isinstance(one, ToolMessage) for one in memory.history.messages("t")) == 20


def test_a_long_conversation_that_outgrows_the_window_goes_on(bench: Bench, saver: InMemorySaver | None) -> None:
    memory = bench.memory(observations=observing(Noting(), **LONG))
    model = Windowed(window=2_000, script=[words(2 * at + 1, 100) for at in range(20)])
    agent = agent_of(model, memory, checkpointer=saver)

    for at in range(20):
        bench.run(agent, ask(words(2 * at, 100)))

    assert len(model.seen) > 20
    check_shown_once(model.seen[-1], [f"mark{at}x" for at in range(39)])


@pytest.mark.parametrize(
    "error", [exceptions.ContextOverflowError("too long"), ProviderError("context_length_exceeded", 413)]
)
def test_after_a_failure_the_next_turn_is_shown_the_log_of_the_long_one(
    bench: Bench, saver: InMemorySaver | None, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflecting, "FIRST_WAIT", 0.001)
    observer = Noting(fails=True)
    memory = bench.memory(observations=observing(observer, background=True, **LONG))
    model = Scripted.says(*steps(25)[:-1], error)
    agent = agent_of(model, memory, tools=[look], checkpointer=saver)

    with pytest.raises(type(error)) as caught:
        bench.run(agent, ask(words(0)), CONFIGURED)

    assert caught.value is error
    assert len(model.seen) == 26  # what did not become shorter is not sent again
    bench.runner.run(memory.asettled())
    assert memory.observations.get(thread_id="t").pending_tokens > 10_000
    observer.fails = False
    after = Windowed(window=4_000, script=["I go on"])
    bench.run(agent_of(after, memory, tools=[look], checkpointer=saver), ask("mark9x and now?"))

    assert len(after.seen) == 2
    check_shown_once(after.seen[-1], [*told(25), "mark9x"])
    assert "mark1000x" in notes_in(after.seen[-1])
    assert memory.observations.get(thread_id="t").pending_tokens < 4_000


@pytest.mark.parametrize("refusal", [ProviderError("filtered by the content policy"), ProviderError("no", 413)])
@pytest.mark.parametrize("retried", [False, True])
def test_what_is_refused_for_its_content_is_refused(bench: Bench, refusal: Exception, retried: bool) -> None:
    memory = bench.memory(observations=observing(Noting(), **LONG))
    first = [ProviderError("prompt is too long")] if retried else []
    model = Scripted.says(*steps(8)[:-1], *first, refusal, "well")

    with pytest.raises(ProviderError) as caught:
        long_turn(bench, memory, model)

    assert caught.value is refusal
    bench.run(agent_of(model, memory), ask("mark9x and now?"))
    assert [*raw_marks(model.seen[-1])] == ["mark9x"]


def test_a_question_that_no_window_holds_is_not_sent_again(bench: Bench) -> None:
    """It is the user's, so it is never observed while it waits; with it each later prompt would be too long."""
    memory = bench.memory(observations=observing(Noting(), **LONG))
    model = Windowed(window=3_000, script=["hello", "well"])
    agent = agent_of(model, memory)
    bench.run(agent, ask(words(0)))

    with pytest.raises(ProviderError):
        bench.run(agent, ask(words(1, 5_000)))
    bench.run(agent, ask("mark9x and now?"))

    assert len(model.seen) == 3
    assert [*raw_marks(model.seen[-1])] == ["mark0x", "mark9x"]

