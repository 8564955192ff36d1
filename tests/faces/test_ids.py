"""Where a face takes its ids from, and in which order."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from langchain_workingmem.errors import IdError
from langchain_workingmem.faces import required_ids, resolve, scoped_ids
from langchain_workingmem.options import Ids
from tests.faces.samples import signed_in


@dataclass
class Context:
    thread_id: str | None = None
    user_id: str | None = None


def configurable(**values: Any) -> RunnableConfig:
    return {"configurable": values}


def server_run(identity: str | None, context: Any = None) -> Any:
    """Stand in for the runtime of a LangGraph server, whose types need one."""
    return SimpleNamespace(context=context, server_info=SimpleNamespace(user=SimpleNamespace(identity=identity)))


BOTH = configurable(user_id="configurable", thread_id="configurable")
NO_USER: Any = SimpleNamespace(context=None, server_info=SimpleNamespace(user=None))


@pytest.mark.parametrize(
    ("config", "more", "ids"),
    [
        (BOTH, {"thread_id": "argument", "user_id": "argument"}, Ids("argument", "argument")),
        (BOTH, {"runtime": server_run("server", Context("context", "context"))}, Ids("context", "context")),
        (BOTH, {"runtime": server_run("server")}, Ids("configurable", "configurable")),
        ({}, {"runtime": server_run("server")}, Ids(None, "server")),
        ({}, {"runtime": server_run(None)}, Ids()),
        ({}, {"runtime": server_run("")}, Ids()),
        (configurable(user_id="u"), {"runtime": server_run("")}, Ids(None, "u")),
        (
            configurable(thread_id="t", user_id=""),
            {"runtime": NO_USER},
            Ids("t"),
        ),  # as a server without users writes it
        (configurable(user_id="bob", **signed_in("ann")), {}, Ids(None, "bob")),
        (configurable(user_id=""), {}, Ids(None, "")),  # which is refused later, and not passed over
    ],
)
def test_of_several_ids_the_nearest_counts_where_clients_are_trusted(
    config: RunnableConfig, more: dict[str, Any], ids: Ids
) -> None:
    assert resolve(config, **more, trust_client_ids=True) == ids


def test_the_user_is_also_found_where_the_runtime_is_out_of_sight() -> None:
    with pytest.raises(IdError):
        resolve(configurable(user_id="bob", **signed_in("ann")))


def test_a_thread_alone_has_to_own_itself() -> None:
    assert required_ids(Ids("t")) == ("t", "t")
    assert scoped_ids(Ids("t"), "user") == scoped_ids(Ids("t"), "thread") == Ids("t", "t")
    assert scoped_ids(Ids("t", "u"), "user") == Ids(None, "u")
    with pytest.raises(IdError, match="thread_id is missing"):
        required_ids(Ids(None, "u"))
    with pytest.raises(IdError, match="user_id is empty"):
        required_ids(Ids("t", ""))


def test_the_name_that_the_first_versions_had_is_refused_with_the_remedy() -> None:
    with pytest.raises(IdError, match=r"'resource_id' in config\['configurable'\].*pass it as 'user_id'"):
        resolve(configurable(thread_id="t", resource_id="maya"), runtime=Runtime())
    with pytest.raises(IdError, match="'resource_id' in the context"):
        resolve(None, runtime=Runtime(context={"thread_id": "t", "resource_id": "maya"}))
