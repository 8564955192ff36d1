"""Agents with a log: a window that is too small, an observer that is slow or down, a turn of hundreds of steps."""

from __future__ import annotations

import re
import time
from itertools import takewhile
from typing import Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import ConfigDict, Field

from langchain_workingmem import HistoryOptions, Memory, ObservationOptions
from langchain_workingmem._text.messages import weight_of
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.conversations import accept
from tests.helpers.examples import NIGHTLY
from tests.helpers.models import CONFIG, Bench, Scripted, agent_of, ask, calling
from tests.observations.observers import CANARY, Observer, front_of, observing, words

CONFIGURED: Any = {**CONFIG, "recursion_limit": 5_000}
QUESTION = "Port the whole project to the new interface, file by file."


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
def test_while_the_observer_is_down_prompts_stay_bounded_and_valid(bench: Bench, saver: InMemorySaver | None) -> None:
    """What is above `block_after` is left out, oldest finished calls first, never the question; no step waits in a pause."""
    limits = {"message_tokens": 1_000, "keep_tokens": 200, "batch_tokens": 500, "block_after": 1_500}
    memory = bench.memory(observations=observing(Observer(part="raising"), background=True, **limits))
    model = Windowed(window=100_000, script=steps(30))
    began = time.monotonic()
    bench.run(agent_of(model, memory, tools=[look], checkpointer=saver), ask(words(0)), CONFIGURED)
    assert time.monotonic() - began < 10
    for seen in model.seen:
        assert weight_of(seen) <= 1_500 + 200
        assert "zq0x" in shown_words(seen)[0]


# ---------------------------------------------------------------------- a long turn


class Coder(BaseChatModel):
    """Asks for one more file in each step, and checks what it is sent."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    steps: int
    sizes: list[int] = Field(default_factory=list)
    shared: list[float] = Field(default_factory=list)  # the part of a prompt that the next one begins with
    last: str = ""

    @property
    def _llm_type(self) -> str:
        return "coder"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(**kwargs)

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        accept(messages)
        assert any(str(one.text).endswith(QUESTION) for one in messages)
        text = "\n".join(f"{one.type} {one.text} {getattr(one, 'tool_calls', '')}" for one in messages)
        if self.last:
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self.last, text, strict=False)))
            self.shared.append(same / len(self.last))
        self.last = text
        self.sizes.append(weight_of(messages))
        at = len(self.sizes)
        call: Any = {"name": "edit", "args": {"number": at}, "id": f"call{at}"}
        answer = AIMessage("Done.") if at > self.steps else AIMessage("because " * 25, tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=answer)])


@tool
def edit(number: int) -> str:
    """Edit a file."""
    return f"file {number}\n" + f"line of file {number}\n" * (900 * 4 // len(f"line of file {number}\n"))


class Brief(BaseChatModel):
    """Answers in .05 s: a line of twenty tokens for each thousand that it reads."""

    calls: int = 0

    @property
    def _llm_type(self) -> str:
        return "brief"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.calls += 1
        time.sleep(0.05)
        numbers = re.findall(r'<(?:message|observation) n="(\d+)"', str(messages[1].text))
        groups = [numbers[at : at + 8] for at in range(0, len(numbers), 8)]
        lines = [f"- [{','.join(group)}] call {self.calls} note {at} " + "x" * 60 for at, group in enumerate(groups)]
        return ChatResult(generations=[ChatGeneration(message=AIMessage("\n".join(lines)))])


def long_turn(url: str, count: int) -> Coder:
    """Let an agent work through one turn, with the limits that observations have by default."""
    options = ObservationOptions(model=Brief())
    coder = Coder(steps=count)
    with Memory(
        url, key_prefix=f"l{uuid4().hex[:12]}", history=HistoryOptions(max_tokens=None), observations=options
    ) as memory:
        agent = create_agent(coder, [edit], middleware=[MemoryMiddleware(memory)], checkpointer=InMemorySaver())
        agent.invoke({"messages": [HumanMessage(QUESTION)]}, CONFIGURED)
        stored = memory.history.messages("t")
        assert sum(isinstance(one, ToolMessage) for one in stored) == count
    return coder


def test_a_turn_of_many_steps_stays_small_and_keeps_its_prefix(server: EmbeddedRedis) -> None:
    """Of 400 steps of 1,000 tokens no prompt has more than 42,000, and each shares nine tenths with the next on average."""
    coder = long_turn(server.url, 400 if NIGHTLY else 60)
    assert max(coder.sizes) <= 42_000
    assert sum(coder.shared) / len(coder.shared) >= 0.9
