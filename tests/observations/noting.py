"""A scripted observer whose notes repeat the marks of the messages, and a check that a model is shown each mark once."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import ConfigDict, Field

from langchain_workingmem import ObservationOptions
from langchain_workingmem._text.copies import without_memory
from tests.helpers.conversations import accept

MARK = re.compile(r"mark\d+x")
_BLOCK = re.compile(r"<observations\b.*?</observations>", re.DOTALL)
_MESSAGE = re.compile(r'<message n="(\d+)"[^>]*>(.*?)</message>', re.DOTALL)


class Noting(BaseChatModel):
    """Writes one line for each message that it reads: "noted mark7x"."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    asked: list[list[BaseMessage]] = Field(default_factory=list)
    threads: set[int] = Field(default_factory=set)  # that have called it
    fails: bool = False
    gate: Any = Field(default_factory=threading.Event, exclude=True)  # without it, calls wait

    def model_post_init(self, context: Any, /) -> None:
        self.gate.set()

    @property
    def _llm_type(self) -> str:
        return "noting"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.asked.append(messages)
        self.threads.add(threading.get_ident())
        self.gate.wait(30)
        if self.fails:
            raise ConnectionError("the provider is down")
        lines = [
            f"- [{number}] noted {' '.join(dict.fromkeys(MARK.findall(text))) or 'nothing'}"
            for number, text in _MESSAGE.findall(str(messages[1].text))
        ]
        return ChatResult(generations=[ChatGeneration(message=AIMessage("\n".join(["2026-11-20", *lines])))])


def observing(model: BaseChatModel, **options: Any) -> ObservationOptions:
    """Make options with small numbers: about 40 tokens are a message of the tests."""
    small = {"message_tokens": 400, "keep_tokens": 120, "batch_tokens": 200}
    return ObservationOptions(model=model, **{**small, "background": False, **options})


def words(number: int, length: int = 20) -> str:
    """Make a text of about `length` * 1.5 tokens, with a mark of its own."""
    return " ".join([f"mark{number}x", *(f"word{number % 10}" for _ in range(length))])


def notes_in(messages: Iterable[BaseMessage]) -> str:
    """Return the log that a model was shown; "" for none. There may be one at most."""
    found = [block for message in messages for block in _BLOCK.findall(str(message.text))]
    assert len(found) < 2, found
    return found[0] if found else ""


def raw_marks(messages: Iterable[BaseMessage]) -> Counter[str]:
    """Count in how many messages, shown as they are, a mark stands."""
    found: Counter[str] = Counter()
    for message in messages:
        if isinstance(message, SystemMessage):
            continue
        own = without_memory(message)
        found.update(set(MARK.findall(_BLOCK.sub("", f"{own.text} {getattr(own, 'tool_calls', '')}"))))
    return found


def check_shown_once(messages: Sequence[BaseMessage], marks: Iterable[str], system: Sequence[str] = ()) -> int:
    """Check that a model is shown each mark once: in a message or in the log; return how many stand in the log."""
    accept([message for message in messages if not isinstance(message, SystemMessage)])
    notes = notes_in([*messages, *(SystemMessage(text) for text in system)])
    noted, raw = Counter(MARK.findall(notes)), raw_marks(messages)
    wanted = Counter(marks)
    assert noted + raw == wanted, {"twice": noted + raw - wanted, "missing": wanted - noted - raw}
    return len(noted)
