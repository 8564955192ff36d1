"""The chat model of the examples: a real model if there is a key, else a few rules that work offline."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from langchain_core.messages import BaseMessage, ToolCall

MARK = "langchain_workingmem"  # of a copy that memory shows the model


class RuleBasedModel(BaseChatModel):
    """Answers with the first rule that returns something. It knows only the messages that it gets."""

    rules: list[Any]  # functions of the last user text ("" after a tool result) and of the whole prompt

    @property
    def _llm_type(self) -> str:
        return "rules"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self.bind(tools=tools, **kwargs)

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        last = messages[-1]
        # the question is a copy with memory before the user's words; the copy keeps the user's words here
        text = (
            "" if isinstance(last, ToolMessage) else str(last.additional_kwargs.get(MARK, {}).get("content", last.text))
        )
        prompt = "\n".join(str(message.text) for message in messages)
        answers = (rule(text, prompt) for rule in self.rules)
        answer = next((found for found in answers if found is not None), "Noted.")
        message = AIMessage(answer) if isinstance(answer, str) else answer
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        (answer,) = self._generate(messages).generations
        for word in re.findall(r"\S+\s*", str(answer.message.text)):
            yield ChatGenerationChunk(message=AIMessageChunk(word))
        yield ChatGenerationChunk(message=AIMessageChunk("", tool_calls=getattr(answer.message, "tool_calls", [])))


def chat_model(*rules: Callable[[str, str], AIMessage | str | None]) -> BaseChatModel:
    """Return ChatOpenAI if OPENAI_API_KEY is set, else a model with these rules; print its name."""
    if os.environ.get("OPENAI_API_KEY"):
        from langchain_openai import ChatOpenAI

        name = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")
        print(f"model: {name}")
        return ChatOpenAI(model=name)
    print("model: offline rules (set OPENAI_API_KEY for a real one)")
    return RuleBasedModel(rules=list(rules))


def knows(asked: str, fact: str, answer: str) -> Callable[[str, str], str | None]:
    """Answer a question if the prompt contains a fact; else say that it is not known."""

    def rule(text: str, prompt: str) -> str | None:
        if asked not in text.lower():
            return None
        return answer if fact in prompt else "I do not know."

    return rule


def calls(trigger: str, tool: str, **arguments: Any) -> Callable[[str, str], AIMessage | None]:
    """Call a tool if the user's text contains the trigger."""

    def rule(text: str, _: str) -> AIMessage | None:
        if trigger not in text:
            return None
        call: ToolCall = {"name": tool, "args": arguments, "id": f"call-{tool}"}
        return AIMessage("", tool_calls=[call])

    return rule


def show(*messages: BaseMessage) -> None:
    """Print messages of the user and of the assistant."""
    for message in messages:
        if not isinstance(message, SystemMessage) and message.text:
            print(f"  {'user' if isinstance(message, HumanMessage) else 'assistant'}: {message.text}")
