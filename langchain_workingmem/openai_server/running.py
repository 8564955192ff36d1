"""Runs the agent for a request, and yields what it says."""

from __future__ import annotations

from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessageChunk
from langchain_core.messages.ai import add_usage
from langgraph.pregel.protocol import PregelProtocol

from langchain_workingmem._text.said import words_of
from langchain_workingmem.errors import MessageNotFoundError, ThreadNotFoundError
from langchain_workingmem.history import Branch, save_messages
from langchain_workingmem.openai_server.protocol import BREAK, Answer, answer_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from langchain_core.messages import BaseMessage
    from langchain_core.messages.ai import UsageMetadata
    from langchain_core.outputs import LLMResult
    from langchain_core.runnables import Runnable, RunnableConfig

    from langchain_workingmem.memory import Memory
    from langchain_workingmem.openai_server.protocol import Asked
    from langchain_workingmem.serving import Stream

_FIRST = "first-"  # begins the ids of messages that begin a chat
_NOTHING = {"read_only": True, "recall": False, "last_messages": 0}  # what a run for tasks sees of memory
# metadata of the model calls that middleware of LangChain makes for itself
_INTERNAL = ("lc_internal_call", "lc_source")


class Usage(BaseCallbackHandler):
    """Counts the tokens of all model calls of a run."""

    def __init__(self) -> None:
        self.total: UsageMetadata | None = None

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        """Add those of one call."""
        for one in response.generations[0][:1]:
            if counted := getattr(getattr(one, "message", None), "usage_metadata", None):
                self.total = add_usage(self.total, counted)


async def answering(
    agent: Runnable[Any, Any], memory: Memory | None, asked: Asked, user: str, usage: Usage, stream: Stream
) -> AsyncIterator[str | Answer]:
    """Run the agent. Yields the words of a streamed answer as they come, and at the end the whole answer."""
    configurable: dict[str, Any] = {"thread_id": asked.thread_id, "user_id": user}
    if asked.thread_id is None:
        configurable |= {"thread_id": f"task-{uuid4()}", "memory": _NOTHING}
    elif memory is not None:
        await _begin(memory, asked.messages, asked.thread_id, user)
    config: RunnableConfig = {"configurable": configurable, "callbacks": [usage]}
    given = {"messages": asked.messages}
    if not isinstance(agent, PregelProtocol):
        found = answer_of(await agent.ainvoke(given, config))
        if asked.is_streamed:
            yield found.text
        yield found
        return
    modes: list[Any] = ["values", "messages"] if asked.is_streamed and stream == "words" else ["values"]
    state: Any = None
    said = _Said()
    async with aclosing(agent.astream(given, config, stream_mode=modes)) as events:  # type: ignore[type-var]
        async for mode, part in events:
            if mode == "values":
                state = part
            elif text := said.words(*part):
                yield text
    found = answer_of(state)
    if asked.is_streamed and (text := said.rest(found.text)):
        yield text
    yield found


async def _begin(memory: Memory, messages: list[BaseMessage], thread_id: str, user: str) -> None:
    """If a chat begins, give its first message the id of its words; if it begins again, supersede all others.

    So several questions may begin a chat at one moment, and none replaces another.
    """
    first, *more = [one for one in messages if one.type != "system"]
    if more:  # perhaps the end of a conversation that is too long for the client
        return
    first.id = f"{_FIRST}{words_of(first)}"
    begun = await memory.history.apage(thread_id, limit=1, resource_id=user)
    if not begun.items or not (begin := begun.items[0].message.id or "").startswith(_FIRST):
        return
    with suppress(ThreadNotFoundError, MessageNotFoundError):  # it was deleted meanwhile
        await memory.history.atruncate(thread_id, after=begin, resource_id=user)
        if begin != first.id:
            left = Branch(left=[begin])
            await memory._core.arun(save_messages(memory._core, [], thread_id, user, mode="update", branch=left))


class _Said:
    """What was streamed of the messages of a run."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._text = ""  # of the message that is streamed
        self._has_more = False  # something was streamed before it

    def words(self, message: Any, about: dict[str, Any]) -> str:
        """Return what a chunk of a model adds to the stream."""
        text = str(message.text) if isinstance(message, AIMessageChunk) else ""
        if not text or any(about.get(key) for key in _INTERNAL):
            return ""
        if message.id != self._id:
            self._has_more = self._has_more or bool(self._text)
            self._id, self._text = message.id, ""
        front = BREAK if self._has_more and not self._text else ""
        self._text += text
        return front + text

    def rest(self, answer: str) -> str:
        """Return what is still to be streamed, so that the text after the last break is the answer."""
        if answer.startswith(self._text):
            return answer[len(self._text) :] if self._text or not self._has_more else BREAK + answer
        return BREAK + answer
