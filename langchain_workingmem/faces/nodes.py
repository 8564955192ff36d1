"""Memory for a StateGraph: a node before the model, and one after it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, RemoveMessage, SystemMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem._text.copies import (
    covered_in,
    from_memory,
    is_from_memory,
    with_covered,
    with_given_name,
    without_memory,
)
from langchain_workingmem._text.ranges import removed_positions
from langchain_workingmem._text.said import structured_answers
from langchain_workingmem.checks import check_now
from langchain_workingmem.faces.ids import Owner, as_owner, required_ids, resolve
from langchain_workingmem.faces.per_call import PerCall
from langchain_workingmem.history import Branch, Kind, save_messages
from langchain_workingmem.turn import (
    Gathered,
    hidden_positions,
    note_branch,
    note_saved_branch,
    noted_branch,
    question,
    to_save,
    turn_of,
    unsaved,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.core import Core
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

    def gather(
        messages: list[BaseMessage], config: RunnableConfig, removed: str, thread_id: str, user_id: str
    ) -> Plan[Gathered]:
        call = PerCall.of(config)
        read = partial(call.gather, turn, messages, thread_id, user_id, kind_of(config), removed=removed, now=now)
        found = yield from read()
        if read_only or not call.saves:
            return found
        branch = found.branch
        earlier = unsaved(messages, found.seqs)[: -len(turn_of(messages)) or None]
        # Turns that were left at an interrupt: no model accepts them, so the node removes them from the state.
        if earlier:
            yield from save_messages(core, earlier, thread_id, user_id, branch=branch)
            branch = branch.without_changes()
        note_branch(core.state, thread_id, messages, branch)
        return found

    def plan(state: Any, config: RunnableConfig) -> Plan[dict[str, Any]]:
        messages = _messages(state)
        ids = required_ids(resolve(config, user_id=owner, trust_client_ids=trust_client_ids))
        before = covered_in(_messages_of(state))
        gathering = gather(messages, config, removed_positions(before), *ids)
        note = "the graph goes on without memory"
        found = yield from core.with_fallback(gathering, Gathered(""), note)
        shows_only = read_only or PerCall.of(config).read_only
        context = turn.assemble(found, messages, read_only=shows_only, for_model=True)
        if into != "messages":
            return {into: context}
        own = {message.id for message in messages}
        shown = [message if message.id in own else from_memory(message) for message in context.messages]
        if removed := removed_positions(before, hidden_positions(found, messages, shown)):
            # on two messages, because the caller may replace one
            kept = [at for at, message in enumerate(shown) if message.id in own and message.type != "system"]
            for at in {kept[0], kept[-1]} if kept else ():
                shown[at] = with_covered(shown[at], removed)
        blocks = [from_memory(SystemMessage(text)) for text in context.system]
        prompts = list(takewhile(lambda message: isinstance(message, SystemMessage), shown))
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *prompts, *blocks, *shown[len(prompts) :]]}

    return _node(core, plan, "load_memory")


def save_node(
    turn: Turn, *, user_id: str | Owner | None, trust_client_ids: bool
) -> RunnableLambda[Any, dict[str, Any]]:
    """Build the node that saves the turn; `Memory.save_node` describes it."""
    core, owner = turn.core, as_owner(user_id)

    def save(state: Any, config: RunnableConfig, thread_id: str, user_id: str) -> Plan[None]:
        messages = _messages(state)
        asked, kind = question(messages), kind_of(config)
        branch = noted_branch(core.state, thread_id, asked) or Branch(kind=kind, saved="")
        # behind load_node the run begins, perhaps at an earlier checkpoint
        if branch.saved is not None and kind == "state":
            removed = removed_positions(covered_in(_messages_of(state)))
            found = yield from turn.gather(
                messages, thread_id, user_id, kind=kind, recall=False, last_messages=0, removed=removed
            )
            branch = found.branch
        branch = replace(branch, question=branch.question or (asked and asked.id) or "")
        fresh = to_save(messages, branch)
        ids = {message.id for message in fresh}
        # what the thread begins with is known where load_node has found messages of the list in it
        earlier = [] if branch.anchor else [one for one in messages if one.id not in ids and is_storable(one)]
        answers = structured_answers(messages, is_over=True)
        yield from save_messages(core, fresh, thread_id, user_id, branch=branch, structured=answers, earlier=earlier)
        note_saved_branch(core.state, thread_id, asked, branch)

    def plan(state: Any, config: RunnableConfig) -> Plan[dict[str, Any]]:
        ids = required_ids(resolve(config, user_id=owner, trust_client_ids=trust_client_ids))
        if PerCall.of(config).saves:
            yield from core.with_fallback(save(state, config, *ids), None, "the turn is not saved")
        core.state.shown_to_model.forget_shown_messages(ids[0])
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


def _messages(state: Any) -> list[BaseMessage]:
    """Return the messages of a state without those that memory has added."""
    messages = _messages_of(state)
    return [with_given_name(without_memory(message)) for message in messages if not is_from_memory(message)]


def _messages_of(state: Any) -> list[BaseMessage]:
    messages: list[BaseMessage] = state["messages"] if isinstance(state, dict) else state.messages
    return messages


def kind_of(config: RunnableConfig) -> Kind:
    """Tell what the messages of a run are: a checkpointer's state, the list of one call, or a part of an outer one."""
    configurable = config.get("configurable", {})
    # LangGraph's own key; without a checkpointer it holds None
    is_checkpointed = bool(configurable.get("__pregel_checkpointer"))
    if "|" in configurable.get("checkpoint_ns", ""):
        return "substate" if is_checkpointed else "part"
    return "state" if is_checkpointed else "list"
