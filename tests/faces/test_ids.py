"""Where a face takes its ids from, and in which order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from langchain_workingmem.errors import IdError
from langchain_workingmem.faces import required_ids, resolve, scoped_ids
from langchain_workingmem.options import Ids


@dataclass
class Context:
    thread_id: str | None = None
    user_id: str | None = None


def configurable(**values: Any) -> RunnableConfig:
    return {"configurable": values}


def server_run(identity: str | None, context: Any = None) -> Any:
    """Stand in for the runtime of a LangGraph server, whose types need one."""
    return SimpleNamespace(context=context, server_info=SimpleNamespace(user=SimpleNamespace(identity=identity)))


def test_clients_that_are_trusted_name_the_user_in_context_and_configurable() -> None:
    config = configurable(user_id="configurable", thread_id="configurable")
    runtime = server_run("server", Context("context", "context"))
    orders = [
        resolve(config, thread_id="argument", user_id="argument", runtime=runtime, trust_client_ids=True),
        resolve(config, runtime=runtime, trust_client_ids=True),
        resolve(config, runtime=server_run("server"), trust_client_ids=True),
        resolve({}, runtime=server_run("server"), trust_client_ids=True),
        resolve({}, runtime=server_run(None), trust_client_ids=True),
    ]
    assert [ids.user_id for ids in orders] == ["argument", "context", "configurable", "server", None]
    assert [ids.thread_id for ids in orders] == ["argument", "context", "configurable", None, None]
    assert all(one != other for one, other in pairwise(orders))


@pytest.mark.parametrize("identity", ["", None])
def test_an_empty_identity_is_no_user(identity: str | None) -> None:
    assert resolve({}, runtime=server_run(identity)) == Ids()
    assert resolve(configurable(user_id="u"), runtime=server_run(identity)).user_id == "u"


def test_a_server_without_authentication_has_no_user() -> None:
    """It writes an empty user_id into configurable."""
    server: Any = SimpleNamespace(context=None, server_info=SimpleNamespace(user=None))
    assert resolve(configurable(thread_id="t", user_id=""), runtime=server) == Ids("t", None)


def test_the_user_is_also_found_where_the_runtime_is_out_of_sight() -> None:
    config = configurable(langgraph_auth_user=SimpleNamespace(identity="ann"), user_id="bob")
    assert resolve(config, trust_client_ids=True).user_id == "bob"
    with pytest.raises(IdError):
        resolve(config)


def test_an_empty_id_is_not_passed_over() -> None:
    assert resolve(configurable(user_id="")).user_id == ""


def test_a_thread_alone_has_to_own_itself() -> None:
    assert required_ids(Ids("t")) == ("t", "t")
    assert scoped_ids(Ids("t"), "user") == scoped_ids(Ids("t"), "thread") == Ids("t", "t")
    assert scoped_ids(Ids("t", "u"), "user") == Ids(None, "u")
    with pytest.raises(IdError, match="thread_id is missing"):
        required_ids(Ids(None, "u"))
    with pytest.raises(IdError, match="user_id is empty"):
        required_ids(Ids("t", ""))


class State(TypedDict):
    seen: tuple[str | None, str | None]


def graph() -> Any:
    def node(state: State, config: RunnableConfig) -> State:
        ids = resolve(config)
        return {"seen": (ids.thread_id, ids.user_id)}

    builder = StateGraph(State, context_schema=Context)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile()


@pytest.mark.parametrize("is_async", [False, True])
def test_inside_a_graph_the_context_of_the_run_is_found(is_async: bool) -> None:
    call: dict[str, Any] = {"config": configurable(thread_id="t", user_id="other"), "context": Context(user_id="u")}
    state: Any = {"seen": (None, None)}
    found = asyncio.run(graph().ainvoke(state, **call)) if is_async else graph().invoke(state, **call)
    assert found["seen"] == ("t", "u")


def test_the_name_that_the_first_versions_had_is_refused_with_the_remedy() -> None:
    with pytest.raises(IdError, match=r"'resource_id' in config\['configurable'\].*pass it as 'user_id'"):
        resolve(configurable(thread_id="t", resource_id="maya"), runtime=Runtime())
    with pytest.raises(IdError, match="'resource_id' in the context"):
        resolve(None, runtime=Runtime(context={"thread_id": "t", "resource_id": "maya"}))
