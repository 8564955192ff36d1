"""The faces of a memory: what it looks like to agents, graphs, chains and models. Each is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from langchain_core.runnables import RunnableLambda
    from langchain_core.runnables.utils import ConfigurableFieldSpec
    from langchain_core.tools import BaseTool

    from langchain_workingmem.chat_history import RedisChatMessageHistory
    from langchain_workingmem.memory import Memory
    from langchain_workingmem.models import Diagnosis
    from langchain_workingmem.options import HistoryOptions, Scope
    from langchain_workingmem.parts.base import Core
    from langchain_workingmem.retriever import SemanticRecallRetriever


class Faces:
    """The part of `Memory` that makes tools, nodes, retrievers and chat histories."""

    core: Core
    history_options: HistoryOptions

    def tools(
        self,
        *,
        thread_id: str | None = None,
        resource_id: str | None = None,
        include: Sequence[str] | None = None,
        name: str | None = None,
    ) -> list[BaseTool]:
        """Return tools for `bind_tools`, ToolNode, `create_agent` or bare `invoke`; they are sync and async.

        `update_working_memory`, `get_working_memory`, `clear_working_memory` as `WorkingMemoryOptions.tools` says, and
        `search_memory` with recall; `include` names others. Ids are bound here, or come from the run: its context, or
        `config["configurable"]`. They are never arguments, so a model cannot choose them. What a tool refuses it says
        to the model, instead of raising. Beside the tools of another memory, `name="team"` makes them
        `update_working_memory_team` and so on.
        """
        from langchain_workingmem.tools import memory_tools

        return memory_tools(self.core, thread_id=thread_id, resource_id=resource_id, include=include, name=name)

    def load_node(self, *, into: str = "messages", read_only: bool = False) -> RunnableLambda[Any, dict[str, Any]]:
        """Return a StateGraph node that shows memory to the model node behind it; sync and async.

        `into="messages"` rewrites that channel (with its `add_messages` reducer): your system messages, blocks of memory,
        what is recalled, the history, the new messages; what memory adds is marked and leaves at the next turn.
        stream_mode="messages" carries what the node loads.
        Another name puts a `MemoryContext` into that channel of your state, and touches no message.
        Ids come from the run: its context or `config["configurable"]`. Two round trips.
        """
        from langchain_workingmem.nodes import load_node

        return load_node(cast("Memory", self), into=into, read_only=read_only)

    def save_node(self) -> RunnableLambda[Any, dict[str, Any]]:
        """Return a StateGraph node that saves the turn: the messages from what the user said last on.

        One round trip; safe under retry policies, because saving is idempotent.
        """
        from langchain_workingmem.nodes import save_node

        return save_node(cast("Memory", self))

    def as_retriever(
        self,
        *,
        thread_id: str | None = None,
        resource_id: str | None = None,
        scope: Scope | None = None,
        top_k: int | None = None,
        message_range: int | tuple[int, int] | None = None,
        threshold: float | None = None,
        max_tokens: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        roles: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        exclude_message_ids: Collection[str] = (),
    ) -> SemanticRecallRetriever:
        """Return a retriever over recall: one document per hit, its window as text, ids and similarity as metadata.

        Ids that are not bound here come from the config of the call; `top_k` may be passed with a call as well.
        """
        from langchain_workingmem.retriever import SemanticRecallRetriever

        return SemanticRecallRetriever(
            memory=self,
            thread_id=thread_id,
            resource_id=resource_id,
            scope=scope,
            top_k=top_k,
            message_range=message_range,
            threshold=threshold,
            max_tokens=max_tokens,
            since=since,
            until=until,
            exclude_message_ids=exclude_message_ids,
            roles=roles,
            metadata_filter=metadata,
        )

    def chat_history(self, session_id: str, resource_id: str | None = None) -> RedisChatMessageHistory:
        """Return a thread as a `BaseChatMessageHistory`; `session_id` is the thread's id.

        What it shows is what `HistoryOptions` says, `last_messages` first of all; everything is kept. With `resource_id` left
        out the thread's owner counts, and a new thread owns itself. Pass this method to RunnableWithMessageHistory as the
        factory, with `history_factory_config=memory.config_specs` to name the user in the config as well.
        """
        from langchain_workingmem.chat_history import RedisChatMessageHistory

        return RedisChatMessageHistory(cast("Memory", self), session_id, resource_id=resource_id)

    @property
    def config_specs(self) -> list[ConfigurableFieldSpec]:
        """Return the ids that RunnableWithMessageHistory takes from `config["configurable"]` for `chat_history`."""
        from langchain_workingmem.chat_history import config_specs

        return config_specs()

    def doctor(self) -> Diagnosis:
        """Look at the server, the indexes, the vectors and the model, and say what is wrong and what helps.

        Findings: version, Search, persistence, eviction, memory in use, both indexes, messages without vectors of the present
        settings (all of the newest 1,000 threads, their newest 100; the finding says whether that was everything), and
        whether the embedding model fits. Nothing is changed, and no right but to read is needed: what this user of Redis
        may not see is "unknown", and a server that cannot be reached is a finding, not an exception.
        About eight round trips, and one call of the embedding model.
        """
        from langchain_workingmem.plans.doctor import diagnose

        return self.core.run(diagnose(self.core.space))

    async def adoctor(self) -> Diagnosis:
        """Async twin of `doctor`."""
        from langchain_workingmem.plans.doctor import diagnose

        return await self.core.arun(diagnose(self.core.space))
