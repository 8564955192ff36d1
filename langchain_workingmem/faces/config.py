"""What a run says in config and context: whose memory it uses, and what it may not do. A model chooses neither."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from langchain_core.runnables.config import ensure_config

from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._text.values import shown
from langchain_workingmem.checks import check_type, check_zone, wrong_type
from langchain_workingmem.errors import IdError, OptionError
from langchain_workingmem.options import Ids, check_fields
from langchain_workingmem.recall.query import CHECKS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.history.follow import Kind
    from langchain_workingmem.options import HistoryOptions, RecallOptions, Scope
    from langchain_workingmem.turn.api import Turn
    from langchain_workingmem.turn.gather import Gathered

Owner: TypeAlias = Callable[[Ids], str]  # returns the owner of the memory, given the ids that the run names
WRITING = ("update_working_memory", "clear_working_memory")  # tools; with the name of a memory they begin like this
WORKING = (*WRITING, "get_working_memory")
_PATH = "config['configurable']['memory']"
_USER = "'user_id' in config['configurable']"


# ---------------------------------------------------------------------- what a call may not do


@dataclass(frozen=True, slots=True, kw_only=True)
class PerCall:
    """Restrictions of one call of an agent or a graph, as `config["configurable"]["memory"]` holds them.

    Clients write them, so they lift no restriction of middleware, nodes and options: `{"read_only": False}` and
    `{"persist": True}` change nothing. An unknown key, or a number that is larger than in the options, raises
    `OptionError`.

    Args:
        read_only: Show memory, write nothing, give no tools that write.
        persist: False saves no messages of this call; working memory may still be updated.
        working_memory: False: it is not shown, and the model gets no tools of it.
        recall: False: nothing is recalled by itself, the tool `search_memory` stays; or some of top_k, scope, metadata,
            with the meaning of `recall.search`.
        last_messages: Exactly so many instead of `HistoryOptions.last_messages`, 0: none.
        timezone: Of the user, an IANA name; instead of that of `Memory`.
    """

    read_only: bool = False
    persist: bool = True
    working_memory: bool = True
    recall: Literal[False] | Mapping[str, Any] | None = None
    last_messages: int | None = None
    timezone: str | None = None

    def __post_init__(self) -> None:
        if self.timezone is not None:
            check_zone(self.timezone, f"{_PATH}['timezone']")
        check_fields(self, last_messages=0)
        if isinstance(self.recall, Mapping):
            _check_keys(self.recall, _CHECKS, f"{_PATH}['recall']")
            asked = {name: value for name, value in self.recall.items() if value is not None}
            for name, value in asked.items():
                _CHECKS[name](value, name)
            object.__setattr__(self, "recall", asked)
        elif self.recall is not None and self.recall is not False:
            remedy = f"use False, or a dict with some of {', '.join(_CHECKS)}"
            raise OptionError(f"{_PATH}['recall']={shown(self.recall)}", remedy=remedy)

    @classmethod
    def of(cls, config: RunnableConfig | None) -> PerCall:
        """Read and check what the config of a call says.

        A run inside a tool of an agent that says nothing may do no more than that agent.
        """
        given = ((config or {}).get("configurable") or {}).get("memory")
        if given is None:
            outer = outer_run.get()
            return _NOTHING if outer is None else outer.limits
        keys = [field.name for field in fields(cls)]
        if not isinstance(given, Mapping):
            raise wrong_type(given, _PATH, f"use a dict with some of {', '.join(keys)}")
        _check_keys(given, keys, _PATH)
        return cls(**given)

    @property
    def saves(self) -> bool:
        """Tell whether messages may be saved."""
        return self.persist and not self.read_only

    @property
    def metadata(self) -> Mapping[str, Any] | None:
        """Return the filter of recall."""
        return (self.recall or {}).get("metadata")

    def forbids(self, tool: str) -> str:
        """Return why a model may not call a tool of memory; an empty text: it may."""
        if not self.working_memory and tool.startswith(WORKING):
            return "this call goes without working memory"
        return "this call is read-only" if self.read_only and tool.startswith(WRITING) else ""

    def within(self, history: HistoryOptions, recall: RecallOptions | None) -> PerCall:
        """Return the same, or raise `OptionError` where it asks for more than the options give."""
        if self.last_messages is not None:
            _at_most(self.last_messages, history.last_messages, "last_messages")
        asked = self.recall or {}
        if recall is None:  # asking for a recall that is off fails later, in `Turn.gather`
            return self
        _at_most(asked.get("top_k", 0), recall.top_k, "top_k")
        if asked.get("scope") == "user" and recall.scope == "thread":
            raise OptionError(
                f"{_PATH}['recall']['scope']='user'", remedy="the options say 'thread', and a call may only narrow it"
            )
        return self

    def gather(
        self, turn: Turn, messages: Sequence[BaseMessage], ids: tuple[str, str], kind: Kind, **arguments: Any
    ) -> Plan[Gathered]:
        """Plan what `Turn.gather` does, within these restrictions; a load node passes `now` and `left_out`."""
        asked = self.within(turn.history, turn.core.state.recall).recall or {}
        return turn.gather(
            messages,
            *ids,
            kind=kind,
            recall=False if self.recall is False else None,
            working_memory=self.working_memory,
            arguments={**asked, "now": arguments.pop("now", None)},
            last_messages=self.last_messages,
            timezone=self.timezone,
            **arguments,
        )


def _at_most(value: int, most: int | None, name: str) -> None:
    if most is not None and value > most:
        raise OptionError(f"{_PATH}: {name}={value}", remedy=f"the options say {most}, and a call may only lower it")


def _check_keys(given: Mapping[Any, Any], known: Collection[str], path: str) -> None:
    if unknown := [key for key in given if key not in known]:
        raise OptionError(f"{path} has unknown keys {unknown}", remedy=f"use some of {', '.join(known)}")


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "top_k": CHECKS["top_k"],
    "scope": CHECKS["scope"],
    "metadata": lambda value, name: check_type(value, Mapping, name),
}
_NOTHING = PerCall()


# ---------------------------------------------------------------------- whose memory it is


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
    user = _authenticated(_runtime(), config.get("configurable"))
    asked = PerCall.of(config)
    recall: Literal[False] | None = False if asked.recall is False else None
    limits = replace(asked, recall=recall, last_messages=None)  # its other limits are about its own conversation
    token = outer_run.set(OuterRun(resolve(config, trust_client_ids=trust_client_ids), user, limits))
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
    sources = {"the context": getattr(runtime, "context", None), "config['configurable']": configurable}
    for where, source in sources.items():
        if _value(source, "resource_id") is not None:
            raise IdError(f"'resource_id' in {where} names nobody", remedy="pass it as 'user_id'")
    run_thread = next((id for source in sources.values() if (id := _id(source, "thread_id")) is not None), None)
    thread_id = run_thread if thread_id is None else thread_id
    if user_id is not None and not callable(user_id):
        return Ids(thread_id, user_id)
    named = {f"'user_id' in {where}": id for where, one in sources.items() if (id := _id(one, "user_id")) is not None}
    if named.get(_USER) == "" and getattr(runtime, "server_info", None) is not None:
        del named[_USER]  # a LangGraph server without authentication has written it
    user, outer = _authenticated(runtime, configurable), outer_run.get()
    if user is not None and not trust_client_ids:
        for where, id in named.items():
            _check_user(user, id, where)
    if outer is not None:  # a thread alone is no user, but where this run has another thread
        own = outer.ids
        user = own.thread_id if own.is_thread_alone and run_thread != own.thread_id else own.user_id
    return owned(Ids(thread_id, next(iter(named.values()), user)), user_id)


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


def _check_user(user: str, named: str, where: str) -> None:
    if named != user:  # the text quotes neither: both may be ids of other people than its reader
        raise IdError(
            f"{where} names another user than the one that the LangGraph server has authenticated",
            remedy="leave it out, or pass trust_client_ids=True in a service that acts for its users and checks "
            "that it may",
        )


def _value(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)


def _id(source: Any, name: str) -> str | None:
    value = _value(source, name)  # LangGraph Studio and some clients send UUIDs as objects
    return value if value is None or isinstance(value, str) else str(value)


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
