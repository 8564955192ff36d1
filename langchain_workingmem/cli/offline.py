"""A chat model without network, key or language model: by fixed rules, it stores facts with its tool and quotes its prompt."""

from __future__ import annotations

import re
from html import escape, unescape
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_workingmem._text.sending import without_block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.runnables import Runnable

UPDATE = "update_working_memory"
QUOTES = 3  # at most in an answer
_REQUEST = re.compile(r"(?:please )?(?:remember|note)(?: that)?[ :,]+", re.IGNORECASE)
_FACT = re.compile(
    r"(?:my|our) .+ (?:is|are|has|have) .+|i (?:am|live|work|like|love|hate|have|prefer) .+", re.IGNORECASE
)
_DATA = re.compile(r"<data>\n(.*)\n</data>", re.DOTALL)
_SAID = re.compile(r'<message role="user"[^>]*>(.*?)</message>', re.DOTALL)
_NOTHING = (
    "I find nothing about that in memory. I am no language model: I quote what you told me, and store sentences such as "
    '"my dog is called Nougat" or "remember that the train leaves at nine".'
)


class Offline(BaseChatModel):
    """Answers by fixed rules, from the prompt alone."""

    @property
    def _llm_type(self) -> str:
        return "offline"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools, of which it calls one: the one that updates working memory."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(self, messages: list[BaseMessage], *_: Any, tools: Sequence[Any] = (), **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=_answer(messages, tools))])


def _answer(messages: Sequence[BaseMessage], tools: Sequence[Any]) -> AIMessage:
    """Store the facts in the user's message; without any, quote the prompt."""
    if isinstance(messages[-1], ToolMessage):
        return AIMessage("Noted.")
    *earlier, last = [message for message in messages if isinstance(message, HumanMessage)]
    question = str(without_block(last).text)
    # memory is in front of the user's words, or after the system prompt
    system_texts = [str(message.text) for message in messages if isinstance(message, SystemMessage)]
    prompt = "\n".join([*system_texts, str(last.text).removesuffix(question)])
    match = _DATA.search(prompt)
    document = match[1] if match and not match[1].startswith("(empty") else ""
    facts = [
        _REQUEST.sub("", sentence).rstrip(".! ")
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", question.strip())
        if (_REQUEST.match(sentence) or _FACT.fullmatch(sentence)) and not sentence.endswith("?")
    ]
    if facts and UPDATE in {tool["function"]["name"] for tool in tools}:
        lines = [*filter(None, document.splitlines()), *(f"- {escape(fact, quote=False)}" for fact in facts)]
        call = tool_call(name=UPDATE, args={"memory": "\n".join(dict.fromkeys(lines))}, id=f"call_{last.id}")
        return AIMessage("", tool_calls=[call])
    sources = [
        *(("Working memory says", line.removeprefix("- ")) for line in document.splitlines()),
        *(("Earlier you said", text) for text in _SAID.findall(prompt)),
        *(("Earlier here you said", str(message.text)) for message in reversed(earlier)),
    ]
    intros: dict[str, str] = {}
    for intro, text in sources:
        intros.setdefault(unescape(text), intro)
    words = _words(question)
    best = sorted(intros, key=lambda text: -sum(map(len, words & _words(text))))[:QUOTES]
    return AIMessage("\n".join(f"{intros[text]}: {text}" for text in best if words & _words(text)) or _NOTHING)


def _words(text: str) -> set[str]:
    """Return the words of a text that are not very short."""
    return {*re.findall(r"\w{3,}", text.lower())}
