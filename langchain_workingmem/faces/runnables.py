"""What chains and graphs run: recall as a retriever, a thread as a chat history, nodes around the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence  # noqa: TC003 - pydantic reads the annotations
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.documents import Document  # noqa: TC002 - `as_tool` reads the annotations
from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, RunnableLambda, ensure_config
from pydantic import ConfigDict, Field

from langchain_workingmem._redis.codec import as_messages, is_storable
from langchain_workingmem._redis.filters import joined
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.scripts import owner_of
from langchain_workingmem._redis.state import operation, plan_of, twin
from langchain_workingmem._text.messages import structured_answers
from langchain_workingmem._text.sending import SOURCE, Marks
from langchain_workingmem.checks import check_now
from langchain_workingmem.errors import IdError, OptionError
from langchain_workingmem.faces import Owner, check_limits, kind_of, limits_of, required_ids, resolve, scoped_ids
from langchain_workingmem.history import History
from langchain_workingmem.history.save import save_turn
from langchain_workingmem.recall.question import Query, check_argument_names
from langchain_workingmem.recall.search import search_messages
from langchain_workingmem.turn.assemble import Audience, Turn, assemble, is_users, question
from langchain_workingmem.turn.gather import read_history

if TYPE_CHECKING:
    from datetime import datetime

    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.state import Core
    from langchain_workingmem.history.follow import Kind
    from langchain_workingmem.models import MemoryContext, RecallResult
    from langchain_workingmem.options import Ids
    from langchain_workingmem.turn.gather import TurnPlans


class SemanticRecallRetriever(BaseRetriever):
    """Finds earlier messages of a user; `Memory.as_retriever` makes it.

    One document per hit, the best first. `page_content` is the window with its speakers. No message is in two
    documents: a hit is in its own, another message in that of the best hit near it. The metadata holds
    thread_id, thread_title, message_id, role, similarity, score and stored_at. Two round trips, sync or async.
    Further fields are the arguments of `memory.recall.search`, such as `top_k` and `max_tokens`.
    """

    memory: Any = Field(repr=False)
    thread_id: str | None = None
    user_id: str | Owner | None = None  # a function gets the ids that the run names
    metadata_filter: Mapping[str, Any] | None = None  # in a LangChain retriever, `metadata` belongs to its runs
    trust_client_ids: bool = False  # as in `Memory.tools`

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="allow")

    def model_post_init(self, context: Any, /) -> None:
        """Raise `TypeError` for an argument that recall does not take."""
        check_argument_names(self.model_extra or {})

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

    def _plan(self, query: str, run: RunnableConfig, **call_arguments: Any) -> Plan[RecallResult]:
        if named_ids := {"thread_id", "user_id"} & call_arguments.keys():
            remedy = "bind it, as_retriever(user_id=...), or put it into the config of the run"
            raise IdError(f"{min(named_ids)} in the call of a retriever", remedy=remedy)
        # the public search would add a second retriever run to the trace
        state = self.memory._core.state
        arguments = {**(self.model_extra or {}), **call_arguments}
        arguments["metadata"] = joined(self.metadata_filter, call_arguments.get("metadata"))
        ids = resolve(run, thread_id=self.thread_id, user_id=self.user_id, trust_client_ids=self.trust_client_ids)
        ids = scoped_ids(ids, arguments.get("scope") or state.recalling.scope)
        arguments |= {"thread_id": ids.thread_id, "user_id": ids.user_id, "thread_filters": state.thread_filters}
        search_query = Query.of(state.recalling, query, **arguments)
        return search_messages(state, replace(search_query, timezone=limits_of(run).timezone))


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

    @operation
    def add_messages(self, messages: Sequence[BaseMessage]) -> Plan[None]:
        """Save messages at the end. One round trip, two without a `user_id`."""
        thread_id, user_id = yield from owner_of(self._core.state, self.session_id, self.user_id)
        yield from plan_of(History.append)(self._memory.history, messages, thread_id=thread_id, user_id=user_id)

    aadd_messages = twin(add_messages)

    @operation
    def clear(self) -> Plan[None]:
        """Delete all messages; the thread stays."""
        yield from plan_of(History.clear)(self._memory.history, self.session_id, user_id=self.user_id)

    aclear = twin(clear)

    def _read(self) -> Plan[list[BaseMessage]]:
        return read_history(self._core.state, self.session_id, self.user_id, self._memory._plans.history)


def load_node(
    plans: TurnPlans, find_ids: Callable[..., Ids], *, into: str, read_only: bool, now: datetime | None
) -> RunnableLambda[Any, dict[str, Any]]:
    """Build the node that shows memory; `Memory.load_node` describes it."""
    from langgraph.types import Overwrite  # slow, and chains have no use for it

    core = plans.core
    if now is not None:
        check_now(now)

    def plan(state: Any, config: RunnableConfig) -> Plan[dict[str, Any]]:
        state_messages, limits = _messages_of(state), check_limits(limits_of(config), plans)
        ids, kind = required_ids(find_ids(config)), kind_of(config)
        if now is not None and limits.recall is not False:
            limits = replace(limits, recall={**(limits.recall or {}), "now": now})
        messages = yield from plans.read_unmarked(state_messages, *ids, kind)
        left_out = Marks(core.state.secret, *ids).left_out(state_messages)
        reading = plans.gather(messages, ids, limits, kind=kind, left_out=left_out)
        turn = yield from core.with_fallback(reading, Turn(*ids, kind=kind), "the graph goes on without memory")
        if not read_only and limits.saves and turn.known is not None:
            plans.notes.note(ids[0], turn.question, turn.known)
        # what the caller's list begins with stays in a state, as it is not stored yet
        first = [message for message in messages if not isinstance(message, SystemMessage)][:1]
        for_model = into != "messages" or all(map(is_users, first))
        audience = Audience(read_only=read_only or limits.read_only, for_model=for_model)
        context = assemble(core.state, plans.history, turn, messages, audience)
        if into != "messages":
            return {into: context}
        # not through the reducer: what a node gives to it is streamed to clients as if it were said now
        return {"messages": Overwrite(_in_channel(core, context, messages, turn, left_out))}

    return _node(core, plan, "load_memory")


def _in_channel(
    core: Core, context: MemoryContext, messages: Sequence[BaseMessage], turn: Turn, left_out: frozenset[int]
) -> list[BaseMessage]:
    """Return the messages of a context, those of memory marked, and with a note of those that it leaves out."""
    marks = Marks(core.state.secret, turn.thread_id, turn.user_id)
    listed, kept = {message.id for message in messages}, list[BaseMessage]()
    for message in context.messages:
        if message.id not in listed:
            kept.append(marks.inserted(message))
        elif message.id not in turn.seqs and message.additional_kwargs.get("lc_source") == SOURCE:
            # not stored yet: the lean copy is what will be stored
            extras = {key: value for key, value in message.additional_kwargs.items() if key != "lc_source"}
            kept.append(message.model_copy(update={"additional_kwargs": extras}))
        else:
            kept.append(message)
    # the state loses what is not shown: the next turn must not take that for a deletion
    kept_ids = {message.id for message in kept if is_storable(message)}
    if removed := sorted({seq for id, seq in turn.seqs.items() if id in listed and id not in kept_ids} | left_out):
        for index, message in enumerate(kept):
            if message.id in listed and message.type != "system":
                kept[index] = marks.put(message, {}, content=message.content, left_out=removed)
    prompts = list(takewhile(lambda message: isinstance(message, SystemMessage), kept))
    blocks = [marks.inserted(SystemMessage(text, id=core.new_id())) for text in context.system]
    return [*prompts, *blocks, *kept[len(prompts) :]]


def save_node(plans: TurnPlans, find_ids: Callable[..., Ids]) -> RunnableLambda[Any, dict[str, Any]]:
    """Build the node that saves the turn; `Memory.save_node` describes it."""
    core = plans.core

    def save(state_messages: Sequence[BaseMessage], ids: tuple[str, str], kind: Kind) -> Plan[None]:
        messages = [*filter(is_storable, (yield from plans.read_unmarked(state_messages, *ids, kind)))]
        user_message = question(messages)
        yield from save_turn(
            core,
            messages,
            *ids,
            kind=kind,
            known=plans.notes.take(ids[0], user_message),
            left_out=Marks(core.state.secret, *ids).left_out(state_messages),
            structured=structured_answers(messages, is_over=True),
        )
        plans.notes.drop(ids[0], user_message)

    def plan(state: Any, config: RunnableConfig) -> Plan[dict[str, Any]]:
        ids = required_ids(find_ids(config))
        if limits_of(config).saves:
            saving = save(_messages_of(state), ids, kind_of(config))
            yield from core.with_fallback(saving, None, "the turn is not saved")
        core.state.shown_messages.pop(ids[0])
        return {}

    return _node(core, plan, "save_memory")


def _node(
    core: Core, plan: Callable[[Any, RunnableConfig], Plan[dict[str, Any]]], name: str
) -> RunnableLambda[Any, dict[str, Any]]:
    def run(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return core.run(plan(state, config), name)

    async def arun(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return await core.arun(plan(state, config), name)

    return RunnableLambda(run, arun, name=name)


def _messages_of(state: Any) -> Sequence[BaseMessage]:
    messages: Any = state.get("messages") if isinstance(state, dict) else getattr(state, "messages", None)
    if messages is None:
        remedy = "give it messages: Annotated[list[AnyMessage], add_messages], as MessagesState has"
        raise OptionError("the state has no channel `messages`", remedy=remedy)
    return as_messages(messages)
