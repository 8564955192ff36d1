"""Ask a model for observations, with objections to what cannot be used."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages.utils import count_tokens_approximately

from langchain_workingmem._engine.effects import Ask, Pause
from langchain_workingmem.errors import ModelError
from langchain_workingmem.observations.answers import BadAnswer, read_answer
from langchain_workingmem.observations.prompts import with_objection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage

    from langchain_workingmem._engine.effects import Argument, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.observations.answers import Line

_log = logging.getLogger("langchain_workingmem")

ATTEMPTS = 3  # before a pause
FIRST_WAIT = 0.2  # seconds after a model has failed, doubled at each attempt


@dataclass(slots=True)
class Usage:
    """What the calls of one question have taken."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    failures: int = 0
    last_error: str = ""

    def add(self, messages: Sequence[BaseMessage], answer: AIMessage) -> None:
        """Count a call: as the provider says, else estimated."""
        said = answer.usage_metadata
        self.input_tokens += said["input_tokens"] if said else count_tokens_approximately(messages)
        self.output_tokens += said["output_tokens"] if said else count_tokens_approximately([answer])

    def fail(self, error: str) -> None:
        """Count a failure."""
        self.failures += 1
        self.last_error = error

    def arguments(self) -> list[Argument]:
        """Return the counters as scripts take them."""
        names = ("calls", "input_tokens", "output_tokens", "failures", "last_error")
        return [part for name in names for part in (name, getattr(self, name))]


def ask(
    state: MemoryState,
    model: BaseChatModel | str,
    messages: list[BaseMessage],
    count: int,
    most_tokens: int,
    seconds: float,
) -> Plan[tuple[list[Line] | None, Usage]]:
    """Ask until an answer about `count` numbered elements can be used; None after `ATTEMPTS` calls, or one while closing."""
    usage, conversation = Usage(), messages
    for attempt in range(ATTEMPTS):
        if attempt and state.closing:
            break
        usage.calls += 1
        try:
            answer: Any = yield Ask(cast("BaseChatModel", model), conversation, seconds)
        except ModelError as error:
            usage.fail(_problem(error))
            if attempt < ATTEMPTS - 1 and not state.closing:
                yield Pause(FIRST_WAIT * 2**attempt, jitter=True)
            continue
        usage.add(conversation, answer)
        try:
            return read_answer(answer, count, most_tokens), usage
        except BadAnswer as error:
            usage.fail(error.problem)
            conversation = with_objection(messages, answer, error.objection)
    return None, usage


def _problem(error: ModelError) -> str:
    """Say what has failed without the words of a provider, who may quote messages."""
    cause = error.__cause__
    if cause is None:
        return str(error)
    status = getattr(cause, "status_code", None)
    known = f", status {status}" if isinstance(status, int) else ""
    return f"the chat model failed ({type(cause).__name__}{known}); {error.remedy}"
