"""Memory for a StateGraph: a node before the model, and one after it."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.types import Overwrite

from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem._text.said import structured_answers
from langchain_workingmem._text.sending import SOURCE
from langchain_workingmem.checks import check_now
from langchain_workingmem.faces.ids import Owner, as_owner, required_ids, resolve
from langchain_workingmem.faces.per_call import PerCall
from langchain_workingmem.history import save_turn
from langchain_workingmem.turn import Gathered, Notes, Shown, assemble, question

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from datetime import datetime

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.history import Kind
    from langchain_workingmem.turn import Turn


def load_node(
    turn: Turn,
    *,
    into: str,
    read_only: bool,
    user_id: str | Owner | None,
    trust_client_ids: bool,
    now: datetime | None,
) -> RunnableLambda[Any, dict[str, Any]]:
    """Build the node that shows memory; `Memory.load_node` describes it."""
    core, owner = turn.core, as_owner(user_id)
    if now is not None:
        check_now(now)

    def plan(state: Any, config: RunnableConfig) -> Plan[dict[str, Any]]:
        given, limits = _messages_of(state), PerCall.of(config)
        ids = required_ids(resolve(config, user_id=owner, trust_client_ids=trust_client_ids))
        messages = yield from turn.opened(given, *ids, kind_of(config))
        left_out = core.state.marks(*ids).left_out(given)
        gathering = limits.gather(turn, messages, *ids, kind_of(config), now=now, left_out=left_out)
        found = yield from core.with_fallback(
            gathering, Gathered(*ids, kind=kind_of(config)), "the graph goes on without memory"
        )
        if not read_only and limits.saves and found.known is not None:
            core.state.room(Notes).note(ids[0], question(messages), found.known)
        shown = Shown(read_only=read_only or limits.read_only, for_model=True)
        context = assemble(core.state, turn.history, found, messages, shown)
        if into != "messages":
            return {into: context}
        marks, own = core.state.marks(*ids), {message.id for message in messages}
        kept = [_saved_later(one, found.seqs) if one.id in own else marks.inserted(one) for one in context.messages]
        # the state loses what is not shown: the next turn must not take that for a deletion
        held = {one.id for one in kept if is_storable(one)}
        gone = {seq for id, seq in found.seqs.items() if id in own and id not in held} | left_out
        if gone:
            kept = [_noting(one, marks, gone) if one.id in own and one.type != "system" else one for one in kept]
        prompts = list(takewhile(lambda message: isinstance(message, SystemMessage), kept))
        blocks = [marks.inserted(SystemMessage(text, id=core.new_id())) for text in context.system]
        # not through the reducer: what a node gives to it is streamed to clients as if it were said now
        return {"messages": Overwrite([*prompts, *blocks, *kept[len(prompts) :]])}

    return _node(core, plan, "load_memory")


def _saved_later(message: BaseMessage, seqs: Container[str]) -> BaseMessage:
    """Return a message of the state; of one that is not stored yet, the lean copy is what will be stored."""
    if message.id in seqs or message.additional_kwargs.get("lc_source") != SOURCE:
        return message
    extras = {key: value for key, value in message.additional_kwargs.items() if key != "lc_source"}
    return message.model_copy(update={"additional_kwargs": extras})


def _noting(message: BaseMessage, marks: Any, gone: set[int]) -> BaseMessage:
    kept: BaseMessage = marks.put(message, {}, content=message.content, left_out=sorted(gone))
    return kept


def save_node(
    turn: Turn, *, user_id: str | Owner | None, trust_client_ids: bool
) -> RunnableLambda[Any, dict[str, Any]]:
    """Build the node that saves the turn; `Memory.save_node` describes it."""
    core, owner = turn.core, as_owner(user_id)

    def save(state: Any, config: RunnableConfig, thread_id: str, user_id: str) -> Plan[None]:
        given = _messages_of(state)
        messages = [
            one for one in (yield from turn.opened(given, thread_id, user_id, kind_of(config))) if is_storable(one)
        ]
        notes, asked = core.state.room(Notes), question(messages)
        known = notes.take(thread_id, asked)
        yield from save_turn(
            core,
            messages,
            thread_id,
            user_id,
            kind=kind_of(config),
            known=known,
            left_out=core.state.marks(thread_id, user_id).left_out(given),
            structured=structured_answers(messages, is_over=True),
        )
        notes.drop(thread_id, asked)

    def plan(state: Any, config: RunnableConfig) -> Plan[dict[str, Any]]:
        ids = required_ids(resolve(config, user_id=owner, trust_client_ids=trust_client_ids))
        if PerCall.of(config).saves:
            yield from core.with_fallback(save(state, config, *ids), None, "the turn is not saved")
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
    messages: Sequence[BaseMessage] = state["messages"] if isinstance(state, dict) else state.messages
    return messages


def kind_of(config: RunnableConfig) -> Kind:
    """Tell what the messages of a run are: a checkpointer's state, the list of one call, or a part of an outer one."""
    configurable = config.get("configurable", {})
    if "|" in configurable.get("checkpoint_ns", ""):
        return "part"
    # LangGraph's own key; without a checkpointer it holds None
    return "state" if configurable.get("__pregel_checkpointer") else "list"
