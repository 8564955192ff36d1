"""What LangChain and LangGraph call. Here: whose memory a run uses and what it may not do, which no model chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.runnables.config import ensure_config

from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.checks import LARGEST, at_least, one_of, wrong_type
from langchain_workingmem.errors import IdError, OptionError
from langchain_workingmem.options import Ids, PerCall

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from langchain_core.runnables import RunnableConfig

    from langchain_workingmem.history.follow import Kind
    from langchain_workingmem.options import Scope
    from langchain_workingmem.turn.gather import TurnPlans

Owner: TypeAlias = Callable[[Ids], str]  # returns the owner of the memory, given the ids that the run names
WRITING = ("update_working_memory", "clear_working_memory")  # tools; with the name of a memory they begin like this
WORKING = (*WRITING, "get_working_memory")
_PATH = "config['configurable']['memory']"
_USER = "'user_id' in config['configurable']"


def limits_of(config: RunnableConfig | None) -> PerCall:
    """Read and check what the config of a call says; a run in a tool that says nothing may do what its agent may do."""
    settings = ((config or {}).get("configurable") or {}).get("memory")
    if settings is None:
        outer = outer_run.get()
        return PerCall() if outer is None else outer.limits
    names = [field.name for field in fields(PerCall)]
    settings = asdict(settings) if isinstance(settings, PerCall) else settings
    _check_keys(settings, names, _PATH)
    try:
        limits = PerCall(**settings)
    except OptionError as error:
        raise OptionError(f"{_PATH}: {error}", remedy=error.remedy) from None
    if limits.recall:
        _check_keys(limits.recall, ("top_k", "scope", "metadata"), f"{_PATH}['recall']")
    return limits


def _check_keys(settings: Any, names: Collection[str], path: str) -> None:
    if not isinstance(settings, Mapping):
        raise wrong_type(settings, path, f"use a dict with some of {', '.join(names)}")
    if unknown := [key for key in settings if key not in names]:
        raise OptionError(f"{path} has unknown keys {unknown}", remedy=f"use some of {', '.join(names)}")


def check_limits(limits: PerCall, plans: TurnPlans) -> PerCall:
    """Return the same, or raise `OptionError` where it asks for more than the options give."""
    limit, options, recall = plans.history.last_messages, plans.core.state.recall, limits.recall or {}
    if limits.last_messages is not None:
        at_least(limits.last_messages, 0, f"{_PATH}['last_messages']", LARGEST if limit is None else limit)
    if options is not None and recall.get("top_k") is not None:  # a recall that is off is refused in `TurnPlans.gather`
        at_least(recall["top_k"], 1, f"{_PATH}['recall']['top_k']", options.top_k)
    if options is not None and recall.get("scope") is not None:
        one_of(recall["scope"], sorted({"thread", options.scope}), f"{_PATH}['recall']['scope']")
    return limits


def forbidden(limits: PerCall, tool: str) -> str:
    """Return why a model may not call a tool of memory; an empty text: it may."""
    if not limits.working_memory and tool.startswith(WORKING):
        return "this call goes without working memory"
    return "this call is read-only" if limits.read_only and tool.startswith(WRITING) else ""


@dataclass(frozen=True, slots=True)
class OuterRun:
    """The run of an agent while one of its tools is running."""

    ids: Ids  # that it names itself, whatever the program fixes for a memory
    user: str | None  # authenticated by the LangGraph server
    limits: PerCall


# LangGraph hands it on to a run in a tool, unless that run has a thread of its own: then nothing of its config is left
outer_run: ContextVar[OuterRun | None] = ContextVar("outer_run", default=None)


@contextmanager
def outer_run_of(config: RunnableConfig, *, trust_client_ids: bool) -> Iterator[None]:
    """Tell the agents that run inside a tool about the run that calls it."""
    call_limits, user = limits_of(config), _authenticated(_runtime(), config.get("configurable"))
    # its other limits are about its own conversation
    limits = replace(call_limits, recall=False if call_limits.recall is False else None, last_messages=None)
    token = outer_run.set(OuterRun(resolve(config, trust_client_ids=trust_client_ids), user, limits))
    try:
        yield
    finally:
        outer_run.reset(token)


def finder(user_id: str | Owner | None, *, trust_client_ids: bool = False) -> Callable[..., Ids]:
    """Return `resolve` with the owner that a program fixes; `OptionError` or `IdError` for what cannot be one."""
    if isinstance(user_id, str):  # a function, as what a run names is compared with the authenticated user all the same
        fixed_id = check_id(user_id, "user_id")
        return partial(resolve, user_id=lambda _: fixed_id, trust_client_ids=trust_client_ids)
    if user_id is not None and (isinstance(user_id, type) or not callable(user_id)):
        raise wrong_type(user_id, "user_id", "pass a str, or a function of the ids of a run")
    return partial(resolve, user_id=user_id, trust_client_ids=trust_client_ids)


def required_ids(ids: Ids) -> tuple[str, str]:
    """Return thread_id and user_id: a thread without a user owns itself. `IdError` when there is no thread."""
    thread_id = check_id(ids.thread_id, "thread_id")
    return thread_id, thread_id if ids.user_id is None else check_id(ids.user_id, "user_id")


def scoped_ids(ids: Ids, scope: Scope) -> Ids:
    """Drop thread_id when the scope is "user"."""
    if ids.is_thread_alone:
        return Ids(*required_ids(ids))
    return ids if scope == "thread" else Ids(None, ids.user_id)


def resolve(
    config: RunnableConfig | None,
    *,
    thread_id: str | None = None,
    user_id: str | Owner | None = None,
    runtime: Any = None,
    trust_client_ids: bool = False,
) -> Ids:
    """Find the ids of a run; an id that is found nowhere stays None.

    Ids that the program passes win. Else the user is the one that a LangGraph server has authenticated. A run that
    names another user raises `IdError`, because clients write these names, unless `trust_client_ids`. Without an
    authenticated user, the user comes from the `context` of the run (attribute or key), then from
    `config["configurable"]`, then from the outer run of a tool. The thread comes from the same two sources. A function
    as `user_id` gets the ids that were found, and returns the owner.
    """
    runtime = _runtime() if runtime is None else runtime
    configurable = (config or {}).get("configurable")
    threads, users = list[str](), dict[str, str]()
    for label, source in (("the context", getattr(runtime, "context", None)), ("config['configurable']", configurable)):
        if _value(source, "resource_id") is not None:
            raise IdError(f"'resource_id' in {label} names nobody", remedy="pass it as 'user_id'")
        if (value := _value(source, "thread_id")) is not None:
            threads.append(str(value))  # LangGraph Studio and some clients send UUIDs as objects
        if (value := _value(source, "user_id")) is not None:
            users[f"'user_id' in {label}"] = str(value)
    run_thread = next(iter(threads), None)
    thread_id = run_thread if thread_id is None else thread_id
    if user_id is not None and not callable(user_id):
        return Ids(thread_id, user_id)
    if users.get(_USER) == "" and getattr(runtime, "server_info", None) is not None:
        del users[_USER]  # a LangGraph server without authentication has written it
    user, outer = _authenticated(runtime, configurable), outer_run.get()
    if user is not None and not trust_client_ids:
        for label, named_user in users.items():
            _check_user(user, named_user, label)
    if outer is not None:  # a thread alone is no user, but where this run has another thread
        parent = outer.ids
        user = parent.thread_id if parent.is_thread_alone and run_thread != parent.thread_id else parent.user_id
    ids = Ids(thread_id, next(iter(users.values()), user))
    if user_id is None:
        return ids
    owner: object = user_id(ids)
    if owner is None:
        raise IdError(
            "the function passed as user_id returned None", remedy="return a str, also where no user is named"
        )
    return replace(ids, user_id=check_id(owner, "what the function passed as user_id returned"))


def owner_of_session(user_id: str | None) -> str | None:
    """Find the owner of a chat history as `resolve` does; None means the present owner of the thread."""
    # RunnableWithMessageHistory passes on what it reads in the config, so that counts as an id of a client
    user = _authenticated(_runtime(), None)
    if user is not None and user_id is not None and user_id == ensure_config().get("configurable", {}).get("user_id"):
        _check_user(user, user_id, _USER)
    return user if user_id is None else user_id


def _authenticated(runtime: Any, configurable: Any) -> str | None:
    """Return the id of the user who is authenticated in this run or in the outer run of a tool; None without one."""
    # the server makes an object of `langgraph_auth_user`: a client can forge texts, such as `langgraph_auth_user_id`
    users = (getattr(getattr(runtime, "server_info", None), "user", None), _value(configurable, "langgraph_auth_user"))
    identities = (getattr(user, "identity", None) for user in users)
    outer = outer_run.get()
    return next((str(identity) for identity in identities if identity), outer.user if outer is not None else None)


def _check_user(user: str, named_user: str, label: str) -> None:
    if named_user != user:  # the text quotes neither: both may be ids of other people than its reader
        raise IdError(
            f"{label} names another user than the one that the LangGraph server has authenticated",
            remedy="leave it out, or pass trust_client_ids=True in a service that acts for its users and checks "
            "that it may",
        )


def _value(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)


def _runtime() -> Any:
    """Return the runtime of the graph that is running, None outside of one."""
    from langgraph.runtime import get_runtime

    try:
        return get_runtime()
    except (RuntimeError, KeyError):  # outside of a run; in a run that is not a graph's
        return None


def kind_of(config: RunnableConfig) -> Kind:
    """Tell what the messages of a run are: a checkpointer's state, the list of one call, or a part of an outer one."""
    configurable = config.get("configurable", {})
    if "|" in configurable.get("checkpoint_ns", ""):
        return "part"
    # LangGraph's own key; without a checkpointer it holds None
    return "state" if configurable.get("__pregel_checkpointer") else "list"
