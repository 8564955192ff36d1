"""Where a face takes its ids from: one resolver, one order. Never from what a model writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain_workingmem.options import Ids

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from langchain_workingmem.options import Scope

_NAMES = {"thread_id": ("thread_id",), "resource_id": ("resource_id", "user_id")}


def resolve(
    config: RunnableConfig | None,
    *,
    thread_id: str | None = None,
    resource_id: str | None = None,
    runtime: Any = None,
) -> Ids:
    """Find the ids of a run.

    In this order: what was passed; the `context` of the run (attribute or key); `config["configurable"]`; for the
    resource also the user that a LangGraph server has authenticated. `user_id` means `resource_id` in both places. What
    is found nowhere stays None: the operation says what it lacks.
    """
    runtime = _runtime() if runtime is None else runtime
    places = (getattr(runtime, "context", None), (config or {}).get("configurable"))

    def find(name: str, given: str | None) -> Any:
        if given is not None:
            return given
        found = (_look(place, alias) for place in places for alias in _NAMES[name])
        return next((value for value in found if value is not None), None)

    user = getattr(getattr(runtime, "server_info", None), "user", None)
    owner = find("resource_id", resource_id)
    return Ids(find("thread_id", thread_id), getattr(user, "identity", None) if owner is None else owner)


def searched(ids: Ids, scope: Scope) -> Ids:
    """Leave out the conversation where it does not matter: all of a user's are searched from within anybody's."""
    return ids if scope == "thread" or ids.resource_id is None else replace(ids, thread_id=None)


def _look(place: Any, name: str) -> Any:
    value = place.get(name) if isinstance(place, Mapping) else getattr(place, name, None)
    # LangGraph Studio and some clients send UUIDs as objects
    return value if value is None or isinstance(value, str) else str(value)


def _runtime() -> Any:
    """Return the runtime of the graph that is running, None outside of one."""
    from langgraph.runtime import get_runtime

    try:
        return get_runtime()
    except (RuntimeError, KeyError):  # outside of a run; in a run that is no graph's
        return None
