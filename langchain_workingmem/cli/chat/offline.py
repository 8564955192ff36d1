"""A chat model without network, key or language model. By fixed rules, it stores facts and quotes memory.

It reads the same prompt as a language model, with its blocks of memory, and calls the same tools.
"""

from __future__ import annotations

import re
from html import escape, unescape
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_workingmem._text.copies import without_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.runnables import Runnable

UPDATE = "update_working_memory"
QUOTES = 3  # at most in an answer
LINE = '  - The user said: "'

_REMEMBER = re.compile(r"(?:please\s+)?(?:remember|note|keep in mind)(?:\s+that)?[\s:,]+(?P<fact>.+)", re.IGNORECASE)
_FACT = re.compile(
    r"(?:my|our)\s.+\s(?:is|are|was|were|has|have)\s.+|call me\s.+|i(?:['’]m| am| was| live| work| like| love| hate| have| prefer)\s.+",  # noqa: RUF001
    re.IGNORECASE,
)
# a later fact with the same beginning replaces an earlier one
_ONLY_ONE = re.compile(
    r"(?:my|our)\s.+?\s(?:is|are)\s(?:called|named)|(?:my|our)\s(?:\w+\s)*?(?:name|birthday|age|city|address|job|favou?rite(?:\s\w+)+)\s(?:is|are)|i live in|i work (?:as|at|for)|call me",
    re.IGNORECASE,
)
_DATA = re.compile(r"<data>\n(.*)\n</data>", re.DOTALL)
_TEMPLATE = re.compile(r"<template>\n(.*)\n</template>", re.DOTALL)
_SAID = re.compile(r'<message role="user"[^>]*? time="([^"]*)">(.*?)</message>', re.DOTALL)
_STOP_WORDS = (
    "a about am an and are at be been can could did do does for from had has have how i in is it its me my of on or our please "
    "remember tell that the their there this to was we were what when where which who whom whose why will with would you your"
)


class Offline(BaseChatModel):
    """Answers by fixed rules, from the prompt alone."""

    @property
    def _llm_type(self) -> str:
        return "offline"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools, of which it calls one: the one that updates working memory."""
        return self.bind(tools=[convert_to_openai_tool(one) for one in tools], **kwargs)

    def _generate(self, messages: list[BaseMessage], *_: Any, tools: Sequence[Any] = (), **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=_answer(messages, tools))])


# ---------------------------------------------------------------------- answers


def _answer(messages: Sequence[BaseMessage], tools: Sequence[Any]) -> AIMessage:
    """Store the facts in the user's message; without any, quote the prompt."""
    if isinstance(messages[-1], ToolMessage):
        return AIMessage(str(messages[-1].text).partition("\n")[0].rstrip(":") + ".")
    asked = next((message for message in reversed(messages) if isinstance(message, HumanMessage)), HumanMessage(""))
    said = str(without_memory(asked).text)
    # memory is in front of the user's words, or after the system prompt
    prompt = [str(message.text) for message in messages if isinstance(message, SystemMessage)]
    shown = "\n".join([*prompt, str(asked.text).removesuffix(said)])
    facts = _facts(said)
    if facts and UPDATE in {one["function"]["name"] for one in tools}:
        call = tool_call(name=UPDATE, args={"memory": noted(_document(shown), facts)}, id=f"call_{asked.id}")
        return AIMessage("", tool_calls=[call])
    earlier = [str(one.text) for one in messages if isinstance(one, HumanMessage) and one is not asked]
    return AIMessage(_quoted(said, shown, earlier))


def _document(shown: str) -> str:
    """Return the working memory of the prompt, escaped; while it is empty, the template."""
    data, template = _DATA.search(shown), _TEMPLATE.search(shown)
    if data and not data[1].startswith("(empty"):
        return data[1]
    return template[1] if template else ""


def _facts(said: str) -> list[str]:
    found = []
    for sentence in re.split(r"(?<=[.!?])\s+|\n+", said.strip()):
        request = _REMEMBER.fullmatch(sentence)
        fact = request["fact"] if request else sentence
        if (request or _FACT.fullmatch(fact)) and not fact.endswith("?"):
            found.append(fact.rstrip(".! "))
    return found


def noted(document: str, facts: Sequence[str]) -> str:
    """Add facts to a document, each as a line in the user's words, or replace the line of the same fact."""
    lines = document.rstrip().splitlines()
    for fact in facts:
        line = f'{LINE}{escape(fact, quote=False)}"'
        only = _ONLY_ONE.match(line, len(LINE))
        beginning = (line[: only.end()] if only else line).lower()
        at = next((at for at, old in enumerate(lines) if old.lower().startswith(beginning)), None)
        if at is not None:
            lines[at] = line
            continue
        end = next((at for at, old in enumerate(lines, 1) if old.startswith("- **Facts**:")), len(lines))
        while end < len(lines) and lines[end].startswith("  "):
            end += 1
        lines.insert(end, line)
    return "\n".join(lines)


def _quoted(said: str, shown: str, earlier: Sequence[str]) -> str:
    """Quote what has most words of the question: from working memory, from other threads, from this thread."""
    data = _DATA.search(shown)
    sources = [
        *(("Working memory says", line.strip().removeprefix("- ")) for line in (data[1] if data else "").splitlines()),
        *((f"On {time} you said", text) for time, text in _SAID.findall(shown)),
        *(("Earlier here you said", text) for text in reversed(earlier)),
    ]
    found: dict[str, tuple[int, str]] = {}
    for where, escaped in sources:
        text = unescape(escaped)
        common = len(_words(said) & _words(text))
        if common and not text.rstrip().endswith(("?", ":")):
            found.setdefault(text, (common, f"{where}: {text}"))
    best = sorted(found.values(), key=lambda one: -one[0])[:QUOTES]
    return "\n".join(line for _, line in best) or (
        "I find nothing about that in memory. I am no language model: I quote what you told me, and store sentences such as "
        '"my dog is called Nougat" or "remember that the train leaves at nine".'
    )


def _words(text: str) -> set[str]:
    return {word.removesuffix("s") for word in re.findall(r"\w+", text.lower())} - {*_STOP_WORDS.split()}
