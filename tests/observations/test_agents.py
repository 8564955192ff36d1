"""Agents with a log: a window that is too small, an observer that is slow or down, a turn of hundreds of steps."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem._text.messages import weight_of
from tests.helpers.conversations import accept
from tests.helpers.models import CONFIG, Bench, Scripted, agent_of, ask, calling
from tests.observations.observers import CANARY, Observer, front_of, observing, words

CONFIGURED: Any = {**CONFIG, "recursion_limit": 5_000}


@tool
def look(number: int) -> str:
    """Look at something: about 130 tokens."""
    return words(1000 + number, 100)


class WindowError(Exception):
    """What a provider answers with status 400."""

    status_code = 400


class Windowed(Scripted):
    """Refuses prompts of more than `window` tokens, as providers do."""

    window: int

    def _next(self, messages: list[BaseMessage], tools: Any) -> AIMessage:
        accept(messages)
        if weight_of(messages) > self.window:
            self.seen.append(messages)
            raise WindowError(f"prompt is too long: {weight_of(messages)} tokens > {self.window} maximum")
        return super()._next(messages, tools)


def steps(count: int) -> list[Any]:
    return [*(calling(("look", {"number": at}), id=f"c{at}") for at in range(count)), "done"]


def shown_words(messages: list[BaseMessage]) -> tuple[set[str], set[str]]:
    """Return the canaries that a prompt holds as they were said, and those in the log."""
    fronts = [front_of(one) for one in messages]
    raw = " ".join(str(one.text).removeprefix(front) for one, front in zip(messages, fronts, strict=True))
    return {*CANARY.findall(raw)}, {*CANARY.findall(" ".join(fronts))}


@pytest.mark.in_turn("face")
def test_a_prompt_that_is_too_long_is_observed_and_sent_again(bench: Bench, saver: InMemorySaver | None) -> None:
    """Once for each refusal; each message then stands in the prompt once."""
    memory = bench.memory(observations=observing(Observer(), message_tokens=4_000, keep_tokens=200, batch_tokens=500))
    model = Windowed(window=1_500, script=steps(20))
    agent = agent_of(model, memory, tools=[look], checkpointer=saver)
    bench.run(agent, ask(words(0)), CONFIGURED)
    refused = [at for at, seen in enumerate(model.seen) if weight_of(seen) > 1_500]
    assert refused
    assert len(model.seen) == 21 + len(refused)
    for at, seen in enumerate(one for at, one in enumerate(model.seen) if at not in refused):
        raw, log = shown_words(seen)
        assert not raw & log
        assert raw | log == {"zq0x", *(f"zq{1000 + done}x" for done in range(at))}
    assert sum(isinstance(one, ToolMessage) for one in memory.history.messages("t")) == 20


@pytest.mark.in_turn("face")
@pytest.mark.parametrize("background", [True, False])
def test_while_nobody_observes_prompts_stay_bounded_and_valid(
    bench: Bench, saver: InMemorySaver | None, background: bool
) -> None:
    """What is above `block_after` is left out, oldest calls first, never the question; no step waits in a pause."""
    limits = {"message_tokens": 1_000, "keep_tokens": 200, "batch_tokens": 500, "block_after": 1_500}
    memory = bench.memory(observations=observing(Observer(part="raising"), background=background, **limits))
    model = Windowed(window=100_000, script=steps(30))
    began = time.monotonic()
    bench.run(agent_of(model, memory, tools=[look], checkpointer=saver), ask(words(0)), CONFIGURED)
    assert time.monotonic() - began < 10
    for seen in model.seen:
        assert weight_of(seen) <= 1_500 + 200
        assert "zq0x" in shown_words(seen)[0]


def test_results_that_the_model_has_not_seen_are_shown_whole(bench: Bench) -> None:
    memory = bench.memory(
        observations=observing(Observer(), message_tokens=400, keep_tokens=50, batch_tokens=100, background=True)
    )
    many = calling(*(("look", {"number": at}) for at in range(5)), id="c")
    model = Scripted.says(many, calling(("look", {"number": 9}), id="d"), "done")
    bench.run(agent_of(model, memory, tools=[look]), ask(words(0)), CONFIGURED)
    assert shown_words(model.seen[1])[0] == {"zq0x", *(f"zq{1000 + at}x" for at in range(5))}
    assert "zq1009x" in shown_words(model.seen[2])[0]


def test_a_prompt_that_is_too_long_is_refused_as_it_was_where_memory_cannot_be_read(
    bench: Bench, raw: redis.Redis
) -> None:
    memory = bench.memory(observations=observing(Observer()), on_error="log")
    raw.set(memory._core.state.keys.of("t").rows, "no hash")
    with pytest.raises(WindowError):
        bench.run(agent_of(Windowed(window=1, script=["x"]), memory), ask(words(0)), CONFIGURED)
