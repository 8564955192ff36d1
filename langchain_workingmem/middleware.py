"""Memory for `create_agent`: one line, and the agent remembers."""

from __future__ import annotations

import asyncio
import logging
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

from langchain_workingmem._redis.recent import Recent
from langchain_workingmem._text.copies import is_copy, without_memory
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem.errors import IdError, OptionError, ThreadOwnershipError, WorkingMemError
from langchain_workingmem.history import Branch, Kind, is_refusal, refuse_messages, save_messages
from langchain_workingmem.ids import required_ids, resolve, thread_of
from langchain_workingmem.memory import Memory
from langchain_workingmem.nodes import kind_of
from langchain_workingmem.options import Ids, check_type, one_of
from langchain_workingmem.percall import PerCall
from langchain_workingmem.tools import WRITING, memory_tools
from langchain_workingmem.turn import Gathered, Turn, question, to_save, turn_of
from langchain_workingmem.working_memory import read_working_memory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langchain.agents.middleware.types import ModelCallResult, ModelRequest, ModelResponse, ToolCallRequest
    from langchain_core.language_models import BaseChatModel

    from langchain_workingmem._engine.breaker import Part
    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem.models import MemoryContext
    from langchain_workingmem.options import OnError

_log = logging.getLogger("langchain_workingmem")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AgentTurn:
    """What the middleware knows during one turn. It lives here, because all of a state is streamed to clients."""

    question: str | None  # id of the message that the turn answers
    gathered: Gathered
    branch: Branch  # what is still to be written down about the list that the run began with
    saved: dict[str, BaseMessage] = field(default_factory=dict)  # by id, as they were saved
    model: BaseChatModel | None = None  # which answers, and may make the thread's title

    def unsaved(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return what is to be saved of a state: not what is, nor what the thread holds under another id."""
        fresh = to_save(messages, self.branch, self.gathered.seqs)
        return [message for message in fresh if self.saved.get(message.id or "") != message]

    def with_saved(self, messages: Sequence[BaseMessage]) -> AgentTurn:
        """Remember that messages are saved, and the branch with them."""
        known = {message.id: message for message in messages if message.id}
        branch = replace(self.branch.written(), question=self.branch.question or self.question or "")
        return replace(self, branch=branch, saved={**self.saved, **known})


Key: TypeAlias = "tuple[str | None, str | None, str]"  # thread, resource, and which agent of a run
MOST_TURNS = 256  # that are kept; one that is dropped is gathered again


class _Name(str):
    """The name of a middleware. `create_agent` compares them, and its own words for two that are equal name no remedy."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        found = str.__eq__(self, other)
        if found is True and isinstance(other, _Name) and self is not other:
            raise OptionError(
                f"two {self} in one agent",
                remedy="give the second one a name of its own, MemoryMiddleware(memory, name='team')",
            )
        return found

    __hash__ = str.__hash__


_outer_thread: ContextVar[str | None] = ContextVar("outer_thread", default=None)  # of the agent whose tool is running


class MemoryMiddleware(AgentMiddleware[Any, Any, Any]):
    """Gives an agent its memory: `create_agent(model, tools, middleware=[MemoryMiddleware(memory)])`.

    The model is shown the history that the state does not hold, and, in front of the user's last words, what is recalled and
    working memory (`placement` puts them behind the system prompt). Nothing of that enters the state. The state is the
    conversation: other branches and what was edited or removed are not shown. Each message is saved once: what
    the user says while the model answers, so that it is there even if nobody waits for the answer, and the rest behind
    each answer. Recall and history are read once a turn, working memory before every model call. List it first: what other
    middleware redacts or edits is then saved as edited.

    The resource is the user whom a LangGraph server has authenticated, else whom the context of the run or
    `config["configurable"]` names; the thread comes from these two. A thread of somebody is reached only with its owner; with
    only a `thread_id` a new thread owns itself. An agent that runs inside a tool of another one sees memory but does not
    write into the outer conversation. `config["configurable"]["memory"]` restricts a single call (`PerCall`).
    Cost: two round trips before the first model call and one beside it, one before each further one, one behind each.

    Args:
        memory: The memory.
        read_only: Show memory, write nothing, give no tools that write.
        persist: False saves no messages; working memory may still be updated.
        tools: Names of the memory tools to give the agent; None: those of `memory.tools()`, an empty list: none.
        on_error: When Redis or the embedding model fails: "raise", or "log" and let the agent answer without memory, or
            without recall. It counts more than that of the memory, which is meant by None. Without Redis a turn with "log"
            waits once: 0.3 s when the connection is refused, one `timeout` when nobody answers (docs/reliability.md).
        trust_client_ids: True lets context and configurable name somebody else than the user whom a LangGraph server has
            authenticated: for services that speak for their users, with a check of your own that they may.
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
        trust_client_ids: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        check_type(memory, Memory, "memory")
        self._read_only = read_only
        self._persist = persist and not read_only
        self._on_error: OnError = on_error or memory.core.on_error
        one_of(self._on_error, ("raise", "log"), "on_error")
        self._core = replace(memory.core, on_error=self._on_error)
        self._plans = Turn(self._core, memory.history_options)
        self._trust_client_ids = trust_client_ids
        self.tools = memory_tools(
            self._core,
            thread_id=None,
            resource_id=None,
            include=tools,
            trust_client_ids=trust_client_ids,
            name=name,
            read_only=read_only,
        )
        self._memory_name = name
        self._name = _Name(f"{type(self).__name__}_{name}" if name else type(self).__name__)
        self._turns: Recent[Key, AgentTurn] = Recent(MOST_TURNS)
        self._begun: Recent[Key, list[BaseMessage]] = Recent(MOST_TURNS)

    @property
    def name(self) -> str:
        """Return the name by which the agent knows it."""
        return self._name

    # ------------------------------------------------------------------ hooks

    def before_agent(  # type: ignore[override]
        self, state: Any, runtime: Runtime[Any], config: RunnableConfig
    ) -> None:
        """Look at the state as the run begins: other middleware may trim it before the model is called."""
        key = self._key(runtime, config)
        self._turns.pop(key)
        self._begun.put(key, [*state["messages"]])

    async def abefore_agent(  # type: ignore[override]
        self, state: Any, runtime: Runtime[Any], config: RunnableConfig
    ) -> None:
        """Async twin of `before_agent`."""
        self.before_agent(state, runtime, config)

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
        found = self._keep(self._key(request.runtime, config), replace(found, model=request.model))
        beside = None
        if self._saves_question(request, found, config):
            saving = self._save_question(request, config)
            beside = Thread(target=copy_context().run, args=(self._core.run, saving), daemon=True)
            beside.start()
        try:
            return handler(self._remind(request, found, config))
        except Exception as error:
            if beside is not None:
                beside.join()
            self._core.run(self._fail(request, config, error))
            raise
        finally:
            if beside is not None:
                beside.join()

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelCallResult[Any]:
        """Async twin of `wrap_model_call`."""
        config = get_config()
        found = self._known(request, config)
        if found is None:
            found = await self._core.arun(self._prepare(_said(request), request.runtime, config))
        found = self._keep(self._key(request.runtime, config), replace(found, model=request.model))
        beside = None
        if self._saves_question(request, found, config):
            beside = asyncio.ensure_future(self._core.arun(self._save_question(request, config)))
        try:
            return await handler(self._remind(request, found, config))
        except Exception as error:
            if beside is not None:
                await asyncio.shield(beside)
            await self._core.arun(self._fail(request, config, error))
            raise
        except asyncio.CancelledError:
            self._turns.pop(self._key(request.runtime, config))
            raise
        finally:
            if beside is not None:
                await asyncio.shield(beside)  # a caller that goes away shall not take it along

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], T]) -> T:
        """Let agents that run inside the tool know where they are."""
        token = _outer_thread.set(thread_of(get_config()))
        try:
            return handler(request)
        finally:
            _outer_thread.reset(token)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[T]]) -> T:
        """Async twin of `wrap_tool_call`."""
        token = _outer_thread.set(thread_of(get_config()))
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
        ids = resolve(config, runtime=runtime, trust_client_ids=self._trust_client_ids)
        return ids.thread_id, ids.resource_id, _namespace(config).rpartition("|")[0]

    def _turn(self, messages: Sequence[BaseMessage], key: Key) -> AgentTurn | None:
        """Return the turn that these messages belong to; a summary may have taken its question away."""
        found = self._turns.get(key)
        asked = question(messages)
        return found if found and (asked is None or asked.id == found.question) else None

    def _end(self, runtime: Any, config: RunnableConfig) -> None:
        key = self._key(runtime, config)
        self._turns.pop(key)
        self._core.state.forget_shown_messages(key[0])

    def _known(self, request: ModelRequest[Any], config: RunnableConfig) -> AgentTurn | None:
        return self._turn(_said(request), self._key(request.runtime, config))

    def _keep(self, key: Key, found: AgentTurn) -> AgentTurn:
        self._turns.put(key, found)
        return found

    def _saves_question(self, request: ModelRequest[Any], found: AgentTurn, config: RunnableConfig) -> bool:
        """Tell whether the first call of a turn has anything to save beside it: a thread or a task is started for it."""
        if found.saved or not self._saves(config):
            return False
        return found.branch.is_news or bool(found.unsaved(_said(request)))

    def _saves(self, config: RunnableConfig) -> bool:
        return self._persist and PerCall.of(config).saves and not is_inside_a_tool(config)

    # ------------------------------------------------------------------ plans

    def _prepare(self, messages: Sequence[BaseMessage], runtime: Any, config: RunnableConfig) -> Plan[AgentTurn]:
        key = self._key(runtime, config)
        before = self._turn(messages, key)
        asked = question(messages)
        call = PerCall.of(config).within(self._plans.history, self._core.state.recall)
        try:
            if before is not None:
                return self._keep(key, (yield from self._core.gated(self._refreshed(before, key), key[0], "within")))
            part: Part = "within" if is_inside_a_tool(config) else "begins"
            begun = self._begun.pop(key) or messages
            gathered = yield from self._core.gated(self._gathering(begun, key, config, call), key[0], part)
        except (IdError, OptionError, ThreadOwnershipError):
            raise  # a mistake of the program, or of the client: it fails the same way every time
        except WorkingMemError as error:
            if self._on_error == "raise":
                raise
            _log.warning("the agent answers without memory: %s", error)
            unknown = Branch(kind=kind_of(config))
            return self._keep(key, before or AgentTurn(asked.id if asked else None, Gathered(""), unknown))
        if is_inside_a_tool(config):  # the outer conversation is not that of an agent in a tool
            gathered = replace(gathered, stored=[])
        return self._keep(key, AgentTurn(asked.id if asked else None, gathered, gathered.branch))

    def _gathering(
        self, messages: Sequence[BaseMessage], key: Key, config: RunnableConfig, call: PerCall
    ) -> Plan[Gathered]:
        kind: Kind = "part" if is_inside_a_tool(config) else kind_of(config)
        return self._plans.gather(
            messages,
            *required_ids(Ids(*key[:2])),
            self._on_error,
            kind=kind,
            recall=call.recall,
            last_messages=call.last_messages,
        )

    def _refreshed(self, before: AgentTurn, key: Key) -> Plan[AgentTurn]:
        if before.gathered.working_memory is None:
            return before
        thread_id, resource_id = required_ids(Ids(*key[:2]))
        state = yield from read_working_memory(self._core.state, thread_id, resource_id)
        return replace(before, gathered=replace(before.gathered, working_memory=state))

    def _save_question(self, request: ModelRequest[Any], config: RunnableConfig) -> Plan[None]:
        """Save what the user says before it is answered; what fails here is tried again after the answer."""
        try:
            yield from self._save(_said(request), request.runtime, config, on_error="raise")
        except WorkingMemError as error:
            _log.info("the question is saved after the answer: %s", error)
        except Exception:  # noqa: BLE001 - a bug is logged, and raised when it is tried again
            _log.exception("saving the question beside the model failed; it is saved after the answer")

    def _fail(self, request: ModelRequest[Any], config: RunnableConfig, error: Exception) -> Plan[None]:
        """Save the turn so far, and forget what was gathered for it: nobody knows when it goes on."""
        key = self._key(request.runtime, config)
        yield from self._save(_said(request), request.runtime, config, on_error="log")
        found = self._turns.pop(key)
        if self._saves(config) and found is not None and is_refusal(error):
            yield from self._refused(_said(request), key, found)

    def _refused(self, messages: Sequence[BaseMessage], key: Key, found: AgentTurn) -> Plan[None]:
        """Keep a turn that the provider refuses from being sent again, with every question that follows."""
        ids = [found.branch.aliases.get(message.id or "", message.id or "") for message in turn_of(messages)]
        try:
            refusing = refuse_messages(
                self._core.state, *required_ids(Ids(*key[:2])), [id for id in ids if is_utf8(id)]
            )
            yield from self._core.gated(refusing, key[0], "within")
        except WorkingMemError as error:
            _log.warning("a question that the provider has refused is sent again: %s", error)

    def _save(
        self, messages: Sequence[BaseMessage], runtime: Any, config: RunnableConfig, *, on_error: OnError | None = None
    ) -> Plan[None]:
        if not self._saves(config):
            return
        key = self._key(runtime, config)
        before = self._turn(messages, key)
        asked = question(messages)
        known = before or AgentTurn(asked.id if asked else None, Gathered(""), Branch(kind=kind_of(config)))
        fresh = known.unsaved(messages)
        if not fresh and not known.branch.is_news:
            return
        on_error = on_error or self._on_error
        try:
            plan = self._saving(fresh, key, before, known.branch, on_error)
            yield from self._core.gated(plan, key[0], "within")
        except WorkingMemError as error:
            if on_error == "raise":
                raise
            _log.warning("the turn is not saved: %s", error)
            return
        if before is not None:
            self._core.state.add_shown_messages(key[0] or "", [message.id for message in fresh if message.id])
            self._keep(key, before.with_saved(fresh))

    def _saving(
        self, fresh: Sequence[BaseMessage], key: Key, before: AgentTurn | None, branch: Branch, on_error: OnError
    ) -> Plan[list[BaseMessage]]:
        model = before.model if before else None
        return save_messages(
            self._core, fresh, *required_ids(Ids(*key[:2])), on_error=on_error, branch=branch, title_model=model
        )

    # ------------------------------------------------------------------ the request

    def _remind(self, request: ModelRequest[Any], prepared: AgentTurn, config: RunnableConfig) -> ModelRequest[Any]:
        self._check_tools(request)
        read_only = self._read_only or PerCall.of(config).read_only
        own = self.tools
        if read_only:
            own = [tool for tool in own if not tool.name.startswith(WRITING)]
        hidden = {tool.name for tool in self.tools} - {tool.name for tool in own}
        # a copy that the caller has put into the state; another memory's copy stands in the request only
        copies = {message.id for message in _said(request) if is_copy(message)}
        context = self._plans.assemble(
            prepared.gathered,
            [without_memory(message) if message.id in copies else message for message in request.messages],
            read_only=read_only,
            for_model=True,
            tools=[tool.name for tool in own],
            name=self._memory_name,
        )
        tools = [tool for tool in request.tools if getattr(tool, "name", "") not in hidden]
        return request.override(
            messages=context.messages,  # type: ignore[arg-type]
            system_message=_behind(request.system_message, context),
            tools=tools,
        )

    def _check_tools(self, request: ModelRequest[Any]) -> None:
        """Raise `OptionError` where another tool has taken the name of one of ours: a model would call the wrong one."""
        own = {tool.name: tool for tool in self.tools}
        for tool in request.tools:
            name = str(tool.get("name") if isinstance(tool, dict) else tool.name)
            if name in own and own[name] is not tool:
                raise OptionError(
                    f"the agent has another tool named {name!r}",
                    remedy="rename that one, pass MemoryMiddleware(memory, name='team'), or leave the tool to it with "
                    "MemoryMiddleware(memory, tools=[...])",
                )


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
        return outer == thread_of(config)
    return any(part.startswith("tools:") for part in _namespace(config).split("|")[:-1])


def _namespace(config: RunnableConfig) -> str:
    found: str = config.get("configurable", {}).get("checkpoint_ns", "")
    return found
