"""Memory for a StateGraph: a node before the model, and one behind it."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, RemoveMessage, SystemMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from langchain_workingmem.ids import resolve
from langchain_workingmem.plans.threads import owner_of
from langchain_workingmem.plans.turn import is_summarised, turn_of, unsaved
from langchain_workingmem.plans.windows import is_marked, provenance

if TYPE_CHECKING:
    from langchain_workingmem.memory import Memory
    from langchain_workingmem.plans.effects import Plan


def load_node(memory: Memory, *, into: str, read_only: bool) -> RunnableLambda[Any, dict[str, Any]]:
    """Build the node that shows memory; `Memory.load_node` says how."""

    def plan(state: Any, config: RunnableConfig) -> Plan[dict[str, Any]]:
        messages = [message for message in _messages(state) if not is_marked(message)]
        thread_id, resource_id = yield from _ids(memory, config)
        left = unsaved(messages)[: -len(turn_of(messages)) or None]
        if left and not read_only:  # at an interrupt: what the model may not be shown as it is leaves the channel here
            yield from memory.core.saving(left, thread_id, resource_id)
        found = yield from memory.gathering(messages, thread_id, resource_id)
        if is_summarised(messages):  # what was loaded before stands in the summary
            found = replace(found, stored=[])
        context = memory.assembled(found, messages, read_only=read_only, for_model=True)
        if into != "messages":
            return {into: context}
        own = {message.id for message in messages}
        shown = [message if message.id in own else provenance(message) for message in context.messages]
        blocks = [provenance(SystemMessage(text)) for text in context.system]
        prompts = list(takewhile(lambda message: isinstance(message, SystemMessage), shown))
        rest = shown[len(prompts) :]
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *prompts, *blocks, *rest]}

    def load(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return memory.core.run(plan(state, config))

    async def aload(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return await memory.core.arun(plan(state, config))

    return RunnableLambda(load, aload, name="load_memory")


def save_node(memory: Memory) -> RunnableLambda[Any, dict[str, Any]]:
    """Build the node that saves the turn; `Memory.save_node` says how."""

    def plan(state: Any, config: RunnableConfig) -> Plan[dict[str, Any]]:
        thread_id, resource_id = yield from _ids(memory, config)
        yield from memory.core.saving(unsaved(_messages(state)), thread_id, resource_id)
        memory.core.space.turn_is_over(thread_id)
        return {}

    def save(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return memory.core.run(plan(state, config))

    async def asave(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return await memory.core.arun(plan(state, config))

    return RunnableLambda(save, asave, name="save_memory")


def _messages(state: Any) -> list[BaseMessage]:
    return list(state["messages"] if isinstance(state, dict) else state.messages)


def _ids(memory: Memory, config: RunnableConfig) -> Plan[tuple[str, str]]:
    ids = resolve(config)
    return owner_of(memory.core.space, ids.thread_id, ids.resource_id)
