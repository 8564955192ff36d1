"""Scripted observers: chat models that read what an observer is given, and answer lines."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

_ELEMENT = re.compile(r'<(message|observation) n="(\d+)"[^>]*>(.*?)</\1>', re.DOTALL)


def elements(messages: list[BaseMessage]) -> list[tuple[str, int, str]]:
    """Return what an observer or a reflector is given: kind, number and text of each element."""
    text = str(messages[1].content)
    return [(kind, int(number), unescape(inner)) for kind, number, inner in _ELEMENT.findall(text)]


class Echo(BaseChatModel):
    """Writes a line for each message with the beginning of its text, and condenses two observations into one."""

    characters: int = 200  # of each text
    asked: list[list[BaseMessage]] = []

    @property
    def _llm_type(self) -> str:
        return "echo"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.asked.append(messages)
        found = elements(messages)
        lines = [f"- [{number}] {' '.join(text.split())[: self.characters]}" for _, number, text in found]
        if found and found[0][0] == "observation":
            pairs = zip(found[::2], [*found[1::2], found[-1]], strict=False)
            lines = [
                f"! [{a},{b}] {x[: self.characters // 3]}; {y[: self.characters // 3]}"
                for (_, a, x), (_, b, y) in pairs
            ]
        return ChatResult(generations=[ChatGeneration(message=AIMessage("\n".join(lines)))])
