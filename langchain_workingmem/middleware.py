"""Memory for `create_agent`: one line, and the agent remembers."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

try:
    from langchain.agents.middleware import AgentMiddleware
except ImportError as error:
    msg = "MemoryMiddleware needs its extra: pip install 'langchain-workingmem[agents]'"
    raise ImportError(msg) from error
from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime  # noqa: TC002 - LangGraph injects it by its annotation

from langchain_workingmem import faces
from langchain_workingmem._engine.calls import is_overflow, is_refusal
from langchain_workingmem._engine.plan import Call, Sleep
from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem._redis.scripts import change_thread, check_thread
from langchain_workingmem._redis.state import Recent, operation, twin
from langchain_workingmem._text.messages import structured_answers
from langchain_workingmem._text.sending import Marks
from langchain_workingmem.checks import as_tuple, check_type, one_of
from langchain_workingmem.errors import OptionError, WorkingMemError
from langchain_workingmem.faces.tools import memory_tools
from langchain_workingmem.history.save import save_turn
from langchain_workingmem.memory import Memory
from langchain_workingmem.turn.assemble import Audience, Turn, assemble, question, turn_of
from langchain_workingmem.turn.gather import TurnPlans
from langchain_workingmem.working_memory.store import read_working_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain.agents.middleware.types import ModelCallResult, ModelRequest, ToolCallRequest
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.history.follow import Kind, Known
    from langchain_workingmem.options import OnError, PerCall

_log = logging.getLogger("langchain_workingmem")

MOST_RUNS = 256  # that are kept; one that is dropped is read again
SAVED = "saved"  # instead of the id of the call that saves a failed run
MOST_SECONDS, PAUSE_SECONDS = 1.0, 0.002  # that a tool call waits at most for earlier calls of the same answer


@dataclass(frozen=True, slots=True)
class HookCall:
    """The facts of one hook call: the conversation as it is now, its ids, and what the config of the run says."""

    messages: Sequence[BaseMessage]  # of the state: middleware around this one may show the model something else
    ids: tuple[str, str]  # thread and user, with the owner that the program has fixed
    key: tuple[tuple[str, str], str]  # of the run: also LangGraph's name for the agent within it
    limits: PerCall
    kind: Kind
    is_nested: bool  # the agent runs inside a tool of another agent, whose conversation is no history of its own
    saves: bool  # messages may be saved; never into the conversation of an outer agent


@dataclass(slots=True)
class Run:
    """What is known of a run. It is no part of the agent's state, because all of a state is streamed to clients."""

    first_messages: Sequence[BaseMessage]  # the messages with which it began
    all_messages: Sequence[BaseMessage] = ()  # and those that appeared, also what a summary has replaced meanwhile
    question_id: str | None = None  # of the message that it answers
    turn: Turn | None = None  # None: nothing was read yet
    known: Known | None = None  # of the thread, with what this run has saved
    saved: bool = False  # the question is stored
    model: BaseChatModel | None = None  # which answers, and may make the thread's title
    answers: list[tuple[BaseMessage, BaseMessage]] = field(default_factory=list)  # of the model, with copies
    is_failed: bool = False  # Redis was away: the run goes on without memory

    @property
    def stored(self) -> dict[str, int]:
        """Return the seqs of the messages that are known to be stored, by id."""
        return {row.id: row.seq for row in (self.known.facts if self.known else ())}


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
    conversation; in its own thread it inherits the outer user. `config["configurable"]["memory"]` is a `PerCall`.

    Cost: three round trips before the first model call, one before each further call, one at the end; two graph steps.

    Args:
        memory: The `Memory` of the agent.
        read_only: Show memory, write nothing, give no tools that write.
        persist: False saves no messages; working memory may still be updated.
        tools: Names of the memory tools to give the agent; None: those that `memory.tools()` gives.
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
        user_id: str | faces.Owner | None = None,
        on_error: OnError | None = None,
        trust_client_ids: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        plans = check_type(memory, Memory, "memory")._plans
        core = replace(plans.core, on_error=one_of(on_error or plans.core.on_error, ("raise", "log"), "on_error"))
        self._core, self._plans = core, TurnPlans(core, plans.history)
        self._read_only, self._persist = read_only, persist and not read_only
        self._find_ids, self._trust = faces.finder(user_id, trust_client_ids=trust_client_ids), trust_client_ids
        names = None if tools is None else as_tuple(tools, "tools", "tool names")
        self.tools = memory_tools(core, self._find_ids, include=names, name=name, read_only=read_only)
        self._memory_name = name
        self._runs: Recent[tuple[Any, str | None], Run] = Recent(MOST_RUNS)  # by question; and the last of a key
        self._finished_calls: Recent[str, bool] = Recent()  # of tools
        self._failed_steps: Recent[str, str] = Recent()  # which of a step's calls saves the run; then SAVED

    @property
    def name(self) -> str:
        """Return the name by which the agent knows it; deepagents has a `MemoryMiddleware` of its own."""
        return f"WorkingMemoryMiddleware{f'_{self._memory_name}' if self._memory_name else ''}"

    # ------------------------------------------------------------------ hooks

    def before_agent(self, state: Any, runtime: Runtime[Any]) -> None:
        """Keep the messages with which the run begins: other middleware may trim them before the model is called."""
        self._begin(self._call(state, runtime))

    async def abefore_agent(self, state: Any, runtime: Runtime[Any]) -> None:
        """Async twin of `before_agent`."""
        self.before_agent(state, runtime)

    @operation
    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]
    ) -> Plan[ModelCallResult[Any]]:
        """Show memory to the model. The question is saved first, because the run may be abandoned before the answer."""
        call = self._call(request.state, request.runtime)
        run = self._run_of(call)
        run.model = request.model
        turn = yield from self._core.ready(self._prepare(call, run), "prepare")  # a span without the call of the model

        def ask() -> Plan[Any]:
            model_call = partial(handler, self._with_memory(request, call, turn))
            return (yield from Call(model_call, model_call))  # async agents pass a handler that is to be awaited

        try:
            try:
                answer = yield from ask()
            except Exception as error:
                if not is_overflow(error) or not (yield from self._make_room(call, run, turn)):
                    raise
                answer = yield from ask()
        except Exception as error:
            yield from self._fail(call, error)
            raise
        self._note_answer(call, answer)
        return cast("ModelCallResult[Any]", answer)

    awrap_model_call = twin(wrap_model_call)

    @operation
    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Plan[Any]:
        """Tell agents inside the tool whose run this is; keep calls that write in order; save a run that one ends."""
        config, tool_call, call = get_config(), partial(handler, request), self._call(request.state, request.runtime)
        # behind an interrupt, nobody has looked yet whose thread it is
        if (run := self._runs.get((call.key, None))) is None or run.turn is None:
            yield from self._core.with_fallback(check_thread(self._core.state, *call.ids), None, "no known owner")
        thread_id = config.get("configurable", {}).get("thread_id")
        call_name, *earlier_names = (f"{thread_id}\0{id}" for id in _call_names(request))
        deadline = monotonic() + MOST_SECONDS
        # LangGraph runs them side by side
        while monotonic() < deadline and not all(map(self._finished_calls.get, earlier_names)):
            yield Sleep(PAUSE_SECONDS)
        try:
            with faces.outer_run_of(config, trust_client_ids=self._trust):
                return (yield from Call(tool_call, tool_call))
        except GraphBubbleUp:  # an interrupt: the run goes on later
            raise
        except Exception:
            step = call_name.rpartition("\0")[0]
            # of parallel tools, the first to fail saves the run, and ends it
            if self._failed_steps.change(step, lambda first: first or call_name) == call_name:
                try:
                    yield from self._fail(call, None)
                finally:
                    self._failed_steps.put(step, SAVED)
            while self._failed_steps.get(step) not in (None, SAVED):  # LangGraph cancels the others when one has raised
                yield Sleep(PAUSE_SECONDS)
            raise
        finally:
            self._finished_calls.put(call_name, value=True)

    awrap_tool_call = twin(wrap_tool_call)

    @operation
    def after_agent(self, state: Any, runtime: Runtime[Any]) -> Plan[dict[str, Any] | None]:
        """Save what the run has said and done; what its list has left is superseded."""
        call = self._call(state, runtime)
        run = self._take(call)
        # LangChain documents that a guard may change answers in place: no checkpoint holds that
        copies = {id(answer): copy for answer, copy in run.answers}
        pairs = ((message, copies[id(message)]) for message in call.messages if id(message) in copies)
        changed = [message for message, copy in pairs if copy.model_copy(update={"id": message.id}) != message]
        self._core.state.shown_messages.pop(call.ids[0])
        if call.saves:
            saving = self._save(call, run, is_over=True)
            yield from self._core.with_fallback(saving, None, "the turn is not saved")
        return {"messages": changed} if changed else None

    aafter_agent = twin(after_agent)

    # ------------------------------------------------------------------ which run it is

    def _call(self, state: Any, runtime: Any) -> HookCall:
        config, outer = get_config(), faces.outer_run.get()
        ids = faces.required_ids(self._find_ids(config, runtime=runtime))
        limits, namespace = faces.limits_of(config), config.get("configurable", {}).get("checkpoint_ns", "")
        if outer is not None:
            is_nested = outer.ids.thread_id == ids[0]
        else:  # the outer agent may have no memory: this is LangGraph's usual name for the node of its tools
            is_nested = any(part.startswith("tools:") for part in namespace.split("|")[:-1])
        kind: Kind = "part" if is_nested else faces.kind_of(config)
        key = (ids, namespace.rpartition("|")[0])
        saves = self._persist and limits.saves and not is_nested
        return HookCall(state["messages"], ids, key, limits, kind, is_nested, saves)

    def _begin(self, call: HookCall) -> Run:
        user_message = question(call.messages)
        run = Run([*call.messages], question_id=user_message.id if user_message else None)
        for id in (run.question_id, None):
            self._runs.put((call.key, id), run)
        return run

    def _run_of(self, call: HookCall) -> Run:
        """Return the run of these messages by its question, as several may be under way; a summary may lack it."""
        user_message, start = question(call.messages), len(call.messages) - len(turn_of(call.messages))
        is_added = bool(start) and isinstance(call.messages[start - 1], ToolMessage)  # behind results: tools add words
        for message in reversed(call.messages) if is_added else filter(None, [user_message]):
            if isinstance(message, AIMessage) and not message.tool_calls:
                break
            if message.id and (run := self._runs.get((call.key, message.id))) is not None:
                return run
        run = self._runs.get((call.key, None))
        return run if run and (user_message is None or run.turn is None or is_added) else self._begin(call)

    def _take(self, call: HookCall) -> Run:
        run = self._run_of(call)
        self._runs.pop((call.key, run.question_id))
        if self._runs.get((call.key, None)) is run:
            self._runs.pop((call.key, None))
        return run

    # ------------------------------------------------------------------ before the model

    def _prepare(self, call: HookCall, run: Run) -> Plan[Turn]:
        """Read what the model is shown, once a run, and save the question; later only read working memory."""
        run.all_messages, core = _all_messages(call, run), self._core
        turn = yield from core.with_fallback(self._read(call, run), None, "the agent answers without memory")
        run.is_failed, run.turn = turn is None, turn or run.turn or Turn(*call.ids)
        if not run.saved and call.saves and not run.is_failed:  # now, as the run may be abandoned
            saving = self._save(call, run, only_question=True)
            yield from core.with_fallback(saving, None, "the question is saved after the answer")
        return run.turn

    def _read(self, call: HookCall, run: Run) -> Plan[Turn | None]:
        state, plans, ids, turn = self._core.state, self._plans, call.ids, run.turn
        if turn is None or run.is_failed:
            # as other middleware has redacted them by now; those that it has trimmed away count, too
            present_messages = {message.id: message for message in call.messages}
            messages = [present_messages.get(message.id, message) for message in run.first_messages]
            messages = yield from plans.read_unmarked(messages, *ids, call.kind)
            user_message = question(messages)
            run.question_id = user_message.id if user_message else None
            turn = yield from plans.gather(messages, ids, faces.check_limits(call.limits, plans), kind=call.kind)
            run.turn, run.known = turn, turn.known
            if call.is_nested:
                turn.history, turn.first_seq, turn.covered, turn.limit = [], -inf, (), None
                turn.parts.clear()
            if turn.limit is None:
                return turn
        # what takes part in turns may work on the messages of the run, so these are saved first
        yield from self._save_for_parts(call, run, turn)
        if not call.is_nested:
            for part in state.parts:
                yield from part.renewed(state, turn, waits=call.saves)
        if turn.working_memory is not None:
            turn.working_memory = yield from read_working_memory(state, *ids)
        return turn

    def _save_for_parts(self, call: HookCall, run: Run, turn: Turn) -> Plan[None]:
        if run.saved and any(part.follows for part in self._core.state.parts) and call.saves:
            yield from self._save(call, run)
            turn.seqs |= run.stored

    def _with_memory(self, request: ModelRequest[Any], call: HookCall, turn: Turn) -> ModelRequest[Any]:
        own_tools = {tool.name: tool for tool in self.tools}
        named_tools = [(str(tool.get("name") if isinstance(tool, dict) else tool.name), tool) for tool in request.tools]
        for name, tool in named_tools:
            if name in own_tools and own_tools[name] is not tool:  # the model would call the wrong one
                raise OptionError(
                    f"the agent has another tool named {name!r}",
                    remedy="rename that one, pass MemoryMiddleware(memory, name='team'), or leave the tool to it with "
                    "MemoryMiddleware(memory, tools=[...])",
                )
        hidden = {name for name in own_tools if faces.forbidden(call.limits, name)}
        # a copy of this memory, which a load node has put into the state, is made anew; one of another memory stays
        marks = Marks(self._core.state.secret, *call.ids)
        messages = marks.unmarked(request.messages, own=True)
        audience = Audience(
            read_only=self._read_only or call.limits.read_only,
            for_model=True,
            tools=[name for name, _ in named_tools if name in own_tools and name not in hidden],
            name=self._memory_name,
        )
        context = assemble(self._core.state, self._plans.history, turn, messages, audience)
        prompt = request.system_message
        if context.system:  # behind the unchanged blocks of the agent's own prompt
            before: Any = prompt.content if prompt else []
            blocks: list[Any] = [{"type": "text", "text": before}] if isinstance(before, str) else [*before]
            blocks += [{"type": "text", "text": text} for text in context.system]
            prompt = prompt.model_copy(update={"content": blocks}) if prompt else SystemMessage(blocks)
        return request.override(
            messages=context.messages,  # type: ignore[arg-type]
            system_message=prompt,
            tools=[tool for name, tool in named_tools if name not in hidden],
        )

    # ------------------------------------------------------------------ behind the model

    def _note_answer(self, call: HookCall, answer: Any) -> None:
        """Note the model's answer, and copies, as others may change it in place; it is new, whatever its id."""
        ids, run = {message.id for message in call.messages if message.id}, self._run_of(call)
        result = getattr(getattr(answer, "model_response", answer), "result", [])
        for index, message in enumerate(result):
            if isinstance(message, AIMessage):
                result[index] = message.model_copy(update={"id": self._core.new_id()}) if message.id in ids else message
                run.answers.append((result[index], result[index].model_copy(deep=True)))

    def _make_room(self, call: HookCall, run: Run, turn: Turn) -> Plan[bool]:
        """Let those who take part in turns shorten a prompt that is too long; tell whether another try makes sense."""
        if run.is_failed or not call.saves:
            return False
        is_shorter = False
        try:
            yield from self._core.with_breaker(self._save_for_parts(call, run, turn))
            for part in self._core.state.parts:
                is_shorter |= yield from self._core.with_breaker(part.overflowed(self._core.state, turn))
        except WorkingMemError as error:
            _log.warning("no room is made in a prompt that is too long: %s", error)
            return False
        return is_shorter

    def _fail(self, call: HookCall, error: Exception | None) -> Plan[None]:
        """Save a run that may never go on; a question that the provider refuses with `error` is not sent again."""
        run = self._take(call)
        if not call.saves:
            return
        try:
            yield from self._core.with_breaker(self._save(call, run))
            refused = [message.id for message in turn_of(call.messages) if message.id in run.stored]
            if error is not None and is_refusal(error) and refused:
                marking = change_thread(self._core.state, *call.ids, "refuse", refused=refused)
                yield from self._core.with_breaker(marking)
                _log.warning("a provider has refused a turn of thread %r: later turns leave it out", call.ids[0])
        except WorkingMemError as failure:
            _log.warning("a run that has failed is not saved: %s", failure)

    # ------------------------------------------------------------------ saving

    def _save(self, call: HookCall, run: Run, *, only_question: bool = False, is_over: bool = False) -> Plan[None]:
        initial_ids = {message.id for message in run.first_messages}
        appeared = [message.id for message in call.messages if message.id not in initial_ids]
        messages = yield from self._plans.read_unmarked(_all_messages(call, run), *call.ids, call.kind, appeared)
        storable = [message for message in messages if is_storable(message)]
        structured = structured_answers(storable, is_over=is_over)
        if only_question:  # with what stands in front of it
            end = next((end for end, message in enumerate(storable, 1) if message.id == run.question_id), len(storable))
            storable = storable[:end]
        _, run.known = yield from save_turn(
            self._core,
            storable,
            *call.ids,
            kind=call.kind,
            known=run.known,
            question_id=run.question_id if run.saved and run.question_id in run.stored else None,
            structured=structured,
            title_model=run.model,
        )
        run.saved = True


def _all_messages(call: HookCall, run: Run) -> list[BaseMessage]:
    """Return the messages of the run: those that other middleware has trimmed off its front count, too."""
    ids, earlier = {message.id for message in call.messages}, run.all_messages or run.first_messages
    first = next((index for index, message in enumerate(earlier) if message.id in ids), len(earlier))
    return [*filter(is_storable, earlier[:first]), *call.messages]


def _call_names(request: Any) -> list[str]:
    """Return names of a call, and of those before it in the answer that write and have no result yet."""
    messages, call_id = request.state["messages"], request.tool_call["id"]
    answer = next((message for message in reversed(messages) if isinstance(message, AIMessage)), AIMessage(""))
    answered_ids = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    ids = [call["id"] for call in answer.tool_calls if call["name"].startswith(faces.WRITING)]
    earlier = [id for id in ids[: ids.index(call_id)] if id not in answered_ids] if call_id in ids else []
    return [f"{answer.id}\0{id}" for id in (call_id, *earlier)]
