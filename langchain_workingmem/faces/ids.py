"""Where tools, nodes, middleware and retrievers take their ids from. A model never chooses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.checks import wrong_type
from langchain_workingmem.errors import IdError
from langchain_workingmem.options import Ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.runnables import RunnableConfig

    from langchain_workingmem.options import Scope

Owner: TypeAlias = Callable[[Ids], str]  # returns the owner of the memory, given the ids that the run names


@dataclass(frozen=True, slots=True)
class OuterRun:
    """The run of an agent while one of its tools is running."""

    ids: Ids  # that it names itself, whatever the program fixes for a memory
    user: str | None  # authenticated by the LangGraph server
    limits: Mapping[str, bool]  # what its caller does not let it write

    @classmethod
    def of(cls, config: RunnableConfig, *, trust_client_ids: bool) -> OuterRun:
        """Describe the run that is going on, for the agents inside its tools."""
        configurable = config.get("configurable") or {}
        user = _authenticated(_runtime(), configurable)
        asked = configurable.get("memory")
        limits = {
            name: asked[name] for name in ("read_only", "persist") if isinstance(asked, Mapping) and name in asked
        }
        if not limits and (outer := outer_run.get()) is not None:
            limits = dict(outer.limits)
        return cls(resolve(config, trust_client_ids=trust_client_ids), user, limits)

    def owner_in(self, thread_id: str | None) -> str | None:
        """Return the user for a run inside of this one; None: the thread is the same one, and has to own itself."""
        own = self.ids
        return own.thread_id if own.is_thread_alone and thread_id != own.thread_id else own.user_id


# LangGraph hands it on to a run in a tool, unless that run has a thread of its own: then nothing of its config is left
outer_run: ContextVar[OuterRun | None] = ContextVar("outer_run", default=None)


@contextmanager
def outer_run_of(config: RunnableConfig, *, trust_client_ids: bool) -> Iterator[None]:
    """Tell the agents that run inside a tool about the run that calls it."""
    token = outer_run.set(OuterRun.of(config, trust_client_ids=trust_client_ids))
    try:
        yield
    finally:
        outer_run.reset(token)


def as_owner(user_id: str | Owner | None) -> Owner | None:
    """Return a function of the ids; raise `OptionError` or `IdError` for what cannot be an owner."""
    if isinstance(user_id, str):
        fixed = check_id(user_id, "user_id")
        return lambda _: fixed
    if user_id is not None and (isinstance(user_id, type) or not callable(user_id)):
        raise wrong_type(user_id, "user_id", "pass a str, or a function of the ids of a run")
    return user_id


def owned(ids: Ids, owner: Owner | None) -> Ids:
    """Return the ids of a run with the owner that the program has fixed."""
    if owner is None:
        return ids
    found: object = owner(ids)
    if not isinstance(found, str):
        raise IdError(
            f"the function passed as user_id returned a value of type {type(found).__name__}",
            remedy="return a str for every run, also for one that names no user",
        )
    return replace(ids, user_id=check_id(found, "what the function passed as user_id returned"))


def required_ids(ids: Ids) -> tuple[str, str]:
    """Return thread_id and user_id; raise `IdError` when the first is missing.

    A thread without a user has to own itself: both ids are the same. If it has another owner, the server refuses the operation.
    """
    thread_id = check_id(ids.thread_id, "thread_id")
    return thread_id, thread_id if ids.user_id is None else check_id(ids.user_id, "user_id")


def resolve(
    config: RunnableConfig | None,
    *,
    thread_id: str | None = None,
    user_id: str | Owner | None = None,
    runtime: Any = None,
    trust_client_ids: bool = False,
) -> Ids:
    """Find the ids of a run; an id that is found nowhere stays None.

    Ids that the program passes win. Else the user is the one that a LangGraph server has authenticated. A run that names another
    user raises `IdError`, because clients write these names, unless `trust_client_ids`. Without an authenticated user, the user
    comes from the `context` of the run (attribute or key), then from `config["configurable"]`, then from the outer run of a tool.
    The thread comes from the same two sources. A function as `user_id` gets the ids that were found, and returns the owner.
    """
    runtime = _runtime() if runtime is None else runtime
    configurable = (config or {}).get("configurable")
    sources = {"the context": getattr(runtime, "context", None), "config['configurable']": configurable}
    threads = (_id(source, "thread_id") for source in sources.values())
    run_thread = next((id for id in threads if id is not None), None)
    thread_id = run_thread if thread_id is None else thread_id
    if user_id is not None and not callable(user_id):
        return Ids(thread_id, user_id)
    user, named, outer = _authenticated(runtime, configurable), _named(sources, runtime), outer_run.get()
    if user is not None and not trust_client_ids:
        for where, id in named.items():
            _check_user(user, id, where)
    otherwise = outer.owner_in(run_thread) if outer is not None else user
    return owned(Ids(thread_id, next(iter(named.values()), otherwise)), user_id)


def owner_of_session(user_id: str | None) -> str | None:
    """Find the owner of a chat history as `resolve` does; None means the present owner of the thread.

    Only the running graph knows the authenticated user. An id that its config names, too, counts as one of a client:
    RunnableWithMessageHistory passes on what it reads there.
    """
    user = _authenticated(_runtime(), None)
    if user_id is None:
        return user
    if user is not None:
        from langchain_core.runnables.config import ensure_config

        configurable = ensure_config().get("configurable", {})
        if user_id == configurable.get("user_id"):
            _check_user(user, user_id, "'user_id' in config['configurable']")
    return user_id


def scoped_ids(ids: Ids, scope: Scope) -> Ids:
    """Drop thread_id when the scope is "user"."""
    if ids.is_thread_alone:
        return Ids(*required_ids(ids))
    return ids if scope == "thread" else Ids(None, ids.user_id)


def _authenticated(runtime: Any, configurable: Any) -> str | None:
    """Return the id of the user who is authenticated in this run or in the outer run of a tool; None without one.

    The server makes an object of the user, and drops what a client has sent under that name. A client's JSON has no
    attributes, so `langgraph_auth_user` is safe to read where there is no runtime. `langgraph_auth_user_id`, a str, is not.
    """
    users = (getattr(getattr(runtime, "server_info", None), "user", None), _value(configurable, "langgraph_auth_user"))
    identities = (getattr(user, "identity", None) for user in users)
    outer = outer_run.get()
    return next((str(identity) for identity in identities if identity), outer.user if outer is not None else None)


def _check_user(user: str, named: str, where: str) -> None:
    if named != user:  # the text quotes neither: both may be ids of other people than its reader
        raise IdError(
            f"{where} names another user than the one that the LangGraph server has authenticated",
            remedy="leave it out, or pass trust_client_ids=True in a service that acts for its users and checks that it may",
        )


def _named(sources: Mapping[str, Any], runtime: Any) -> dict[str, str]:
    """Find the users that a run names, by where it does; the first one wins."""
    found = {
        f"'user_id' in {where}": id for where, source in sources.items() if (id := _id(source, "user_id")) is not None
    }
    nobody = "'user_id' in config['configurable']"  # empty where a LangGraph server has no authentication
    if getattr(runtime, "server_info", None) is not None and found.get(nobody) == "":
        del found[nobody]
    return found


def _value(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)


def _id(source: Any, name: str) -> str | None:
    value = _value(source, name)
    # LangGraph Studio and some clients send UUIDs as objects
    return value if value is None or isinstance(value, str) else str(value)


def _runtime() -> Any:
    """Return the runtime of the graph that is running, None outside of one."""
    from langgraph.runtime import get_runtime

    try:
        return get_runtime()
    except (RuntimeError, KeyError):  # outside of a run; in a run that is not a graph's
        return None
