"""Memory for `create_agent`: one line, and the agent remembers."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

try:
    from langchain.agents.middleware import AgentMiddleware
except ImportError as error:
    msg = "MemoryMiddleware needs its extra: pip install 'langchain-workingmem[agents]'"
    raise ImportError(msg) from error
from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.runnables import RunnableConfig  # noqa: TC002 - LangGraph injects it by its annotation
from langgraph.config import get_config
from langgraph.runtime import Runtime  # noqa: TC002 - likewise

from langchain_workingmem.errors import IdError, OptionError, WorkingMemError
from langchain_workingmem.ids import resolve
from langchain_workingmem.memory import Memory
from langchain_workingmem.options import check_type, one_of
from langchain_workingmem.plans import turn, working_memory
from langchain_workingmem.plans.threads import owner_of
from langchain_workingmem.plans.turn import Gathered
from langchain_workingmem.tools import memory_tools

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langchain.agents.middleware.types import ModelCallResult, ModelRequest, ModelResponse, ToolCallRequest

    from langchain_workingmem.models import MemoryContext
    from langchain_workingmem.options import OnError
    from langchain_workingmem.plans.effects import Plan

_log = logging.getLogger("langchain_workingmem")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Turn:
    """What the middleware knows during one turn. It lives here, because all of a state is streamed to clients."""

    question: str | None  # id of the message that the turn answers
    gathered: Gathered
    resource_id: str | None  # whose thread it is; None as long as that could not be looked up
    saved: dict[str, BaseMessage] = field(default_factory=dict)  # by id, as they were saved


Key: TypeAlias = "tuple[str | None, str | None, str]"  # thread, resource, and which agent of a run
MOST_TURNS = 256  # that are kept; one that is dropped is gathered again


class _Name(str):
    """The name of a middleware. `create_agent` compares them, and its own words for two that are equal name no remedy."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        found = str.__eq__(self, other)
        if found is True and isinstance(other, _Name) and self is not other:
            msg = (
                f"two {self} in one agent: give the second one a name of its own, MemoryMiddleware(memory, name='team')"
            )
            raise OptionError(msg)
        return found

    __hash__ = str.__hash__


_outer_thread: ContextVar[str | None] = ContextVar("outer_thread", default=None)  # of the agent whose tool is running


class MemoryMiddleware(AgentMiddleware[Any, Any, Any]):
    """Gives an agent its memory: `create_agent(model, tools, middleware=[MemoryMiddleware(memory)])`.

    The model is shown what is recalled, the history that the state does not hold, and working memory behind the agent's
    own system prompt, which stays an unchanged prefix. Nothing of that enters the state. Each message is saved once: what
    the user says while the model answers, so that it is there even if nobody waits for the answer, and the rest behind
    each answer. Recall and history are read once a turn, working memory before every model call. List it first: what other
    middleware redacts or edits is then saved as edited.

    Ids come from the context of the run, from `config["configurable"]`, or, for the resource, from the server's
    authenticated user; with only a `thread_id` the owner of that thread counts, and a new thread owns itself. An agent that
    runs inside a tool of another one sees memory but does not write into the outer conversation.
    Cost: two round trips before the first model call and one beside it, one before each further one, one behind each;
    and one at the beginning when only the thread is known.

    Args:
        memory: The memory.
        read_only: Show memory, write nothing, give no tools that write.
        persist: False saves no messages; working memory may still be updated.
        tools: Names of the memory tools to give the agent; None: those of `memory.tools()`, an empty list: none.
        on_error: When Redis or the embedding model fails: "raise", or "log" and let the agent answer without memory, or
            without recall. It counts more than that of the memory, which is meant by None.
        name: For the second memory of an agent, such as "team": a part of the names of its tools (`search_memory_team`), and
            the label of its blocks in the prompt.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        read_only: bool = False,
        persist: bool = True,
        tools: Sequence[str] | None = None,
        on_error: OnError | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        check_type(memory, Memory, "memory")
        self._memory = memory
        self._core = memory.core
        self._read_only = read_only
        self._persist = persist and not read_only
        self._on_error: OnError = on_error or memory.core.on_error
        one_of(self._on_error, ("raise", "log"), "on_error")
        self.tools = memory_tools(
            memory.core, thread_id=None, resource_id=None, include=tools, name=name, read_only=read_only
        )
        self._memory_name = name
        self._name = _Name(f"{type(self).__name__}_{name}" if name else type(self).__name__)
        self._turns: OrderedDict[Key, Turn] = OrderedDict()

    @property
    def name(self) -> str:
        """Return the name by which the agent knows it."""
        return self._name

    # ------------------------------------------------------------------ hooks

    def before_model(  # type: ignore[override]
        self, state: Any, runtime: Runtime[Any], config: RunnableConfig
    ) -> None:
        """Gather what the store knows, once a turn; later only read working memory."""
        self._core.run(self._prepare(state["messages"], runtime, config))

    async def abefore_model(  # type: ignore[override]
        self, state: Any, runtime: Runtime[Any], config: RunnableConfig
    ) -> None:
        """Async twin of `before_model`."""
        await self._core.arun(self._prepare(state["messages"], runtime, config))

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelCallResult[Any]:
        """Show memory to the model; save the question meanwhile, since nobody may wait for the answer."""
        config = get_config()
        found = self._known(request, config) or self._core.run(self._prepare(_said(request), request.runtime, config))
        beside = Thread(
            target=copy_context().run, args=(self._core.run, self._save_question(request, config)), daemon=True
        )
        beside.start()
        try:
            return handler(self._remind(request, found))
        except Exception:
            beside.join()
            self._core.run(self._fail(request, config))
            raise
        finally:
            beside.join()

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelCallResult[Any]:
        """Async twin of `wrap_model_call`."""
        config = get_config()
        found = self._known(request, config)
        if found is None:
            found = await self._core.arun(self._prepare(_said(request), request.runtime, config))
        beside = asyncio.ensure_future(self._core.arun(self._save_question(request, config)))
        try:
            return await handler(self._remind(request, found))
        except Exception:
            await asyncio.shield(beside)
            await self._core.arun(self._fail(request, config))
            raise
        except asyncio.CancelledError:
            self._turns.pop(self._key(request.runtime, config), None)
            raise
        finally:
            await asyncio.shield(beside)  # a caller that goes away shall not take it along

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], T]) -> T:
        """Let agents that run inside the tool know where they are."""
        token = _outer_thread.set(resolve(get_config()).thread_id)
        try:
            return handler(request)
        finally:
            _outer_thread.reset(token)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[T]]) -> T:
        """Async twin of `wrap_tool_call`."""
        token = _outer_thread.set(resolve(get_config()).thread_id)
        try:
            return await handler(request)
        finally:
            _outer_thread.reset(token)

    def after_model(  # type: ignore[override]
        self, state: Any, runtime: Runtime[Any], config: RunnableConfig
    ) -> None:
        """Save what is new."""
        self._core.run(self._save(state["messages"], runtime, config))

    async def aafter_model(  # type: ignore[override]
        self, state: Any, runtime: Runtime[Any], config: RunnableConfig
    ) -> None:
        """Async twin of `after_model`."""
        await self._core.arun(self._save(state["messages"], runtime, config))

    def after_agent(  # type: ignore[override]
        self, state: Any, runtime: Runtime[Any], config: RunnableConfig
    ) -> None:
        """Save what came after the last answer of the model; no round trip when that is nothing."""
        self._core.run(self._save(state["messages"], runtime, config))
        self._end(runtime, config)

    async def aafter_agent(  # type: ignore[override]
        self, state: Any, runtime: Runtime[Any], config: RunnableConfig
    ) -> None:
        """Async twin of `after_agent`."""
        await self._core.arun(self._save(state["messages"], runtime, config))
        self._end(runtime, config)

    # ------------------------------------------------------------------ turns

    def _key(self, runtime: Any, config: RunnableConfig) -> Key:
        ids = resolve(config, runtime=runtime)
        return ids.thread_id, ids.resource_id, _namespace(config).rpartition("|")[0]

    def _turn(self, messages: Sequence[BaseMessage], key: Key) -> Turn | None:
        """Return the turn that these messages belong to; a summary may have taken its question away."""
        found = self._turns.get(key)
        asked = turn.question(messages)
        return found if found and (asked is None or asked.id == found.question) else None

    def _end(self, runtime: Any, config: RunnableConfig) -> None:
        key = self._key(runtime, config)
        self._turns.pop(key, None)
        self._core.space.turn_is_over(key[0])

    def _known(self, request: ModelRequest[Any], config: RunnableConfig) -> Turn | None:
        return self._turn(_said(request), self._key(request.runtime, config))

    def _keep(self, key: Key, found: Turn) -> Turn:
        self._turns[key] = found
        self._turns.move_to_end(key)
        while len(self._turns) > MOST_TURNS:
            self._turns.popitem(last=False)
        return found

    # ------------------------------------------------------------------ plans

    def _ids(self, key: Key, before: Turn | None) -> Plan[tuple[str, str]]:
        thread_id, resource_id, _ = key
        return owner_of(self._core.space, thread_id, before.resource_id if before else resource_id)

    def _prepare(self, messages: Sequence[BaseMessage], runtime: Any, config: RunnableConfig) -> Plan[Turn]:
        key = self._key(runtime, config)
        before = self._turn(messages, key)
        asked = turn.question(messages)
        try:
            if before is not None:
                return self._keep(key, (yield from self._refreshed(before, key)))
            thread_id, resource_id = yield from self._ids(key, None)
            gathered = yield from self._memory.gathering(messages, thread_id, resource_id, self._on_error)
        except (IdError, OptionError):
            raise  # a mistake of the program: it fails the same way every time
        except WorkingMemError as error:
            if self._on_error == "raise":
                raise
            _log.warning("the agent answers without memory: %s", error)
            return self._keep(key, before or Turn(asked.id if asked else None, Gathered(""), key[1]))
        # a summary stands for what it has replaced, and the outer conversation is not that of an agent in a tool
        if turn.is_summarised(messages) or is_inside_a_tool(config):
            gathered = replace(gathered, stored=[])
        return self._keep(key, Turn(asked.id if asked else None, gathered, resource_id))

    def _refreshed(self, before: Turn, key: Key) -> Plan[Turn]:
        if before.gathered.working_memory is None:
            return before
        thread_id, resource_id = yield from self._ids(key, before)
        state = yield from working_memory.read(self._core.space, thread_id, resource_id)
        return replace(before, gathered=replace(before.gathered, working_memory=state))

    def _save_question(self, request: ModelRequest[Any], config: RunnableConfig) -> Plan[None]:
        """Save what the user says before it is answered; what fails here is tried again behind the answer."""
        known = self._known(request, config)
        if known is not None and known.question not in known.saved:
            with suppress(Exception):
                yield from self._save(_said(request), request.runtime, config, on_error="raise")

    def _fail(self, request: ModelRequest[Any], config: RunnableConfig) -> Plan[None]:
        """Save the turn so far, and forget what was gathered for it: nobody knows when it goes on."""
        yield from self._save(_said(request), request.runtime, config, on_error="log")
        self._turns.pop(self._key(request.runtime, config), None)

    def _save(
        self, messages: Sequence[BaseMessage], runtime: Any, config: RunnableConfig, *, on_error: OnError | None = None
    ) -> Plan[None]:
        if not self._persist or is_inside_a_tool(config):
            return
        key = self._key(runtime, config)
        before = self._turn(messages, key)
        saved = before.saved if before else {}
        fresh = [message for message in turn.unsaved(messages) if saved.get(message.id or "") != message]
        if not fresh:
            return
        on_error = on_error or self._on_error
        try:
            thread_id, resource_id = yield from self._ids(key, before)
            yield from self._core.saving(fresh, thread_id, resource_id, on_error=on_error)
        except WorkingMemError as error:
            if on_error == "raise":
                raise
            _log.warning("the turn is not saved: %s", error)
            return
        if before is not None:
            known = {message.id: message for message in fresh if message.id}
            self._core.space.add_in_sight(thread_id, known)
            self._keep(key, replace(before, resource_id=resource_id, saved={**saved, **known}))

    # ------------------------------------------------------------------ the request

    def _remind(self, request: ModelRequest[Any], prepared: Turn) -> ModelRequest[Any]:
        self._check_tools(request)
        context = self._memory.assembled(
            prepared.gathered,
            request.messages,
            read_only=self._read_only,
            for_model=True,
            tools=[tool.name for tool in self.tools],
            name=self._memory_name,
        )
        return request.override(
            messages=context.messages,  # type: ignore[arg-type]
            system_message=_behind(request.system_message, context),
        )

    def _check_tools(self, request: ModelRequest[Any]) -> None:
        """Raise `OptionError` where another tool has taken the name of one of ours: a model would call the wrong one."""
        own = {tool.name: tool for tool in self.tools}
        for tool in request.tools:
            name = str(tool.get("name") if isinstance(tool, dict) else tool.name)
            if name in own and own[name] is not tool:
                msg = (
                    f"the agent has another tool named {name!r}: rename that one, pass MemoryMiddleware(memory, name='team'), "
                    "or leave the tool to it with MemoryMiddleware(memory, tools=[...])"
                )
                raise OptionError(msg)


def _said(request: ModelRequest[Any]) -> list[BaseMessage]:
    """Return the conversation; middleware around this one may show the model something else."""
    return [*request.state["messages"]]


def _behind(system: SystemMessage | None, context: MemoryContext) -> SystemMessage | None:
    """Put memory behind the agent's own prompt, whose blocks stay as they are."""
    if not context.system:
        return system
    blocks: list[str | dict[Any, Any]] = [{"type": "text", "text": text} for text in context.system]
    if system is None:
        return SystemMessage(content=blocks)
    own = [{"type": "text", "text": system.content}] if isinstance(system.content, str) else system.content
    return system.model_copy(update={"content": [*own, *blocks]})


def is_inside_a_tool(config: RunnableConfig) -> bool:
    """Tell whether this agent runs inside a tool of another one, which has the same thread_id.

    The other one's middleware says so; without one, LangGraph's usual name for the node of the tools does.
    """
    if (outer := _outer_thread.get()) is not None:
        return outer == resolve(config).thread_id
    return any(part.startswith("tools:") for part in _namespace(config).split("|")[:-1])


def _namespace(config: RunnableConfig) -> str:
    found: str = config.get("configurable", {}).get("checkpoint_ns", "")
    return found
