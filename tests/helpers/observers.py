"""Chat models that observe: they write down what they are shown, word for word."""

from __future__ import annotations

import re
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

_ELEMENT = re.compile(r'<(?:message|observation) n="(\d+)"[^>]*>(.*?)</(?:message|observation)>', re.DOTALL)


class Echo(BaseChatModel):
    """Answers a line for each `together` elements, which cites them and repeats their words."""

    together: int = 1
    calls: int = 0
    failure: Exception | None = None  # raised instead

    model_config = {"arbitrary_types_allowed": True}

    @property
    def _llm_type(self) -> str:
        return "echo"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        found = _ELEMENT.findall(str(messages[-1].content))
        lines = []
        for start in range(0, len(found), self.together):
            some = found[start : start + self.together]
            numbers, texts = zip(*some, strict=True)
            lines.append(f"- [{','.join(numbers)}] {' and '.join(texts)}")
        return ChatResult(generations=[ChatGeneration(message=AIMessage("\n".join(lines)))])
