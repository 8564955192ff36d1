"""Memory for a StateGraph: a node before the model, and one after it."""

from __future__ import annotations

from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.types import Overwrite

from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem._text.said import structured_answers
from langchain_workingmem._text.sending import SOURCE
from langchain_workingmem.checks import check_now
from langchain_workingmem.faces.config import Owner, PerCall, as_owner, required_ids, resolve
from langchain_workingmem.history import save_turn
from langchain_workingmem.turn import Gathered, Notes, Shown, assemble, question

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.history import Kind
    from langchain_workingmem.models import MemoryContext
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
    core, find_ids = turn.core, partial(resolve, user_id=as_owner(user_id), trust_client_ids=trust_client_ids)
    if now is not None:
        check_now(now)

    def plan(state: Any, config: RunnableConfig) -> Plan[dict[str, Any]]:
        given, limits = _messages_of(state), PerCall.of(config)
        ids, kind = required_ids(find_ids(config)), kind_of(config)
        messages = yield from turn.opened(given, *ids, kind)
        left_out = core.state.marks(*ids).left_out(given)
        gathering = limits.gather(turn, messages, ids, kind, now=now, left_out=left_out)
        found = yield from core.with_fallback(gathering, Gathered(*ids, kind=kind), "the graph goes on without memory")
        if not read_only and limits.saves and found.known is not None:
            core.state.room(Notes).note(ids[0], question(messages), found.known)
        shown = Shown(read_only=read_only or limits.read_only, for_model=True)
        context = assemble(core.state, turn.history, found, messages, shown)
        if into != "messages":
            return {into: context}
        # not through the reducer: what a node gives to it is streamed to clients as if it were said now
        return {"messages": Overwrite(_in_channel(core, context, messages, found, left_out))}

    return _node(core, plan, "load_memory")


def _in_channel(
    core: Core, context: MemoryContext, messages: Sequence[BaseMessage], found: Gathered, left_out: frozenset[int]
) -> list[BaseMessage]:
    """Return the messages of a context, those of memory marked, and with a note of those that it leaves out."""
    marks, own = core.state.marks(found.thread_id, found.user_id), {message.id for message in messages}
    kept = []
    for one in context.messages:
        if one.id not in own:
            kept.append(marks.inserted(one))
        elif one.id not in found.seqs and one.additional_kwargs.get("lc_source") == SOURCE:
            # not stored yet: the lean copy is what will be stored
            extras = {key: value for key, value in one.additional_kwargs.items() if key != "lc_source"}
            kept.append(one.model_copy(update={"additional_kwargs": extras}))
        else:
            kept.append(one)
    # the state loses what is not shown: the next turn must not take that for a deletion
    held = {one.id for one in kept if is_storable(one)}
    if gone := sorted({seq for id, seq in found.seqs.items() if id in own and id not in held} | left_out):
        for at, one in enumerate(kept):
            if one.id in own and one.type != "system":
                kept[at] = marks.put(one, {}, content=one.content, left_out=gone)
    prompts = list(takewhile(lambda message: isinstance(message, SystemMessage), kept))
    blocks = [marks.inserted(SystemMessage(text, id=core.new_id())) for text in context.system]
    return [*prompts, *blocks, *kept[len(prompts) :]]


def save_node(
    turn: Turn, *, user_id: str | Owner | None, trust_client_ids: bool
) -> RunnableLambda[Any, dict[str, Any]]:
    """Build the node that saves the turn; `Memory.save_node` describes it."""
    core, find_ids = turn.core, partial(resolve, user_id=as_owner(user_id), trust_client_ids=trust_client_ids)

    def save(given: Sequence[BaseMessage], ids: tuple[str, str], kind: Kind) -> Plan[None]:
        messages = [*filter(is_storable, (yield from turn.opened(given, *ids, kind)))]
        notes, asked = core.state.room(Notes), question(messages)
        yield from save_turn(
            core,
            messages,
            *ids,
            kind=kind,
            known=notes.take(ids[0], asked),
            left_out=core.state.marks(*ids).left_out(given),
            structured=structured_answers(messages, is_over=True),
        )
        notes.drop(ids[0], asked)

    def plan(state: Any, config: RunnableConfig) -> Plan[dict[str, Any]]:
        ids = required_ids(find_ids(config))
        if PerCall.of(config).saves:
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
    messages: Sequence[BaseMessage] = state["messages"] if isinstance(state, dict) else state.messages
    return messages


def kind_of(config: RunnableConfig) -> Kind:
    """Tell what the messages of a run are: a checkpointer's state, the list of one call, or a part of an outer one."""
    configurable = config.get("configurable", {})
    if "|" in configurable.get("checkpoint_ns", ""):
        return "part"
    # LangGraph's own key; without a checkpointer it holds None
    return "state" if configurable.get("__pregel_checkpointer") else "list"
