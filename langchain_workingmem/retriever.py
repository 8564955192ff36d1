"""Recall as a LangChain retriever."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - pydantic reads the annotation
from typing import TYPE_CHECKING, Any

from langchain_core.retrievers import BaseRetriever, LangSmithRetrieverParams
from langchain_core.runnables import RunnableConfig, ensure_config
from pydantic import ConfigDict, Field

from langchain_workingmem.ids import Ids, resolve
from langchain_workingmem.options import Scope  # noqa: TC001 - pydantic reads the annotation
from langchain_workingmem.plans.recall import Query, search

if TYPE_CHECKING:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document

    from langchain_workingmem.models import RecallResult
    from langchain_workingmem.plans.effects import Plan


class SemanticRecallRetriever(BaseRetriever):
    """Finds earlier messages of a user; `Memory.as_retriever` makes it.

    One document per hit, the best first. `page_content` is the window; the metadata holds thread_id, thread_title,
    message_id, role, similarity, score and stored_at. Two round trips, sync or async.
    """

    memory: Any = Field(repr=False)
    thread_id: str | None = None
    resource_id: str | None = None
    # as in `memory.recall.search`
    scope: Scope | None = None
    top_k: int | None = None
    message_range: int | tuple[int, int] | None = None
    threshold: float | None = None
    max_tokens: int | None = None
    roles: list[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    exclude_message_ids: list[str] = Field(default_factory=list)
    metadata_filter: dict[str, Any] | None = None  # `metadata` is that of the runs, for every retriever

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """Find documents; ids that are not bound come from the config. `top_k` may be passed."""
        return super().invoke(input, config, ids=self._ids(config), **kwargs)

    async def ainvoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """Async twin of `invoke`."""
        return await super().ainvoke(input, config, ids=self._ids(config), **kwargs)

    def _ids(self, config: RunnableConfig | None) -> Ids:
        return resolve(ensure_config(config), thread_id=self.thread_id, resource_id=self.resource_id)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, ids: Ids | None = None, **kwargs: Any
    ) -> list[Document]:
        return list(self.memory.core.run(self._plan(query, ids, kwargs)).to_documents())

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, ids: Ids | None = None, **kwargs: Any
    ) -> list[Document]:
        return list((await self.memory.core.arun(self._plan(query, ids, kwargs))).to_documents())

    def _plan(self, query: str, ids: Ids | None, kwargs: dict[str, Any]) -> Plan[RecallResult]:
        # not the public search, which would be a second retriever run in the trace
        space = self.memory.core.space
        options = space.recalling
        known = ids or Ids(self.thread_id, self.resource_id)
        over_resource = (kwargs.get("scope") or self.scope or options.scope) == "resource"
        # a bound user is searched from within anybody's conversation
        thread_id = self.thread_id if self.resource_id and over_resource else known.thread_id
        arguments = {
            "scope": self.scope,
            "top_k": self.top_k,
            "message_range": self.message_range,
            "threshold": self.threshold,
            "max_tokens": self.max_tokens,
            "roles": self.roles,
            "metadata": self.metadata_filter,
            **kwargs,
        }
        return search(space, Query.of(options, query, thread_id=thread_id, resource_id=known.resource_id, **arguments))

    def _get_ls_params(self, **kwargs: Any) -> LangSmithRetrieverParams:
        return LangSmithRetrieverParams(
            ls_retriever_name="semantic_recall",
            ls_vector_store_provider="redis",
            ls_embedding_model=self.memory.core.space.model,
        )
