"""Recall as a LangChain retriever."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence  # noqa: TC003 - pydantic reads the annotations
from dataclasses import replace
from datetime import datetime  # noqa: TC003 - likewise
from typing import TYPE_CHECKING, Any

from langchain_core.retrievers import BaseRetriever, LangSmithRetrieverParams
from langchain_core.runnables import RunnableConfig, ensure_config
from pydantic import ConfigDict, Field

from langchain_workingmem._documents.filters import both
from langchain_workingmem.faces.config import PerCall, resolve, scoped_ids
from langchain_workingmem.options import Ids, RecallArguments, Scope
from langchain_workingmem.recall import Query, search_messages

if TYPE_CHECKING:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.models import RecallResult


# in a LangChain retriever, `metadata` belongs to its runs
_FIELDS = {name: "metadata_filter" if name == "metadata" else name for name in RecallArguments.__annotations__}


class SemanticRecallRetriever(BaseRetriever):
    """Finds earlier messages of a user; `Memory.as_retriever` makes it.

    One document per hit, the best first. `page_content` is the window with its speakers. No message is in two documents: a
    hit in the window of a better one belongs to that document, unless `top_k` needs it. The metadata holds thread_id,
    thread_title, message_id, role, similarity, score and stored_at. Two round trips, sync or async.
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
        return super().invoke(input, config, ids=self._ids(config), timezone=_zone_in(config), **kwargs)

    async def ainvoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """Async twin of `invoke`."""
        return await super().ainvoke(input, config, ids=self._ids(config), timezone=_zone_in(config), **kwargs)

    def _ids(self, config: RunnableConfig | None) -> Ids:
        return resolve(
            ensure_config(config),
            thread_id=self.thread_id,
            user_id=self.user_id,
            trust_client_ids=self.trust_client_ids,
        )

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        ids: Ids | None = None,
        timezone: str | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        return list(self.memory._core.run(self._plan(query, ids, kwargs, timezone)).to_documents())

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        ids: Ids | None = None,
        timezone: str | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        return list((await self.memory._core.arun(self._plan(query, ids, kwargs, timezone))).to_documents())

    def _plan(self, query: str, ids: Ids | None, kwargs: dict[str, Any], timezone: str | None) -> Plan[RecallResult]:
        # the public search would add a second retriever run to the trace
        state = self.memory._core.state
        options = state.recalling
        arguments = {name: getattr(self, field) for name, field in _FIELDS.items()} | kwargs
        arguments["metadata"] = both(self.metadata_filter, kwargs.get("metadata"))
        found = scoped_ids(ids or self._ids(None), arguments["scope"] or options.scope)
        arguments |= {"thread_id": found.thread_id, "user_id": found.user_id}
        asked = Query.of(options, query, thread_filters=state.thread_filters, **arguments)
        return search_messages(state, replace(asked, timezone=timezone))

    def _get_ls_params(self, **kwargs: Any) -> LangSmithRetrieverParams:
        return LangSmithRetrieverParams(
            ls_retriever_name="semantic_recall",
            ls_vector_store_provider="redis",
            ls_embedding_model=self.memory._core.state.indexes.model,
        )


def _zone_in(config: RunnableConfig | None) -> str | None:
    return PerCall.of(ensure_config(config)).timezone
