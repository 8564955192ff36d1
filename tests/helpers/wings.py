"""Models of the background: an observer that repeats what it reads, a keeper that keeps what the user says."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

_ELEMENT = re.compile(r'<(message|observation) n="(\d+)"([^>]*)>(.*?)</\1>', re.DOTALL)


def elements(messages: list[BaseMessage]) -> list[tuple[int, str, str]]:
    """Return what a model is given to read: number, attributes and text of each element."""
    text = str(messages[1].content)
    return [(int(number), about, unescape(inner)) for _, number, about, inner in _ELEMENT.findall(text)]


class Scripted(BaseChatModel):
    """Answers by `says`, and counts its calls."""

    calls: int = 0
    failure: Any = None  # an error that is raised instead

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def says(self, found: list[tuple[int, str, str]]) -> str:
        """Return the answer about elements."""
        raise NotImplementedError

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.says(elements(messages))))])


class Echo(Scripted):
    """An observer: a line for each element, with its words."""

    def says(self, found: list[tuple[int, str, str]]) -> str:
        return "\n".join(f"- [{number}] {' '.join(text.split())[:200]}" for number, _, text in found)


class Noting(Scripted):
    """A keeper of free text: a line for each message of the user."""

    def says(self, found: list[tuple[int, str, str]]) -> str:
        said = [(number, text) for number, about, text in found if 'role="user"' in about]
        return json.dumps([{"find": "", "replace": text, "messages": [number]} for number, text in said])
