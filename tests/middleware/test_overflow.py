"""A prompt that is longer than the model's window."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.tools import tool

from langchain_workingmem import Memory
from langchain_workingmem._text.messages import weight_of
from tests.helpers.conversations import accept
from tests.helpers.models import CONFIG, Bench, Scripted, agent_of, ask, calling, own

pytestmark = pytest.mark.in_turn("face")

CONFIGURED: Any = {**CONFIG, "recursion_limit": 500}


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


def words(number: int, count: int = 30) -> str:
    """Return a text with a mark."""
    return f"mark{number}x " + "word " * count


@tool
def look(number: int) -> str:
    """Look at something: about 450 tokens."""
    return words(1000 + number, 300)


def steps(count: int) -> list[Any]:
    return [*(calling(("look", {"number": at}), id=f"c{at}") for at in range(count)), "done"]


def long_turn(bench: Bench, memory: Memory, model: Scripted, **options: Any) -> Any:
    return bench.run(agent_of(model, memory, tools=[look], **options), ask(words(0)), CONFIGURED)


def test_an_overflow_is_a_refusal(bench: Bench) -> None:
    memory = bench.memory()
    model = Windowed(window=3_000, script=steps(20))

    with pytest.raises(ProviderError):
        long_turn(bench, memory, model)

    assert sum(weight_of(seen) > 3_000 for seen in model.seen) == 1
    model.script = ["well"]
    bench.run(agent_of(model, memory), ask("mark9x and now?"))
    assert [one.text for one in model.seen[-1]] == ["mark9x and now?"]
    rows = memory.history.messages("t")
    assert own(rows) == rows
    accept([one for one in model.seen[-1] if not isinstance(one, SystemMessage)])
