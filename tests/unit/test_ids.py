"""Where a face takes its ids from, and in which order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from langchain_workingmem.ids import resolve
from langchain_workingmem.options import Ids


@dataclass
class Context:
    thread_id: str | None = None
    resource_id: str | None = None
    user_id: str | None = None


def configurable(**values: Any) -> RunnableConfig:
    return {"configurable": values}


def server_run(identity: str | None, context: Any = None) -> Any:
    """Stand in for the runtime of a LangGraph server, whose types need one."""
    return SimpleNamespace(context=context, server_info=SimpleNamespace(user=SimpleNamespace(identity=identity)))


def test_nothing_known_is_nothing() -> None:
    assert resolve(None) == resolve({}) == resolve({"configurable": {}}) == Ids(None, None)


def test_ids_come_from_configurable() -> None:
    assert resolve(configurable(thread_id="t", resource_id="r")) == Ids("t", "r")


@pytest.mark.parametrize("context", [Context("t", "r"), {"thread_id": "t", "resource_id": "r"}], ids=["object", "dict"])
def test_ids_come_from_the_context(context: Any) -> None:
    assert resolve(None, runtime=Runtime(context=context)) == Ids("t", "r")


@pytest.mark.parametrize("context", [Context(user_id="u"), {"user_id": "u"}], ids=["object", "dict"])
def test_user_id_means_resource_id_in_the_context(context: Any) -> None:
    assert resolve(None, runtime=Runtime(context=context)) == Ids(None, "u")


def test_user_id_means_resource_id_in_configurable() -> None:
    assert resolve(configurable(user_id="u")) == Ids(None, "u")


def test_resource_id_wins_over_its_alias_in_the_same_place() -> None:
    assert resolve(configurable(user_id="u", resource_id="r")).resource_id == "r"
    assert resolve(None, runtime=Runtime(context=Context(resource_id="r", user_id="u"))).resource_id == "r"


def test_the_order_is_argument_context_configurable_server_user() -> None:
    config = configurable(resource_id="configurable", thread_id="configurable")
    runtime = server_run("server", Context("context", "context"))
    orders = [
        resolve(config, thread_id="argument", resource_id="argument", runtime=runtime),
        resolve(config, runtime=runtime),
        resolve(config, runtime=server_run("server")),
        resolve({}, runtime=server_run("server")),
        resolve({}, runtime=server_run(None)),
    ]
    assert [ids.resource_id for ids in orders] == ["argument", "context", "configurable", "server", None]
    assert [ids.thread_id for ids in orders] == ["argument", "context", "configurable", None, None]
    assert all(one != other for one, other in pairwise(orders))


def test_the_alias_in_the_context_wins_over_the_name_in_configurable() -> None:
    assert resolve(configurable(resource_id="r"), runtime=Runtime(context={"user_id": "u"})).resource_id == "u"


def test_each_id_is_looked_for_on_its_own() -> None:
    assert resolve(configurable(thread_id="t"), runtime=Runtime(context=Context(resource_id="r"))) == Ids("t", "r")
    assert resolve(configurable(thread_id="t", user_id="u"), resource_id="r") == Ids("t", "r")


def test_the_authenticated_user_owns_no_thread_by_that() -> None:
    assert resolve({}, runtime=server_run("server")) == Ids(None, "server")


def test_an_id_that_is_a_uuid_object_becomes_text() -> None:
    id = UUID(int=7)
    assert resolve(configurable(thread_id=id)).thread_id == str(id)


def test_an_empty_id_is_not_passed_over() -> None:
    assert resolve(configurable(resource_id=""), runtime=server_run("server")).resource_id == ""


class State(TypedDict):
    seen: tuple[str | None, str | None]


def graph() -> Any:
    def node(state: State, config: RunnableConfig) -> State:
        ids = resolve(config)
        return {"seen": (ids.thread_id, ids.resource_id)}

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


def test_outside_of_a_graph_there_is_no_context() -> None:
    assert resolve(configurable(thread_id="t")) == Ids("t", None)
