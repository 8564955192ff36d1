"""Memory for a StateGraph: a node before the model, and one behind it."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, RemoveMessage, SystemMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from langchain_workingmem._text.copies import as_given, is_marked, provenance, without_memory
from langchain_workingmem.history import Branch, Kind, save_messages
from langchain_workingmem.ids import required_ids, resolve
from langchain_workingmem.percall import PerCall
from langchain_workingmem.turn import (
    Gathered,
    branch_is_saved,
    note_branch,
    noted_branch,
    question,
    to_save,
    turn_of,
    unsaved,
)

if TYPE_CHECKING:
    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem.turn import Turn


def load_node(turn: Turn, *, into: str, read_only: bool, trust_client_ids: bool) -> RunnableLambda[Any, dict[str, Any]]:
    """Build the node that shows memory; `Memory.load_node` says how."""

    def gathered(
        messages: list[BaseMessage], config: RunnableConfig, thread_id: str, resource_id: str
    ) -> Plan[Gathered]:
        call = PerCall.of(config).within(turn.history, turn.core.state.recall)
        saves = call.saves and not read_only
        found = yield from turn.gather(
            messages,
            thread_id,
            resource_id,
            kind=kind_of(config),
            recall=call.recall,
            last_messages=call.last_messages,
        )
        branch = found.branch
        left = unsaved(messages, found.seqs)[: -len(turn_of(messages)) or None]
        if left and saves:  # at an interrupt: what the model may not be shown as it is leaves the channel here
            yield from save_messages(turn.core, left, thread_id, resource_id, branch=branch)
            branch = branch.written()
        if saves:
            note_branch(turn.core.state, thread_id, messages, branch)
        return found

    def plan(state: Any, config: RunnableConfig) -> Plan[dict[str, Any]]:
        messages = _messages(state)
        ids = required_ids(resolve(config, trust_client_ids=trust_client_ids))
        gathering = gathered(messages, config, *ids)
        note = "the graph goes on without memory"
        found = yield from turn.core.with_fallback(gathering, Gathered(""), note, ids[0], "begins")
        hidden = read_only or PerCall.of(config).read_only
        context = turn.assemble(found, messages, read_only=hidden, for_model=True)
        if into != "messages":
            return {into: context}
        own = {message.id for message in messages}
        shown = [message if message.id in own else provenance(message) for message in context.messages]
        blocks = [provenance(SystemMessage(text)) for text in context.system]
        prompts = list(takewhile(lambda message: isinstance(message, SystemMessage), shown))
        rest = shown[len(prompts) :]
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *prompts, *blocks, *rest]}

    def load(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return turn.core.run(plan(state, config))

    async def aload(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return await turn.core.arun(plan(state, config))

    return RunnableLambda(load, aload, name="load_memory")


def save_node(turn: Turn, *, trust_client_ids: bool) -> RunnableLambda[Any, dict[str, Any]]:
    """Build the node that saves the turn; `Memory.save_node` says how."""

    def saved(state: Any, config: RunnableConfig, thread_id: str, resource_id: str) -> Plan[None]:
        messages = _messages(state)
        asked = question(messages)
        branch = noted_branch(turn.core.state, thread_id, asked) or Branch(kind=kind_of(config))
        branch = replace(branch, question=branch.question or _id(asked))
        yield from save_messages(turn.core, to_save(messages, branch), thread_id, resource_id, branch=branch)
        branch_is_saved(turn.core.state, thread_id, asked, branch)

    def plan(state: Any, config: RunnableConfig) -> Plan[dict[str, Any]]:
        ids = required_ids(resolve(config, trust_client_ids=trust_client_ids))
        if PerCall.of(config).saves:
            yield from turn.core.with_fallback(saved(state, config, *ids), None, "the turn is not saved", ids[0])
        turn.core.state.forget_shown_messages(ids[0])
        return {}

    def save(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return turn.core.run(plan(state, config))

    async def asave(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return await turn.core.arun(plan(state, config))

    return RunnableLambda(save, asave, name="save_memory")


def _id(message: BaseMessage | None) -> str:
    return (message.id or "") if message else ""


def _messages(state: Any) -> list[BaseMessage]:
    """Return the state without what memory has put there."""
    messages = state["messages"] if isinstance(state, dict) else state.messages
    return [as_given(without_memory(message)) for message in messages if not is_marked(message)]


def kind_of(config: RunnableConfig) -> Kind:
    """Tell whose the messages of a run are: a checkpointer's state, those of one call, or a part of an outer graph's."""
    configurable = config.get("configurable", {})
    if "|" in configurable.get("checkpoint_ns", ""):
        return "part"
    # LangGraph's own key; without a checkpointer it holds None
    return "state" if configurable.get("__pregel_checkpointer") else "list"
