"""Every face that finds its ids in a run, as a node of a graph: for tests of who speaks."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from langchain_workingmem import Memory
from langchain_workingmem.faces.runnables import RedisChatMessageHistory
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import Scripted, ask, calling

QUESTION = "what is the pin of mine"


def signed_in(identity: str) -> dict[str, Any]:
    """Put a user into configurable as a LangGraph server does, which makes the runtime's `server_info` of it."""
    return {"langgraph_auth_user": SimpleNamespace(identity=identity)}


def _middleware(memory: Memory, trust: Any) -> Any:
    calls = calling(("search_memory", {"query": QUESTION}), ("get_working_memory", {}), id="c")
    model = Scripted.says(calls, lambda messages: f"seen: {messages}")
    names = ["search_memory", "get_working_memory", "update_working_memory"]
    return create_agent(model, [], middleware=[MemoryMiddleware(memory, tools=names, **trust)])


def _tool(name: str, **arguments: Any) -> Callable[[Memory, Any], Any]:
    def make(memory: Memory, trust: Any) -> Any:
        call: Runnable[Any, Any] = RunnableLambda(lambda _: {"messages": [calling((name, arguments), id="c")]})
        return call | ToolNode(memory.tools(include=[name], **trust))

    return make


def _retriever(memory: Memory, trust: Any) -> Any:
    return _passing(memory.as_retriever(**trust), QUESTION)


def _chat_history(memory: Memory, trust: Any) -> Any:
    """With a factory of its own the program says whom it trusts; ours has no other argument than the ids."""

    def of_the_program(session_id: str, user_id: str) -> Any:
        return RedisChatMessageHistory(memory, session_id, user_id=user_id)

    return _history(memory, of_the_program if trust else memory.chat_history, named=True)


def _session(memory: Memory, trust: Any) -> Any:
    return _history(memory, memory.chat_history, named=False)


def _history(memory: Memory, factory: Any, *, named: bool) -> Any:
    specs = memory.config_specs if named else None
    echo = Scripted(script=[lambda messages: f"seen: {messages}"] * 9)
    chain = RunnableWithMessageHistory(echo, factory, history_factory_config=specs)

    def ids(config: RunnableConfig) -> RunnableConfig:
        given = config["configurable"]
        user = given.get("user_id")
        return {**config, "configurable": {**given, "session_id": given.get("thread_id"), "user_id": user}}

    return _passing(chain, [HumanMessage(QUESTION)], ids)


def _passing(target: Runnable[Any, Any], given: Any, change: Any = lambda config: config) -> Any:
    """Make a node that passes its config on, as LangChain's documentation does it, and says what came back."""

    def call(state: Any, config: RunnableConfig) -> Any:
        return {"messages": [HumanMessage(f"seen: {target.invoke(given, change(config))}")]}

    async def acall(state: Any, config: RunnableConfig) -> Any:
        return {"messages": [HumanMessage(f"seen: {await target.ainvoke(given, change(config))}")]}

    return RunnableLambda(call, acall)


FACES: dict[str, Callable[[Memory, Any], Any]] = {
    "middleware": _middleware,
    "load_node": lambda memory, trust: memory.load_node(**trust),
    "save_node": lambda memory, trust: memory.save_node(**trust),
    "search_memory": _tool("search_memory", query=QUESTION),
    "get_working_memory": _tool("get_working_memory"),
    "update_working_memory": _tool("update_working_memory", memory="owned by me now"),
    "clear_working_memory": _tool("clear_working_memory"),
    "as_retriever": _retriever,
    "chat_history": _chat_history,
    "session alone": _session,
}


def graph_of(face: str, memory: Memory, **trust: bool) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("face", FACES[face](memory, trust))
    graph.add_edge(START, "face")
    return graph.compile()


def question() -> dict[str, list[AnyMessage]]:
    return ask(QUESTION)
