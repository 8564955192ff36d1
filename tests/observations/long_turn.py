"""A coding agent in one turn of hundreds of steps, beside an observer that takes its time: what each request of its model holds.

Time is that of a clock that jumps, so that a turn of 200 s takes as long as its computations.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import ConfigDict, Field

from langchain_workingmem import HistoryOptions, Memory, ObservationOptions
from langchain_workingmem._text.copies import is_from_memory, without_memory
from langchain_workingmem._text.said import weight_of
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.conversations import accept
from tests.helpers.jumping import jumping

QUESTION = "Port the whole project to the new interface, file by file, and run its tests."
STEP_TOKENS, STEP_SECONDS = 1_000, 0.5
NOTED = 0.02  # tokens of a log for each token of messages
LINE_TOKENS = 20
_MESSAGE = re.compile(r'<message n="(\d+)"[^>]*>(.*?)</message>', re.DOTALL)


@dataclass(frozen=True)
class Request:
    """What one call of the agent's model was sent."""

    raw: int  # tokens of messages that are shown as they are, without the question


@dataclass
class Requests:
    """The requests of a turn, each checked."""

    made: list[Request] = field(default_factory=list)

    def add(self, messages: Sequence[BaseMessage]) -> None:
        accept(messages)
        own = [without_memory(one) for one in messages if not (is_from_memory(one) and not one.text.endswith(QUESTION))]
        assert [str(one.text) for one in own if isinstance(one, HumanMessage)] == [QUESTION]
        self.made.append(Request(weight_of(one for one in own if not isinstance(one, HumanMessage))))

    @property
    def most_raw(self) -> int:
        return max(one.raw for one in self.made)


class Coder(BaseChatModel):
    """Asks for one more file in each step."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    steps: int
    requests: Requests = Field(default_factory=Requests)

    @property
    def _llm_type(self) -> str:
        return "coder"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(**kwargs)

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        at = len(self.requests.made)
        self.requests.add(messages)
        await asyncio.sleep(STEP_SECONDS / 2)
        call: Any = {"name": "edit", "args": {"number": at, "why": f"step {at} " + "because " * 25}, "id": f"call{at}"}
        answer = AIMessage("Done.") if at == self.steps else AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=answer)])


@tool
async def edit(number: int, why: str) -> str:
    """Edit a file."""
    await asyncio.sleep(STEP_SECONDS / 2)
    return f"file {number}\n" + f"line of file {number}\n" * (
        (STEP_TOKENS - 110) * 4 // len(f"line of file {number}\n")
    )


class Observer(BaseChatModel):
    """Takes `seconds` for an answer of two tokens for each hundred that it reads; `fails` says which calls fail."""

    seconds: float
    fails: Callable[[int], bool] = lambda _: False
    calls: int = 0
    read: list[int] = Field(default_factory=list)  # tokens of each answered call

    @property
    def _llm_type(self) -> str:
        return "observer"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.calls += 1
        fails = self.fails(self.calls)
        await asyncio.sleep(self.seconds)
        if fails:
            raise ConnectionError("the provider is down")
        shown = [(int(number), len(text) // 4) for number, text in _MESSAGE.findall(str(messages[1].text))]
        self.read.append(sum(size for _, size in shown))
        lines = max(1, round(self.read[-1] * NOTED / LINE_TOKENS))
        size = -(-len(shown) // lines)
        groups = [[number for number, _ in shown[at : at + size]] for at in range(0, len(shown), size)]
        written = [
            f"- [{','.join(map(str, group))}] " + f"call {self.calls} note {at} ".ljust(LINE_TOKENS * 4 - 12, "x")
            for at, group in enumerate(groups)
        ]
        return ChatResult(generations=[ChatGeneration(message=AIMessage("\n".join(["2026-11-24", *written])))])


@dataclass
class Outcome:
    """What is known after a turn."""

    requests: Requests
    observer: Observer
    pending: int  # tokens that no observation covers in the end
    seconds: float  # that the turn took


def run_turn(
    url: str,
    observer: Observer,
    *,
    steps: int = 400,
    scale: float = 1.0,
    max_tokens: int | None = None,
    window: int | None = None,
    timeout: timedelta = timedelta(minutes=2),
    **options: Any,
) -> Outcome:
    """Let the agent work through one turn. `scale` makes all limits of observations smaller than their defaults."""
    limits = {"message_tokens": 30_000, "keep_tokens": 6_000, "batch_tokens": 10_000, "observation_tokens": 40_000}
    small: Any = {name: int(value * scale) for name, value in limits.items()}
    memory = Memory(
        url,
        key_prefix=f"l{uuid4().hex[:12]}",
        history=HistoryOptions(max_tokens=max_tokens),
        observations=ObservationOptions(model=observer, timeout=timeout, **small, **options),
    )
    coder = Coder(steps=steps, profile=None if window is None else {"max_input_tokens": window})
    agent = create_agent(coder, [edit], middleware=[MemoryMiddleware(memory)], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t", "user_id": "ann"}, "recursion_limit": 10 * steps}

    async def run() -> Outcome:
        loop = asyncio.get_running_loop()
        try:
            done = await agent.ainvoke({"messages": [HumanMessage(QUESTION)]}, config)
            seconds = loop.time()
            assert sum(isinstance(one, ToolMessage) for one in done["messages"]) == steps
            pending = (await memory.observations.aget(thread_id="t")).pending_tokens
            return Outcome(coder.requests, observer, pending, seconds)
        finally:
            await memory.aclose()

    with jumping() as runner:
        return runner.run(run())
