"""Memory for `create_agent`: one line, and the agent remembers."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig  # noqa: TC002 - LangGraph injects it by its annotation
from langgraph.channels.untracked_value import UntrackedValue
from langgraph.config import get_config
from langgraph.runtime import Runtime  # noqa: TC002 - likewise

from langchain_workingmem.errors import IdError, OptionError, WorkingMemError
from langchain_workingmem.ids import resolve
from langchain_workingmem.options import one_of
from langchain_workingmem.plans import history, turn, working_memory
from langchain_workingmem.plans.codec import drafts
from langchain_workingmem.plans.threads import owner_of
from langchain_workingmem.plans.turn import Gathered, turn_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langchain.agents.middleware.types import ModelCallResult, ModelRequest, ModelResponse

    from langchain_workingmem.memory import Memory
    from langchain_workingmem.models import MemoryContext
    from langchain_workingmem.options import OnError
    from langchain_workingmem.plans.effects import Plan

_log = logging.getLogger("langchain_workingmem")


@dataclass(frozen=True, slots=True)
class Turn:
    """What the middleware knows during one turn. It lives in the state of the run, never in a checkpoint."""

    question: str | None  # id of the message that the turn answers
    gathered: Gathered
    saved: dict[str, BaseMessage] = field(default_factory=dict)  # by id, as they were saved


class MemoryState(AgentState[Any]):
    """The agent's state, and our part of it: not checkpointed, not in the input, not in the output."""

    memory_turn: NotRequired[Annotated[Turn | None, UntrackedValue, PrivateStateAttr]]


class MemoryMiddleware(AgentMiddleware[MemoryState, Any, Any]):
    """Gives an agent its memory: `create_agent(model, tools, middleware=[MemoryMiddleware(memory)])`.

    The model is shown what is recalled, the history that the state does not hold, and working memory behind the agent's
    own system prompt, which stays an unchanged prefix. Nothing of that enters the state. Each message of the turn is
    saved once, after the model has answered, and also when the model fails. Recall and history are read once a turn,
    working memory before every model call. List it first: what other middleware redacts or edits is then saved as edited.

    Ids come from the context of the run, from `config["configurable"]`, or, for the resource, from the server's
    authenticated user; with only a `thread_id` the owner of that thread counts, and a new thread owns itself. An agent that
    runs inside a tool of another one sees memory but does not write into the outer conversation.
    Cost: two round trips before the first model call, one before each further one, one to save after each.

    Args:
        memory: The memory.
        read_only: Show memory, write nothing, give no tools that write.
        persist: False saves no messages; working memory may still be updated.
        tools: Names of the memory tools to give the agent; None: those of `memory.tools()`, an empty list: none.
        on_error: When Redis or the embedding model fails: "raise", or "log" and let the agent answer without memory.
            None: that of the memory.
    """

    state_schema = MemoryState

    def __init__(
        self,
        memory: Memory,
        *,
        read_only: bool = False,
        persist: bool = True,
        tools: Sequence[str] | None = None,
        on_error: OnError | None = None,
    ) -> None:
        super().__init__()
        self._memory = memory
        self._core = memory.core
        self._read_only = read_only
        self._persist = persist and not read_only
        self._on_error: OnError = on_error or memory.core.on_error
        one_of(self._on_error, ("raise", "log"), "on_error")
        given = memory.tools(include=tools)
        if read_only:
            given = [tool for tool in given if tool.name not in ("update_working_memory", "clear_working_memory")]
        self.tools = given

    # ------------------------------------------------------------------ hooks

    def before_model(  # type: ignore[override]
        self, state: MemoryState, runtime: Runtime[Any], config: RunnableConfig
    ) -> dict[str, Any]:
        """Gather what the store knows, once a turn; later only read working memory."""
        return {"memory_turn": self._core.run(self._prepare(state, runtime, config))}

    async def abefore_model(  # type: ignore[override]
        self, state: MemoryState, runtime: Runtime[Any], config: RunnableConfig
    ) -> dict[str, Any]:
        """Async twin of `before_model`."""
        return {"memory_turn": await self._core.arun(self._prepare(state, runtime, config))}

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelCallResult[Any]:
        """Show memory to the model; save the turn so far when it fails."""
        state, runtime, config = self._of(request)
        prepared = state.get("memory_turn") or self._core.run(self._prepare(state, runtime, config))
        try:
            return handler(self._remind(request, prepared))
        except Exception:
            self._core.run(self._save({**state, "memory_turn": prepared}, runtime, config, failing=True))
            raise

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelCallResult[Any]:
        """Async twin of `wrap_model_call`."""
        state, runtime, config = self._of(request)
        prepared = state.get("memory_turn") or await self._core.arun(self._prepare(state, runtime, config))
        try:
            return await handler(self._remind(request, prepared))
        except Exception:
            await self._core.arun(self._save({**state, "memory_turn": prepared}, runtime, config, failing=True))
            raise

    def after_model(  # type: ignore[override]
        self, state: MemoryState, runtime: Runtime[Any], config: RunnableConfig
    ) -> dict[str, Any] | None:
        """Save what is new."""
        return self._core.run(self._save(state, runtime, config))

    async def aafter_model(  # type: ignore[override]
        self, state: MemoryState, runtime: Runtime[Any], config: RunnableConfig
    ) -> dict[str, Any] | None:
        """Async twin of `after_model`."""
        return await self._core.arun(self._save(state, runtime, config))

    def after_agent(  # type: ignore[override]
        self, state: MemoryState, runtime: Runtime[Any], config: RunnableConfig
    ) -> dict[str, Any] | None:
        """Save what came after the last answer of the model; no round trip when that is nothing."""
        return self._core.run(self._save(state, runtime, config))

    async def aafter_agent(  # type: ignore[override]
        self, state: MemoryState, runtime: Runtime[Any], config: RunnableConfig
    ) -> dict[str, Any] | None:
        """Async twin of `after_agent`."""
        return await self._core.arun(self._save(state, runtime, config))

    # ------------------------------------------------------------------ plans

    def _ids(self, runtime: Any, config: RunnableConfig) -> Plan[tuple[str, str]]:
        ids = resolve(config, runtime=runtime)
        return (yield from owner_of(self._core.space, ids.thread_id, ids.resource_id))

    def _prepare(self, state: Any, runtime: Any, config: RunnableConfig) -> Plan[Turn]:
        messages = state["messages"]
        question = next((message.id for message in reversed(messages) if isinstance(message, HumanMessage)), None)
        before: Turn | None = state.get("memory_turn")
        try:
            thread_id, resource_id = yield from self._ids(runtime, config)
            if before is not None and before.question == question:
                return (yield from self._refreshed(before, thread_id, resource_id))
            gathered = yield from self._gather(messages, thread_id, resource_id, nested=is_inside_a_tool(config))
        except (IdError, OptionError):
            raise  # a mistake of the program: it fails the same way every time
        except WorkingMemError as error:
            if self._on_error == "raise":
                raise
            _log.warning("the agent answers without memory: %s", error)
            return before or Turn(question, Gathered(""))
        return Turn(question, gathered, before.saved if before else {})

    def _gather(
        self, messages: Sequence[BaseMessage], thread_id: str, resource_id: str, *, nested: bool
    ) -> Plan[Gathered]:
        gathered = yield from self._memory.gathering(messages, thread_id, resource_id)
        # a summary stands for what it has replaced, and the outer conversation is not that of an agent in a tool
        summarised = any(message.additional_kwargs.get("lc_source") for message in messages)
        if nested or summarised:
            return replace(gathered, stored=[])
        return replace(gathered, stored=turn.without_copies(gathered.stored, messages))

    def _refreshed(self, before: Turn, thread_id: str, resource_id: str) -> Plan[Turn]:
        if before.gathered.working_memory is None:
            return before
        state = yield from working_memory.read(self._core.space, thread_id, resource_id)
        return replace(before, gathered=replace(before.gathered, working_memory=state))

    def _save(
        self, state: Any, runtime: Any, config: RunnableConfig, *, failing: bool = False
    ) -> Plan[dict[str, Any] | None]:
        if not self._persist or is_inside_a_tool(config):
            return None
        before: Turn | None = state.get("memory_turn")
        saved = before.saved if before else {}
        fresh = [message for message in turn_of(state["messages"]) if saved.get(message.id or "") != message]
        if not fresh:
            return None
        try:
            thread_id, resource_id = yield from self._ids(runtime, config)
            prepared = drafts(fresh, self._core.space.recall, self._core.new_id)
            yield from history.save(self._core.space, prepared, thread_id, resource_id, "raise")
        except WorkingMemError as error:
            if self._on_error == "raise" and not failing:
                raise
            _log.warning("the turn is not saved, or not completely: %s", error)
            return None
        if before is None:
            return None
        known = {message.id: message for message in fresh if message.id}
        return {"memory_turn": replace(before, saved={**saved, **known})}

    # ------------------------------------------------------------------ the request

    def _of(self, request: ModelRequest[Any]) -> tuple[Any, Any, RunnableConfig]:
        return {**request.state, "messages": request.messages}, request.runtime, get_config()

    def _remind(self, request: ModelRequest[Any], prepared: Turn) -> ModelRequest[Any]:
        context = self._memory.assembled(prepared.gathered, request.messages, read_only=self._read_only)
        return request.override(
            messages=context.messages,  # type: ignore[arg-type]
            system_message=_behind(request.system_message, context),
        )


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
    """Tell whether this agent runs inside a tool of another one, which has the same thread_id."""
    namespace: str = config.get("configurable", {}).get("checkpoint_ns", "")
    return any(part.startswith("tools:") for part in namespace.split("|")[:-1])
