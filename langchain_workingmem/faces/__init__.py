"""Adapts a memory to LangChain and LangGraph. `Faces` are its methods; each imports its module when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from langchain_core.runnables import RunnableLambda
    from langchain_core.runnables.utils import ConfigurableFieldSpec
    from langchain_core.tools import BaseTool

    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.faces.chains import RedisChatMessageHistory, SemanticRecallRetriever
    from langchain_workingmem.history import History
    from langchain_workingmem.options import Ids, RecallArguments
    from langchain_workingmem.turn import Turn


class Faces:
    """The part of `Memory` that makes tools, nodes, retrievers and chat histories."""

    _core: Core
    history: History
    _turn: Turn

    def tools(
        self,
        *,
        thread_id: str | None = None,
        user_id: str | Callable[[Ids], str] | None = None,
        include: Sequence[str] | None = None,
        trust_client_ids: bool = False,
        name: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[BaseTool]:
        """Return tools for `bind_tools`, ToolNode, `create_agent` or a plain `invoke`; they are sync and async.

        `update_working_memory`, `get_working_memory`, `clear_working_memory` as `WorkingMemoryOptions.tools` says, and
        `search_memory` with recall; `include` names others. Ids are bound here (`user_id` may be a function of the
        `Ids` that the run names), or come from the run: the authenticated user of a LangGraph server, its context, or
        `config["configurable"]`. A model cannot choose them. With `trust_client_ids=True` the last two may name another
        user than the authenticated one. A tool that refuses a call tells the model the reason. `name="team"` makes the
        names `update_working_memory_team` and so on, for use beside the tools of another memory. `search_memory` finds
        only what `metadata` passes, a filter as in `recall.search`, and the filter of
        `config["configurable"]["memory"]["recall"]` of a call.
        """
        from langchain_workingmem.faces.tools import memory_tools

        ids = {"thread_id": thread_id, "user_id": user_id, "trust_client_ids": trust_client_ids}
        return memory_tools(self._core, ids, include=include, name=name, metadata=metadata)

    def load_node(
        self,
        *,
        into: str = "messages",
        read_only: bool = False,
        user_id: str | Callable[[Ids], str] | None = None,
        trust_client_ids: bool = False,
        now: datetime | None = None,
    ) -> RunnableLambda[Any, dict[str, Any]]:
        """Return a StateGraph node that shows memory to the model node after it; sync and async.

        `into="messages"` rewrites that channel (with its `add_messages` reducer): your system messages, the history,
        then the new messages, with memory before the user's last words. These additions are removed at the next turn,
        and never saved; of older messages the channel keeps what is shown. Another name puts a `MemoryContext` into
        that channel of your state, and changes no message. Ids come from the run, as for `tools`;
        `config["configurable"]["memory"]` restricts a single call. `user_id` fixes the owner of the memory, whatever
        user a run names: an id, or a function of the `Ids` that the run names. `now` is the time of its questions,
        None: the clock. Two round trips.
        """
        from langchain_workingmem.faces.nodes import load_node

        return load_node(
            self._turn,
            into=into,
            read_only=read_only,
            user_id=user_id,
            trust_client_ids=trust_client_ids,
            now=now,
        )

    def save_node(
        self, *, user_id: str | Callable[[Ids], str] | None = None, trust_client_ids: bool = False
    ) -> RunnableLambda[Any, dict[str, Any]]:
        """Return a StateGraph node that saves the turn: the user's last message and all after it.

        One round trip; with a checkpointer two where `load_node` has not run before it in this process, as when a run
        begins at the checkpoint between them. Safe under retry policies, because saving is idempotent. `user_id` as in
        `load_node`: it then owns the threads, too.
        """
        from langchain_workingmem.faces.nodes import save_node

        return save_node(self._turn, user_id=user_id, trust_client_ids=trust_client_ids)

    def as_retriever(
        self,
        *,
        thread_id: str | None = None,
        user_id: str | Callable[[Ids], str] | None = None,
        trust_client_ids: bool = False,
        **arguments: Unpack[RecallArguments],
    ) -> SemanticRecallRetriever:
        """Return a retriever over recall: one document per hit, its window as text, ids and similarity as metadata.

        Ids that are not bound here come from the run, as for `tools`; a call may pass `top_k` as well, and `metadata`,
        which narrows what the filter of the retriever passes.
        """
        from langchain_workingmem.faces.chains import SemanticRecallRetriever
        from langchain_workingmem.recall import check_argument_names

        check_argument_names(arguments)
        fields: dict[str, Any] = {**arguments}
        return SemanticRecallRetriever(
            memory=self,
            thread_id=thread_id,
            user_id=user_id,
            trust_client_ids=trust_client_ids,
            metadata_filter=fields.pop("metadata", None),
            **fields,
        )

    def chat_history(self, session_id: str, user_id: str | None = None) -> RedisChatMessageHistory:
        """Return a thread as a `BaseChatMessageHistory`; `session_id` is the thread's id.

        `HistoryOptions`, above all `last_messages`, say what it shows; every message is kept. Without `user_id` it is
        the user that a LangGraph server has authenticated, else the owner of the thread; a new thread then owns itself.
        Only this thread is read and written. Pass this method to RunnableWithMessageHistory as the factory, with
        `history_factory_config=memory.config_specs` to name the user in the config as well. A config that names another
        user than the authenticated one raises `IdError`; a service that acts for its users makes a
        `RedisChatMessageHistory` itself.
        """
        from langchain_workingmem.faces.chains import RedisChatMessageHistory
        from langchain_workingmem.faces.config import owner_of_session

        return RedisChatMessageHistory(self, session_id, user_id=owner_of_session(user_id))

    @property
    def config_specs(self) -> list[ConfigurableFieldSpec]:
        """Return the ids that RunnableWithMessageHistory takes from `config["configurable"]` for `chat_history`."""
        from langchain_core.runnables.utils import ConfigurableFieldSpec

        thread = "The thread to remember; its thread_id elsewhere."
        user = "The user who owns the thread; None: the authenticated user, else the thread's present owner."
        return [
            ConfigurableFieldSpec("session_id", str, "Session id", thread, is_shared=True),
            ConfigurableFieldSpec("user_id", str, "User id", user, is_shared=True),
        ]
