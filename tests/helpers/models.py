"""A chat model that plays a script and records what it was sent, and the bench of the tests of agents."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool, ToolException, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict, Field

from langchain_workingmem import Memory, RecallOptions
from langchain_workingmem._text.sending import MARK, without_block
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.embeddings import WordEmbeddings

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t", "user_id": "ann"}}

Line = str | AIMessage | Exception | Callable[[list[BaseMessage]], "str | AIMessage"]


class ModelDownError(Exception):
    """What a provider that is down answers."""


class Scripted(BaseChatModel):
    """Says the lines of its script, one a call, and fails the test when it is asked for more.

    A line is a text, a message, an exception to raise, or a function of the messages that were sent.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    script: list[Any]
    seen: list[list[BaseMessage]] = Field(default_factory=list)  # what each call was sent, failing calls included
    tools: list[list[str]] = Field(default_factory=list)  # the names of the tools that each call was given
    lock: Any = Field(default_factory=threading.Lock, exclude=True)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @classmethod
    def says(cls, *script: Line) -> Self:
        return cls(script=list(script))

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        return self.bind(tools=[convert_to_openai_tool(one) for one in tools], **kwargs)

    def _next(self, messages: list[BaseMessage], tools: Sequence[Any]) -> AIMessage:
        with self.lock:
            self.seen.append([message.model_copy(deep=True) for message in messages])
            self.tools.append([one["function"]["name"] for one in tools])
            assert self.script, f"the script is at its end, and the model is asked for more: {messages}"
            line = self.script.pop(0)
        if isinstance(line, Exception):
            raise line
        answer = line(messages) if callable(line) else line
        return AIMessage(answer) if isinstance(answer, str) else answer.model_copy(deep=True)

    def _generate(self, messages: list[BaseMessage], *_: Any, tools: Sequence[Any] = (), **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._next(messages, tools))])

    def _stream(
        self, messages: list[BaseMessage], *_: Any, tools: Sequence[Any] = (), **__: Any
    ) -> Iterator[ChatGenerationChunk]:
        answer = self._next(messages, tools)
        for word in str(answer.text).split():
            yield _chunk(AIMessageChunk(content=f"{word} ", id=answer.id))
        for at, call in enumerate(answer.tool_calls):
            first, second = _halves(json.dumps(call["args"]))
            begin = tool_call_chunk(name=call["name"], args=first, id=call["id"], index=at)
            rest = tool_call_chunk(args=second, index=at)
            yield _chunk(AIMessageChunk(content="", id=answer.id, tool_call_chunks=[begin]))
            yield _chunk(AIMessageChunk(content="", id=answer.id, tool_call_chunks=[rest]))
        yield _chunk(AIMessageChunk(content="", id=answer.id, chunk_position="last"))


def _chunk(message: AIMessageChunk) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=message)


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def calling(*calls: tuple[str, dict[str, Any]], id: str, text: str = "") -> AIMessage:
    """One answer with these tool calls, whose ids are `<id>-0`, `<id>-1`."""
    made: list[Any] = [{"name": name, "args": args, "id": f"{id}-{at}"} for at, (name, args) in enumerate(calls)]
    return AIMessage(text, id=id, tool_calls=made)


def ask(text: str, id: str | None = None) -> dict[str, list[AnyMessage]]:
    """Input of an agent: what the user says."""
    return {"messages": [HumanMessage(text, id=id)]}


def own(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Show messages as people and models said them, without what memory has put in front of a question."""
    return [without_block(message) for message in messages]


def remembered(messages: Sequence[BaseMessage]) -> str:
    """What memory has put in front of the words of the last question; "" for nothing."""
    asked = next(message for message in reversed(messages) if isinstance(message, HumanMessage))
    front = str(asked.text).removesuffix(str(without_block(asked).text))
    assert bool(front) == (MARK in asked.additional_kwargs)
    assert not front or front.endswith("\n\n")
    return front[:-2]


def said(messages: Sequence[BaseMessage]) -> list[str]:
    """Write messages as lines, with calls; a block of a system prompt is one line, memory's text is left out."""
    lines = []
    for message in own(messages):
        blocks = [message.content] if isinstance(message.content, str) else message.content
        texts = [block if isinstance(block, str) else str(block.get("text", block)) for block in blocks]
        calls = [f"{call['name']}#{call['id']}" for call in getattr(message, "tool_calls", ())]
        lines += [f"{message.type}: {text}{' ' if text and calls else ''}{' '.join(calls)}" for text in texts]
    return lines


def configured(thread_id: str, user_id: str | None = None, **more: Any) -> RunnableConfig:
    ids = {"thread_id": thread_id, "user_id": user_id}
    return {"configurable": {name: value for name, value in ids.items() if value is not None} | more}


@tool
def weather(city: str) -> str:
    """Say how the weather is."""
    return f"sunny in {city}"


@tool(return_direct=True)
def final(text: str) -> str:
    """Answer the user."""
    return f"direct {text}"


@tool
def refuses(text: str) -> str:
    """Fail, in words for the model."""
    raise ToolException(f"no {text}")


refuses.handle_tool_error = True


@tool
def breaks(text: str) -> str:
    """Fail, and end the run."""
    raise RuntimeError(f"broken {text}")


def handing_over(face: str, inner: Any) -> BaseTool:
    """Make a tool that asks another agent, as the documentation of LangChain does it."""

    @tool
    def expert(question: str) -> str:
        """Ask somebody who knows."""
        return str(inner.invoke(ask(question))["messages"][-1].text)

    @tool("expert")
    async def aexpert(question: str) -> str:
        """Ask somebody who knows."""
        return str((await inner.ainvoke(ask(question)))["messages"][-1].text)

    return expert if face == "sync" else aexpert


class Bench:
    """Memories on the test server, and agents that are run by `invoke` or by `ainvoke`."""

    def __init__(self, url: str, prefix: str, face: str, runner: asyncio.Runner) -> None:
        self.url = url
        self.prefix = prefix
        self.face = face
        self.runner = runner
        self.embeddings = WordEmbeddings()
        self._made: list[Memory] = []

    def memory(self, **options: Any) -> Memory:
        """Make a memory; without options it keeps history only."""
        memory = Memory(options.pop("redis_url", self.url), **{"key_prefix": self.prefix, **options})
        self._made.append(memory)
        return memory

    def recalling(self, **options: Any) -> Memory:
        """Make a memory that recalls one message from anywhere, without its neighbours."""
        recall = RecallOptions(top_k=1, message_range=0)
        return self.memory(**{"embeddings": self.embeddings, "recall": recall, **options})

    def run(self, agent: Any, given: Any, config: RunnableConfig | None = CONFIG, **more: Any) -> Any:
        if self.face == "sync":
            return agent.invoke(given, config, **more)
        return self.runner.run(agent.ainvoke(given, config, **more))

    def stream(self, agent: Any, given: Any, config: RunnableConfig = CONFIG, **more: Any) -> list[Any]:
        if self.face == "sync":
            return list(agent.stream(given, config, **more))
        return self.runner.run(_listed(agent.astream(given, config, **more)))

    def events(self, agent: Any, given: Any, config: RunnableConfig = CONFIG) -> list[Any]:
        return self.runner.run(_listed(agent.astream_events(given, config, version="v2")))

    def close(self) -> None:
        for memory in self._made:
            self.runner.run(memory.aclose())


async def _listed(items: Any) -> list[Any]:
    return [item async for item in items]


def agent_of(model: BaseChatModel, memory: Memory, *, tools: Sequence[Any] = (), **options: Any) -> Any:
    """Make an agent whose only middleware is memory."""
    return create_agent(model, list(tools), middleware=[MemoryMiddleware(memory)], **options)
