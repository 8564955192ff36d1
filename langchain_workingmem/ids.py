"""Where a face takes its ids from: one resolver, one order. Never from what a model writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.errors import IdError
from langchain_workingmem.options import Ids

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from langchain_workingmem.options import Scope

_NOBODY = "'user_id' in config['configurable']"  # empty where a LangGraph server authenticates nobody


def required_ids(ids: Ids) -> tuple[str, str]:
    """Return both ids; raise `IdError` that says how to pass the thread's, when it is missing.

    A thread alone has to own itself: the resource is that of the same name, and where somebody owns the thread, whatever is
    done with these ids is refused by the server.
    """
    thread_id = check_id(ids.thread_id, "thread_id")
    return thread_id, thread_id if ids.resource_id is None else check_id(ids.resource_id, "resource_id")


def resolve(
    config: RunnableConfig | None,
    *,
    thread_id: str | None = None,
    resource_id: str | None = None,
    runtime: Any = None,
    trust_client_ids: bool = False,
) -> Ids:
    """Find the ids of a run.

    What was passed comes from the program, and counts. Else the resource is the user whom a LangGraph server has
    authenticated; a run that names somebody else raises `IdError`, because clients write what it says, unless
    `trust_client_ids`. Without such a user it is what the `context` of the run (attribute or key) names, or
    `config["configurable"]`; `user_id` means `resource_id` in both, and where one place has
    both they must agree. The thread is looked for in the same two places.
    What is found nowhere stays None; `required_ids` says what that means.
    """
    runtime = _runtime() if runtime is None else runtime
    configurable = (config or {}).get("configurable")
    places = {"the context": getattr(runtime, "context", None), "config['configurable']": configurable}
    if thread_id is None:
        thread_id = next((id for place in places.values() if (id := _look(place, "thread_id")) is not None), None)
    if resource_id is None:
        user, named = _authenticated(runtime, configurable), _named(places, runtime)
        if user is not None and not trust_client_ids:
            for where, id in named.items():
                _check_speaker(user, id, where)
            resource_id = user
        else:
            _check_names(places)
            resource_id = next(iter(named.values()), user)
    return Ids(thread_id, resource_id)


def owner_of_session(resource_id: str | None, *, from_config: bool) -> str | None:
    """Find whose a chat history is: as `resolve` does, but that None means whoever owns the thread.

    Only the running graph says who is authenticated. `from_config`: RunnableWithMessageHistory has read the id there.
    """
    runtime = _runtime()
    user = _authenticated(runtime, None)
    if resource_id is None:
        return user
    if from_config and user is not None:
        _check_speaker(user, resource_id, "'resource_id' in config['configurable']")
    return resource_id


def thread_of(config: RunnableConfig) -> str | None:
    """Find the conversation of a run, whoever speaks."""
    return resolve(config, trust_client_ids=True).thread_id


def scoped_ids(ids: Ids, scope: Scope) -> Ids:
    """Leave out the conversation where it does not matter: all of a user's are searched from within anybody's."""
    if ids.is_thread_alone:
        return Ids(*required_ids(ids))
    return ids if scope == "thread" else replace(ids, thread_id=None)


def _authenticated(runtime: Any, configurable: Any) -> str | None:
    """Return who is authenticated, None when nobody is.

    The server makes an object of the user, after it has dropped whatever a client has sent under that name. A client's JSON
    has no attributes, so `langgraph_auth_user` is safe to read where there is no runtime; `langgraph_auth_user_id`, a
    str, is not.
    """
    users = (getattr(getattr(runtime, "server_info", None), "user", None), _get(configurable, "langgraph_auth_user"))
    identities = (getattr(user, "identity", None) for user in users)
    return next((str(identity) for identity in identities if identity), None)


def _check_speaker(user: str, named: str, where: str) -> None:
    if named != user:  # neither is quoted: the one is somebody else's, the other may be read by somebody else
        raise IdError(
            f"{where} names somebody else than the user whom the LangGraph server has authenticated",
            remedy="leave it out, or pass trust_client_ids=True where a service speaks for its users, with a check of your "
            "own that it may",
        )


def _named(places: Mapping[str, Any], runtime: Any) -> dict[str, str]:
    """Find whom a run names, by where; the first counts most."""
    found = {
        f"{name!r} in {place}": id
        for place, values in places.items()
        for name in ("resource_id", "user_id")
        if (id := _look(values, name)) is not None
    }
    if getattr(runtime, "server_info", None) is not None and found.get(_NOBODY) == "":
        del found[_NOBODY]
    return found


def _check_names(places: Mapping[str, Any]) -> None:
    for place, values in places.items():
        if len({id for name in ("resource_id", "user_id") if (id := _look(values, name))}) > 1:
            raise IdError(
                f"'resource_id' and 'user_id' in {place} name different users",
                remedy="they mean the same, pass one of them",
            )


def _get(place: Any, name: str) -> Any:
    return place.get(name) if isinstance(place, Mapping) else getattr(place, name, None)


def _look(place: Any, name: str) -> str | None:
    value = _get(place, name)
    # LangGraph Studio and some clients send UUIDs as objects
    return value if value is None or isinstance(value, str) else str(value)


def _runtime() -> Any:
    """Return the runtime of the graph that is running, None outside of one."""
    from langgraph.runtime import get_runtime

    try:
        return get_runtime()
    except (RuntimeError, KeyError):  # outside of a run; in a run that is no graph's
        return None
