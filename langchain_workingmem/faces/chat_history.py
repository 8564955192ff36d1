"""A thread as a LangChain chat history, for RunnableWithMessageHistory and other code that needs one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage  # noqa: TC002 - part of the public signature

from langchain_workingmem._redis.access import owner_of
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.turn import read_history

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.core import Core


class RedisChatMessageHistory(BaseChatMessageHistory):
    """One thread of a memory; `Memory.chat_history` makes it.

    Saving is idempotent by message id, and the server sets the order, so several writers may share a session. Every
    provider accepts what is read: an unfinished tool call is stored, but not shown.
    """

    def __init__(self, memory: Any, session_id: str, *, user_id: str | None = None) -> None:
        self.session_id = check_id(session_id, "session_id")
        self.user_id = None if user_id is None else check_id(user_id, "user_id")
        self._memory = memory
        self._core: Core = memory._core

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """Return what `HistoryOptions` shows, oldest first. One round trip."""
        return self._core.run(self._read())

    async def aget_messages(self) -> list[BaseMessage]:
        """Async twin of `messages`."""
        return await self._core.arun(self._read())

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Save messages at the end. One round trip, two without a `user_id`."""
        thread_id, user_id = self._core.run(self._ids())
        self._memory.history.append(messages, thread_id=thread_id, user_id=user_id)

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Async twin of `add_messages`."""
        thread_id, user_id = await self._core.arun(self._ids())
        await self._memory.history.aappend(messages, thread_id=thread_id, user_id=user_id)

    def clear(self) -> None:
        """Delete all messages; the thread stays."""
        self._memory.history.clear(self.session_id, user_id=self.user_id)

    async def aclear(self) -> None:
        """Async twin of `clear`."""
        await self._memory.history.aclear(self.session_id, user_id=self.user_id)

    def _ids(self) -> Plan[tuple[str, str]]:
        return owner_of(self._core.state, self.session_id, self.user_id)

    def _read(self) -> Plan[list[BaseMessage]]:
        return read_history(self._core.state, self.session_id, self.user_id, self._memory._turn.history)
