"""Keepers that play a part: they answer what a test says, or look up what each message stands for."""

from __future__ import annotations

import html
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import ConfigDict, Field

MESSAGE = re.compile(r'<message n="(\d+)" role="(\w+)" time="([^"]+)">(.*?)</message>', re.DOTALL)
Answer = str | BaseMessage | Exception


class Asked:
    """What a keeper was shown in one call."""

    def __init__(self, messages: Sequence[BaseMessage]) -> None:
        self.rules = str(messages[0].text)
        self.data = str(messages[1].text)
        self.conversation = [*messages]
        self.shown = {int(found[1]): html.unescape(found[4]) for found in MESSAGE.finditer(self.data)}
        self.roles = {int(found[1]): found[2] for found in MESSAGE.finditer(self.data)}

    def number(self, words: str) -> int:
        """Return the number of the message that holds some words."""
        return next(number for number, text in self.shown.items() if words in text)


class Keeper(BaseChatModel):
    """Answers as `answer` says; a gate holds its calls."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    answer: Callable[[Asked], Answer]
    asked: list[Asked] = Field(default_factory=list)
    entered: Any = None  # an Event that is set when a call has begun
    released: Any = None  # an Event that a call waits for

    @property
    def _llm_type(self) -> str:
        return "keeper"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        asked = Asked(messages)
        self.asked.append(asked)
        if self.entered is not None:
            self.entered.set()
            self.released.wait(10)
        answer = self.answer(asked)
        if isinstance(answer, Exception):
            raise answer
        message = AIMessage(answer) if isinstance(answer, str) else answer
        return ChatResult(generations=[ChatGeneration(message=message)])


def held() -> Any:
    """Return a gate for a keeper."""
    return {"entered": threading.Event(), "released": threading.Event()}


def says(*answers: Answer) -> Keeper:
    """Return a keeper that gives these answers, and then none that changes anything."""
    waiting = list(answers)
    return Keeper(answer=lambda _: waiting.pop(0) if waiting else "[]")


def knows(facts: Mapping[str, Sequence[dict[str, Any]]]) -> Keeper:
    """Return a keeper that answers, for each message with the words of a fact, with its operations."""

    def answer(asked: Asked) -> str:
        return json.dumps(operations_of(asked, facts))

    return Keeper(answer=answer)


def operations_of(asked: Asked, facts: Mapping[str, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {**operation, "messages": [number]}
        for number, text in asked.shown.items()
        for words, operations in facts.items()
        if words in text
        for operation in operations
    ]


def put(path: str, value: Any, op: str = "set") -> dict[str, Any]:
    return {"op": op, "path": path, "value": value}


def drop(path: str) -> dict[str, Any]:
    return {"op": "remove", "path": path}


def notes_and(operations: Callable[[Asked], Sequence[dict[str, Any]]]) -> Callable[[Asked], str]:
    """Return the answer of an observer: a line for each message, and behind them operations, if there are any."""

    def answer(asked: Asked) -> str:
        notes = ["2026-11-20", *(f"- [{number}] note on {text[:40]}" for number, text in asked.shown.items())]
        found = operations(asked)
        return "\n".join([*notes, *(["# Operations", json.dumps(found)] if found else [])])

    return answer


def observes(facts: Mapping[str, Sequence[dict[str, Any]]]) -> Keeper:
    """Return an observer that notes each message, and keeps what it knows."""
    return Keeper(answer=notes_and(lambda asked: operations_of(asked, facts)))
