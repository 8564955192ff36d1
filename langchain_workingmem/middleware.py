"""Memory for `create_agent`: one line, and the agent remembers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

try:
    from langchain.agents.middleware import AgentMiddleware
except ImportError as error:
    msg = "MemoryMiddleware needs its extra: pip install 'langchain-workingmem[agents]'"
    raise ImportError(msg) from error
from langchain_core.messages import SystemMessage
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime  # noqa: TC002 - LangGraph injects it by its annotation

from langchain_workingmem._engine.calls import is_overflow
from langchain_workingmem._engine.plan import Call
from langchain_workingmem._redis.core import operation, twin
from langchain_workingmem.checks import one_of, wrong_type
from langchain_workingmem.errors import OptionError
from langchain_workingmem.faces.config import Owner, as_owner, outer_run_of, required_ids
from langchain_workingmem.faces.runs import HookCall, Run, Runs
from langchain_workingmem.faces.tools import memory_tools
from langchain_workingmem.memory import Memory
from langchain_workingmem.turn.api import Turn
from langchain_workingmem.turn.assemble import Shown, assemble
from langchain_workingmem.turn.gather import Gathered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain.agents.middleware.types import ModelCallResult, ModelRequest, ToolCallRequest

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.options import OnError

T = TypeVar("T")


class MemoryMiddleware(AgentMiddleware[Any, Any, Any]):
    """Gives an agent its memory: `create_agent(model, tools, middleware=[MemoryMiddleware(memory)])`.

    The model is shown the history that the state does not hold. In front of the user's last words it is shown recalled
    messages and working memory; `placement="system"` puts these after the system prompt. None of this enters the state.
    The state defines the conversation: other branches, and messages that were edited or removed, are not shown.

    Each message is saved once. The user's message is saved before the model is called, so that it is stored even if the
    run is abandoned; the rest is saved when the run is over, or an error of the model or a tool ends it. Recall and
    history are read once a run, working memory before every model call. List this middleware first: then it saves
    messages as other middleware has redacted or edited them. If the question, the thread, its messages or the user are
    deleted while the model answers, the answer is not stored.

    The user is the one that a LangGraph server has authenticated, else the one that the context of the run or
    `config["configurable"]` names; the thread comes from these two. A run needs the owner of its thread; a new thread
    without a user owns itself. An agent inside a tool of another agent sees memory, but does not write into the outer
    conversation; in a thread of its own it inherits the outer user. `config["configurable"]["memory"]` restricts a
    single call (`PerCall`).

    Cost: three round trips before the first model call, one before each further call, one at the end; two steps of the
    graph.

    Args:
        memory: The `Memory` of the agent.
        read_only: Show memory, write nothing, give no tools that write.
        persist: False saves no messages; working memory may still be updated.
        tools: Names of the memory tools to give the agent; None: the ones that `memory.tools()` gives; an empty list:
            none.
        user_id: The owner of the memory, whatever user a run names: an id such as "team", or a function that gets the
            `Ids` of the run (None where it names no user) and returns an id. It also owns the threads: with a team,
            pass `persist=False`, else the members share their conversations.
        on_error: When Redis or the embedding model fails: "raise", or "log" and let the agent answer without memory or
            without recall. Overrides `Memory(on_error=...)`; None inherits it. Without Redis a turn with "log" waits
            once: 0.3 s when the connection is refused, one `timeout` when there is no reply (docs/reliability.md).
        trust_client_ids: True lets context and configurable name another user than the one that a LangGraph server has
            authenticated: for services that act for their users and check by themselves that they may.
        name: For the second memory of an agent, such as "team", without which LangChain refuses it as a duplicate: a
            part of the names of its tools (`search_memory_team`), and the label of its blocks in the prompt.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        read_only: bool = False,
        persist: bool = True,
        tools: Sequence[str] | None = None,
        user_id: str | Owner | None = None,
        on_error: OnError | None = None,
        trust_client_ids: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(memory, Memory):
            raise wrong_type(memory, "memory", "pass Memory(...)")
        turn = memory._turn
        self._core = replace(turn.core, on_error=one_of(on_error or turn.core.on_error, ("raise", "log"), "on_error"))
        self._turn = Turn(self._core, turn.history)
        self._runs = Runs(self._turn, persist=persist and not read_only)
        self._read_only = read_only
        self._owner = as_owner(user_id)
        self._trust_client_ids = trust_client_ids
        ids = {"user_id": self._owner, "trust_client_ids": trust_client_ids}
        self.tools = memory_tools(self._core, ids, include=tools, name=name, read_only=read_only)
        self._memory_name = name
        self._name = f"{type(self).__name__}_{name}" if name else type(self).__name__

    @property
    def name(self) -> str:
        """Return the name by which the agent knows it."""
        return self._name

    def before_agent(self, state: Any, runtime: Runtime[Any]) -> None:
        """Keep the messages with which the run begins: other middleware may trim them before the model is called."""
        self._runs.begin(self._call(state, runtime))

    async def abefore_agent(self, state: Any, runtime: Runtime[Any]) -> None:
        """Async twin of `before_agent`."""
        self.before_agent(state, runtime)

    @operation
    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]
    ) -> Plan[ModelCallResult[Any]]:
        """Show memory to the model. The question is saved first, because the run may be abandoned before the answer."""
        call = self._call(request.state, request.runtime)
        run = yield from self._runs.prepare(call, request.model)

        def ask() -> Plan[Any]:
            asked = partial(handler, self._with_memory(request, call, run))
            return (yield from Call(asked, asked))

        try:
            try:
                answer = yield from ask()
            except Exception as error:
                if not is_overflow(error) or not (yield from self._runs.make_room(call, run)):
                    raise
                answer = yield from ask()
        except Exception as error:
            yield from self._runs.fail(call, error)
            raise
        self._runs.note_answer(call, answer)
        return cast("ModelCallResult[Any]", answer)

    awrap_model_call = twin(wrap_model_call)

    @operation
    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Plan[Any]:
        """Tell agents inside the tool whose run this is; keep calls that write in order; save a run that a tool ends."""
        config = get_config()
        thread_id = config.get("configurable", {}).get("thread_id")
        try:
            with outer_run_of(config, trust_client_ids=self._trust_client_ids):
                return (yield from self._runs.tool_call(handler, request, thread_id))
        except GraphBubbleUp:  # an interrupt: the run goes on later
            raise
        except Exception:
            yield from self._runs.fail(self._call(request.state, request.runtime), None)
            raise

    awrap_tool_call = twin(wrap_tool_call)

    @operation
    def after_agent(self, state: Any, runtime: Runtime[Any]) -> Plan[dict[str, Any] | None]:
        """Save what the run has said and done; what its list has left is superseded."""
        changed = yield from self._runs.end(self._call(state, runtime))
        return {"messages": [*changed]} if changed else None  # a change in place is in no checkpoint

    aafter_agent = twin(after_agent)

    def _call(self, state: Any, runtime: Any) -> HookCall:
        # the messages of the state, not of a request: middleware around this one may show the model something else
        return HookCall.of(state, runtime, self._owner, trust_client_ids=self._trust_client_ids)

    def _with_memory(self, request: ModelRequest[Any], call: HookCall, run: Run) -> ModelRequest[Any]:
        own = {tool.name: tool for tool in self.tools}
        names = [(str(tool.get("name") if isinstance(tool, dict) else tool.name), tool) for tool in request.tools]
        for name, tool in names:
            if name in own and own[name] is not tool:  # the model would call the wrong one
                raise OptionError(
                    f"the agent has another tool named {name!r}",
                    remedy="rename that one, pass MemoryMiddleware(memory, name='team'), or leave the tool to it with "
                    "MemoryMiddleware(memory, tools=[...])",
                )
        hidden = {name for name in own if call.limits.forbids(name)}
        gathered = run.gathered or Gathered(*required_ids(call.ids))
        marks = self._core.state.marks(*required_ids(call.ids))
        # a copy of this memory, which a load node has put into the state, is made anew; one of another memory stays
        messages = [marks.original(message) for message in request.messages]
        shown = Shown(
            read_only=self._read_only or call.limits.read_only,
            for_model=True,
            tools=[name for name, _ in names if name in own and name not in hidden],
            name=self._memory_name,
        )
        context = assemble(self._core.state, self._turn.history, gathered, messages, shown)
        return request.override(
            messages=context.messages,  # type: ignore[arg-type]
            system_message=_with_blocks(request.system_message, context.system),
            tools=[tool for name, tool in names if name not in hidden],
        )


def _with_blocks(system: SystemMessage | None, texts: Sequence[str]) -> SystemMessage | None:
    """Put memory after the unchanged blocks of the agent's own prompt."""
    if not texts:
        return system
    blocks: list[str | dict[Any, Any]] = [{"type": "text", "text": text} for text in texts]
    if system is None:
        return SystemMessage(content=blocks)
    own = [{"type": "text", "text": system.content}] if isinstance(system.content, str) else system.content
    return system.model_copy(update={"content": [*own, *blocks]})
