"""What chains use: recall as a retriever, and a thread as a chat history."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence  # noqa: TC003 - pydantic reads the annotations
from dataclasses import replace
from datetime import datetime  # noqa: TC003 - likewise
from typing import TYPE_CHECKING, Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage  # noqa: TC002 - part of the public signature
from langchain_core.retrievers import BaseRetriever, LangSmithRetrieverParams
from langchain_core.runnables import RunnableConfig, ensure_config
from pydantic import ConfigDict, Field

from langchain_workingmem._redis.filters import both
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.scripts import owner_of
from langchain_workingmem.faces.config import PerCall, resolve, scoped_ids
from langchain_workingmem.options import Ids, RecallArguments, Scope
from langchain_workingmem.recall import Query, search_messages
from langchain_workingmem.turn import read_history

if TYPE_CHECKING:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.models import RecallResult


# in a LangChain retriever, `metadata` belongs to its runs
_FIELDS = {name: "metadata_filter" if name == "metadata" else name for name in RecallArguments.__annotations__}


class SemanticRecallRetriever(BaseRetriever):
    """Finds earlier messages of a user; `Memory.as_retriever` makes it.

    One document per hit, the best first. `page_content` is the window with its speakers. No message is in two
    documents: a hit in the window of a better one belongs to that document, unless `top_k` needs it. The metadata holds
    thread_id, thread_title, message_id, role, similarity, score and stored_at. Two round trips, sync or async.
    """

    memory: Any = Field(repr=False)
    thread_id: str | None = None
    user_id: str | Callable[[Ids], str] | None = None  # a function gets the ids that the run names
    # as in `memory.recall.search`
    scope: Scope | None = None
    top_k: int | None = None
    message_range: int | tuple[int, int] | None = None
    threshold: float | None = None
    max_tokens: int | None = None
    roles: Sequence[str] | str | None = None
    since: datetime | None = None
    until: datetime | None = None
    now: datetime | None = None
    exclude_message_ids: Collection[str] = ()
    metadata_filter: Mapping[str, Any] | None = None
    trust_client_ids: bool = False  # as in `Memory.tools`

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """Find documents; ids that are not bound come from the config.

        `top_k` may be passed, and `metadata`, which narrows what the retriever's own filter passes.
        """
        return super().invoke(input, config, run=ensure_config(config), **kwargs)

    async def ainvoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """Async twin of `invoke`."""
        return await super().ainvoke(input, config, run=ensure_config(config), **kwargs)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        return list(self.memory._core.run(self._plan(query, **kwargs)).to_documents())

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        return list((await self.memory._core.arun(self._plan(query, **kwargs))).to_documents())

    def _plan(self, query: str, run: RunnableConfig, **asked: Any) -> Plan[RecallResult]:
        # the public search would add a second retriever run to the trace
        state = self.memory._core.state
        arguments = {name: getattr(self, field) for name, field in _FIELDS.items()} | asked
        arguments["metadata"] = both(self.metadata_filter, asked.get("metadata"))
        bound: Any = {name: getattr(self, name) for name in ("thread_id", "user_id", "trust_client_ids")}
        ids = scoped_ids(resolve(run, **bound), arguments["scope"] or state.recalling.scope)
        arguments |= {"thread_id": ids.thread_id, "user_id": ids.user_id, "thread_filters": state.thread_filters}
        found = Query.of(state.recalling, query, **arguments)
        return search_messages(state, replace(found, timezone=PerCall.of(run).timezone))

    def _get_ls_params(self, **kwargs: Any) -> LangSmithRetrieverParams:
        return LangSmithRetrieverParams(
            ls_retriever_name="semantic_recall",
            ls_vector_store_provider="redis",
            ls_embedding_model=self.memory._core.state.indexes.model,
        )


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
