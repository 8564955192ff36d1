"""A thread as a LangChain chat history, for RunnableWithMessageHistory and other code that wants one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage  # noqa: TC002 - part of the public signature
from langchain_core.runnables.utils import ConfigurableFieldSpec

from langchain_workingmem._redis.access import owner_of
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.runnable_history import step_of_run
from langchain_workingmem.turn import read_history

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.history import History
    from langchain_workingmem.options import HistoryOptions


class HasHistory(Protocol):
    """What a chat history needs of a `Memory`."""

    core: Core
    history: History
    history_options: HistoryOptions


class RedisChatMessageHistory(BaseChatMessageHistory):
    """One thread of a memory; `Memory.chat_history` makes it.

    Saving is idempotent by message id and keeps the order of the server, so several writers may share a session. What is
    read is valid for every provider: an unfinished tool call is kept, but not shown.
    """

    def __init__(
        self,
        memory: HasHistory,
        session_id: str,
        *,
        resource_id: str | None = None,
    ) -> None:
        self.session_id = check_id(session_id, "session_id")
        self.resource_id = None if resource_id is None else check_id(resource_id, "resource_id")
        self._memory = memory
        self._core = memory.core
        self._views: list[list[BaseMessage]] = []  # what unfinished runs of RunnableWithMessageHistory were given

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """Return what `HistoryOptions` shows, oldest first. One round trip."""
        step = step_of_run()
        return self._as_seen_at(step, self._core.run(self._read()))

    async def aget_messages(self) -> list[BaseMessage]:
        """Async twin of `messages`."""
        step = step_of_run()
        return self._as_seen_at(step, await self._core.arun(self._read()))

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Save messages at the end. One round trip, two without a `resource_id`."""
        thread_id, resource_id = self._core.run(self._ids())
        self._memory.history.append(messages, thread_id=thread_id, resource_id=resource_id)

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Async twin of `add_messages`."""
        thread_id, resource_id = await self._core.arun(self._ids())
        await self._memory.history.aappend(messages, thread_id=thread_id, resource_id=resource_id)

    def clear(self) -> None:
        """Delete all messages; the thread stays."""
        self._memory.history.clear(self.session_id, resource_id=self.resource_id)

    async def aclear(self) -> None:
        """Async twin of `clear`."""
        await self._memory.history.aclear(self.session_id, resource_id=self.resource_id)

    def _ids(self) -> Plan[tuple[str, str]]:
        return owner_of(self._core.state, self.session_id, self.resource_id)

    def _read(self) -> Plan[list[BaseMessage]]:
        return read_history(self._core.state, self.session_id, self.resource_id, self._memory.history_options)

    def _as_seen_at(
        self, step: Literal["begins"] | list[BaseMessage] | None, messages: list[BaseMessage]
    ) -> list[BaseMessage]:
        """Let RunnableWithMessageHistory see at the end of a run what it saw at the beginning.

        It reads the history again when a run ends, and takes that many messages off the front of its input, to save the
        rest. If somebody else wrote or deleted meanwhile, it would take off what the user has just said, or bring back what
        was deleted. Of several runs on one object, the view is this run's with which its input begins.
        """
        if step == "begins":
            self._views = [*self._views[-99:], messages]
        elif step is not None:
            ids = [message.id for message in step]
            mine = [view for view in self._views if [message.id for message in view] == ids[: len(view)]]
            if mine:
                view = max(mine, key=len)
                self._views = [other for other in self._views if other is not view]
                return view
        return messages


def config_specs() -> list[ConfigurableFieldSpec]:
    """Name the ids of a chat history as LangChain's configurable fields."""
    return [
        ConfigurableFieldSpec(
            id="session_id",
            annotation=str,
            name="Session id",
            description="The thread to remember; its thread_id elsewhere.",
            is_shared=True,
        ),
        ConfigurableFieldSpec(
            id="resource_id",
            annotation=str,
            name="Resource id",
            description="The user who owns the thread; None: who is authenticated, else whoever owns it.",
            default=None,
            is_shared=True,
        ),
    ]
