"""One call of a hook of an agent: its ids, what LangGraph says about its run, and what is known of its turn."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.messages import AIMessage
from langgraph.config import get_config

from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem.faces.ids import Owner, outer_run, owned, resolve
from langchain_workingmem.faces.nodes import kind_of
from langchain_workingmem.faces.per_call import PerCall
from langchain_workingmem.history import Branch, history_slice, is_sliced
from langchain_workingmem.options import HistoryOptions
from langchain_workingmem.turn import Gathered, question, to_save, turn_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage

    from langchain_workingmem.history import Kind
    from langchain_workingmem.options import Ids

_NOTES = HistoryOptions(exclude_tools="memory")

Key: TypeAlias = (
    "tuple[Ids, Ids, str]"  # ids that the run names, ids of the memory that it uses, the agent within the run
)
Answers: TypeAlias = "tuple[tuple[BaseMessage, BaseMessage], ...]"  # of a model, with copies


@dataclass(frozen=True, slots=True)
class HookCall:
    """The facts of one hook call: the conversation as it is now, its ids, and the config of the run."""

    messages: Sequence[BaseMessage]
    run_ids: Ids  # that the run names
    ids: Ids  # with the owner that the program has fixed
    namespace: str  # LangGraph's name for the agent within its run
    limits: PerCall
    kind: Kind
    is_nested: bool  # the agent runs inside a tool of another agent
    has_answer: bool = False  # the model has just given a structured answer

    @classmethod
    def of(cls, state: Any, runtime: Any, owner: Owner | None, *, trust_client_ids: bool) -> HookCall:
        """Find the ids as `resolve` does, and read the rest from the state and the config of the run."""
        config = get_config()
        named = resolve(config, runtime=runtime, trust_client_ids=trust_client_ids)
        ids = owned(named, owner)
        namespace: str = config.get("configurable", {}).get("checkpoint_ns", "")
        is_nested = _is_nested(namespace, ids)
        kind: Kind = "part" if is_nested else kind_of(config)
        own, limits, has_answer = namespace.rpartition("|")[0], PerCall.of(config), state.get("structured_response")
        return cls(state["messages"], named, ids, own, limits, kind, is_nested, has_answer is not None)

    @property
    def key(self) -> Key:
        """Return what the turn is kept under."""
        return self.run_ids, self.ids, self.namespace


def _is_nested(namespace: str, ids: Ids) -> bool:
    """Tell whether this agent runs inside a tool of another one, which has the same thread_id.

    The middleware of the other one says so. Without one, LangGraph's usual name for the node of the tools does.
    """
    if (outer := outer_run.get()) is not None:
        return outer.ids.thread_id == ids.thread_id
    return any(part.startswith("tools:") for part in namespace.split("|")[:-1])


@dataclass(frozen=True, slots=True)
class AgentTurn:
    """The facts of one turn. They are no part of the agent's state, because all of a state is streamed to clients."""

    question: str | None  # id of the message that the turn answers
    gathered: Gathered
    begun: Sequence[BaseMessage]  # the messages with which the run began
    branch: Branch  # what is still to be written about the list that the run began with
    # copies by id: a guardrail may change a message in place
    saved: dict[str, BaseMessage] = field(default_factory=dict)
    # what the model answered, and a copy: a guardrail may change it in place before memory saves it
    answers: Answers = ()
    structured: frozenset[str] = frozenset()  # ids of those that were saved as structured answers
    others: frozenset[str] = frozenset()  # ids of messages of the turn that were there when this agent began
    model: BaseChatModel | None = None  # which answers, and may make the thread's title
    is_warned: bool = False  # the log says that it is not saved

    @classmethod
    def of(
        cls, call: HookCall, gathered: Gathered | None = None, begun: Sequence[BaseMessage] | None = None
    ) -> AgentTurn:
        """Begin a turn with what was gathered for the messages `begun`; None: nothing is known of the thread."""
        asked = question(call.messages)
        branch = gathered.branch if gathered else Branch(kind=call.kind)
        return cls(asked.id if asked else None, gathered or Gathered(""), begun or call.messages, branch)

    def all_messages(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return the messages of the run, as they are now: those that other middleware has trimmed away count, too."""
        begun = {message.id: message for message in self.begun}
        return [*(begun | self.saved | {message.id: message for message in messages if is_storable(message)}).values()]

    def unsaved(self, messages: Sequence[BaseMessage], structured: Collection[int] = ()) -> list[BaseMessage]:
        """Return the messages of a state that the thread does not hold yet, under their id or another one.

        `structured` are the structured answers among them.
        """
        fresh = to_save(messages, self.branch, self.gathered.seqs)
        return [
            one
            for one in fresh
            if is_storable(one)
            and (self.saved.get(one.id or "") != one or (id(one) in structured) != (one.id in self.structured))
        ]

    def before(self, messages: Sequence[BaseMessage], fresh: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return what a state holds before the messages to save, if the thread seems to be new."""
        if self.gathered.seqs or self.saved:
            return []
        rest = {one.id for one in fresh} | ({one.id for one in turn_of(self.begun)} - {one.id for one in messages})
        return [one for one in self.all_messages(messages) if one.id not in rest and is_storable(one)]

    def own_view(self, messages: list[BaseMessage], history: HistoryOptions) -> list[BaseMessage]:
        """Leave out the calls of memory's tools that another agent has made in the same turn: they are its notes."""
        others = [one for one in messages if one.id in self.others]
        if history.exclude_tools is False or not is_sliced(others, _NOTES):
            return messages
        kept = {one.id: one for one in history_slice(others, _NOTES)}
        return [kept.get(one.id, one) for one in messages if one.id not in self.others or one.id in kept]

    def changed(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return the answers of the model that were changed in place: no checkpoint holds the change."""
        copies = {id(answer): copy for answer, copy in self.answers}
        found = ((one, copies[id(one)]) for one in messages if id(one) in copies)
        return [one for one, copy in found if copy.model_copy(update={"id": one.id}) != one]

    def taken_back(self, messages: Sequence[BaseMessage]) -> list[str]:
        """Return the ids of saved messages that the state does not hold at the end of the run, as a guardrail took them back.

        What is missing only in front of the state was trimmed.
        """
        kept = {one.id for one in messages}
        known = (one.id for one in self.begun if one.id in self.gathered.seqs)
        order = [id for id in dict.fromkeys([*known, *self.saved]) if id]
        begin = next((at for at, id in enumerate(order) if id in kept), None)
        if begin is not None:
            return [id for id in order[begin:] if id in self.saved and id not in kept]
        if not any(isinstance(one, AIMessage) and is_storable(one) for one in messages):
            return []  # the state was cleared, or a summary stands for all of it
        return [id for id, one in self.saved.items() if isinstance(one, AIMessage) and not one.tool_calls]

    def with_saved(
        self, messages: Sequence[BaseMessage], structured: Collection[int], gone: Collection[str] = ()
    ) -> AgentTurn:
        """Remember that messages and the branch are saved."""
        known = {one.id: snapshot(one) for one in messages if one.id}
        answers = {one.id for one in messages if one.id and id(one) in structured}
        return replace(
            self,
            branch=replace(self.branch.without_changes(), question=self.branch.question or self.question or ""),
            saved={id: one for id, one in {**self.saved, **known}.items() if id not in gone},
            structured=(self.structured - known.keys()) | answers,
        )


def snapshot(message: BaseMessage) -> BaseMessage:
    """Copy a message so that no change in place reaches the copy."""
    is_flat = isinstance(message.content, str) and not message.additional_kwargs
    return message.model_copy(deep=not is_flat or bool(getattr(message, "tool_calls", None)))
