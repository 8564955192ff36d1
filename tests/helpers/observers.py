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
    """Answers a line for each `together` elements, which cites them and repeats the beginning of their words.

    It condenses observations to a third: two in one line.
    """

    together: int = 1
    characters: int = 200  # of each text
    calls: int = 0
    failure: Any = None  # an error that is raised instead

    @property
    def _llm_type(self) -> str:
        return "echo"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        found = elements(messages)
        is_log = bool(found) and found[0][0] == "observation"
        together, most = (max(self.together, 2), self.characters // 3) if is_log else (self.together, self.characters)
        lines = []
        for start in range(0, len(found), together):
            _, numbers, texts = zip(*found[start : start + together], strict=True)
            words = " and ".join(" ".join(text.split())[:most] for text in texts)
            lines.append(f"- [{','.join(map(str, numbers))}] {words}")
        return ChatResult(generations=[ChatGeneration(message=AIMessage("\n".join(lines)))])
