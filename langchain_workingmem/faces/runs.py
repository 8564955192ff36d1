"""The runs of an agent: what `MemoryMiddleware` knows of one between its hooks, and the plans that read and save."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.config import get_config

from langchain_workingmem._engine import calls
from langchain_workingmem._engine.calls import is_refusal
from langchain_workingmem._engine.plan import Call, Sleep
from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem._redis.scripts import change_thread
from langchain_workingmem._redis.state import Recent
from langchain_workingmem._text.messages import structured_answers
from langchain_workingmem.errors import IdError, OptionError, ThreadOwnershipError, WorkingMemError
from langchain_workingmem.faces.config import WRITING, Owner, PerCall, kind_of, outer_run, required_ids, resolve
from langchain_workingmem.history.save import save_turn
from langchain_workingmem.turn.fit import question, turn_of
from langchain_workingmem.turn.gather import Gathered
from langchain_workingmem.working_memory.store import read_working_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.history.follow import Kind, Known
    from langchain_workingmem.options import Ids
    from langchain_workingmem.turn.api import Turn

_log = logging.getLogger("langchain_workingmem")

MOST_RUNS = 256  # that are kept; one that is dropped is read again
MOST_SECONDS, PAUSE_SECONDS = 5.0, 0.002  # that a call of a tool waits for those which the model wrote before it
Key: TypeAlias = "tuple[Ids, str]"  # and the agent within the run


@dataclass(frozen=True, slots=True)
class HookCall:
    """The facts of one hook call: the conversation as it is now, its ids, and the config of the run."""

    messages: Sequence[BaseMessage]
    ids: Ids  # with the owner that the program has fixed
    namespace: str  # LangGraph's name for the agent within its run
    limits: PerCall
    kind: Kind
    is_nested: bool  # the agent runs inside a tool of another agent

    @classmethod
    def of(cls, state: Any, runtime: Any, owner: Owner | None, *, trust_client_ids: bool) -> HookCall:
        """Find the ids as `resolve` does, and read the rest from the state and the config of the run."""
        config = get_config()
        ids = resolve(config, runtime=runtime, user_id=owner, trust_client_ids=trust_client_ids)
        outer = outer_run.get()
        namespace: str = config.get("configurable", {}).get("checkpoint_ns", "")
        if outer is not None:
            is_nested = outer.ids.thread_id == ids.thread_id
        else:  # the outer agent may have no memory: this is LangGraph's usual name for the node of its tools
            is_nested = any(part.startswith("tools:") for part in namespace.split("|")[:-1])
        kind: Kind = "part" if is_nested else kind_of(config)
        return cls(state["messages"], ids, namespace.rpartition("|")[0], PerCall.of(config), kind, is_nested)

    @property
    def key(self) -> Key:
        """Return what the run is kept under."""
        return self.ids, self.namespace


@dataclass(slots=True)
class Run:
    """What is known of a run. It is no part of the agent's state, because all of a state is streamed to clients."""

    begun: Sequence[BaseMessage]  # the messages with which it began
    seen: Sequence[BaseMessage] = ()  # and those that appeared, also what a summary has replaced meanwhile
    question: str | None = None  # id of the message that it answers
    gathered: Gathered | None = None  # None: nothing was read yet
    known: Known | None = None  # of the thread, with what this run has saved
    saved: bool = False  # the question is stored
    model: BaseChatModel | None = None  # which answers, and may make the thread's title
    answers: list[tuple[BaseMessage, BaseMessage]] = field(default_factory=list)  # of the model, with copies
    is_failed: bool = False  # Redis was away: the run goes on without memory

    def changed(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return the answers that a guard has changed in place, as LangChain documents it: no checkpoint holds that."""
        copies = {id(answer): copy for answer, copy in self.answers}
        found = ((one, copies[id(one)]) for one in messages if id(one) in copies)
        return [one for one, copy in found if copy.model_copy(update={"id": one.id}) != one]


class Runs:
    """The runs of one middleware, and their plans."""

    def __init__(self, turn: Turn, *, persist: bool) -> None:
        self._turn, self._core, self._persist = turn, turn.core, persist
        self._runs: Recent[tuple[Key, str | None], Run] = Recent(MOST_RUNS)  # by question; and the last of a key
        self._done: Recent[str, str] = Recent()  # calls of tools

    # ------------------------------------------------------------------ which run it is

    def begin(self, call: HookCall) -> Run:
        """Keep the messages with which a run begins: other middleware may trim them before the model is called."""
        asked = question(call.messages)
        run = Run([*call.messages], question=asked.id if asked else None)
        for id in (run.question, None):
            self._runs.put((call.key, id), run)
        return run

    def _find_or_begin(self, call: HookCall) -> Run:
        """Return the run of these messages by its question, as several may be under way; a summary may have removed it."""
        asked = question(call.messages)
        if asked is not None and (run := self._runs.get((call.key, asked.id))) is not None:
            return run
        run = self._runs.get((call.key, None))
        return run if run is not None and (asked is None or run.gathered is None) else self.begin(call)

    def _take(self, call: HookCall) -> Run:
        """Return the run, and forget it."""
        run = self._find_or_begin(call)
        self._runs.pop((call.key, run.question))
        if self._runs.get((call.key, None)) is run:
            self._runs.pop((call.key, None))
        return run

    def _saves(self, call: HookCall) -> bool:
        """Tell whether messages may be saved: an agent in a tool does not write into the outer conversation."""
        return self._persist and call.limits.saves and not call.is_nested

    # ------------------------------------------------------------------ before the model

    def prepare(self, call: HookCall, model: BaseChatModel) -> Plan[Run]:
        """Read what the model is shown, once a run, and save the question; later only read working memory."""
        plan = self._prepared(call, model)
        return plan if calls.watch is None else calls.watch(plan, "prepare", self._core.state.keys.prefix)

    def _prepared(self, call: HookCall, model: BaseChatModel) -> Plan[Run]:
        run = self._find_or_begin(call)
        run.model, run.seen = model, self._all_messages(call, run)
        try:
            yield from self._core.with_breaker(self._read(call, run))
        except (IdError, OptionError, ThreadOwnershipError):
            raise  # a mistake of the program or of the client: it fails the same way every time
        except WorkingMemError as error:
            self._raise_or_log(error, "the agent answers without memory")
            run.gathered, run.is_failed = run.gathered or Gathered(*required_ids(call.ids)), True
        if not run.saved and self._saves(call) and not run.is_failed:  # now, as the run may be abandoned
            try:
                yield from self._save(call, run, only_question=True)
                run.saved = True
            except OptionError:
                raise
            except WorkingMemError as error:
                self._raise_or_log(error, "the question is saved after the answer")
        return run

    def _read(self, call: HookCall, run: Run) -> Plan[None]:
        found = run.gathered
        if found is None or run.is_failed:
            found = yield from self._gather(call, run)
            if found.limit is None:
                return
        # what takes part in turns may work on the messages of the run, so these are saved first
        yield from self._save_for_parts(call, run, found)
        state = self._core.state
        if not call.is_nested:
            for part in state.parts:
                yield from part.renewed(state, found, waits=self._saves(call))
        if found.working_memory is not None:
            found.working_memory = yield from read_working_memory(state, *required_ids(call.ids))

    def _gather(self, call: HookCall, run: Run) -> Plan[Gathered]:
        # as other middleware has redacted them by now; those that it has trimmed away count, too
        present = {one.id: one for one in call.messages}
        ids, messages = required_ids(call.ids), [present.get(one.id, one) for one in run.begun]
        new = yield from self._turn.opened(messages, *ids, call.kind)
        asked = question(new)
        run.question = asked.id if asked else None
        run.gathered = found = yield from call.limits.gather(self._turn, new, ids, call.kind)
        run.known, run.is_failed = found.known, False
        if call.is_nested:  # the outer conversation is no history of an agent in a tool
            found.history, found.begins, found.covered, found.limit = [], -inf, (), None
            found.parts.clear()
        return found

    def _save_for_parts(self, call: HookCall, run: Run, found: Gathered) -> Plan[None]:
        if run.saved and any(part.follows for part in self._core.state.parts) and self._saves(call):
            yield from self._save(call, run)
            found.seqs |= {row.id: row.seq for row in (run.known.rows if run.known else ())}

    # ------------------------------------------------------------------ behind the model

    def note_answer(self, call: HookCall, answer: Any) -> None:
        """Note what the model has answered, with copies: other middleware may change it in place.

        An answer is new, also where its id stands in the state already, as with caches and fakes: there it would
        replace a message.
        """
        response, known = getattr(answer, "model_response", answer), {one.id for one in call.messages if one.id}
        result, run = getattr(response, "result", []), self._find_or_begin(call)
        for at, one in enumerate(result):
            if isinstance(one, AIMessage):
                result[at] = one.model_copy(update={"id": self._core.new_id()}) if one.id in known else one
                run.answers.append((result[at], result[at].model_copy(deep=True)))

    def make_room(self, call: HookCall, run: Run) -> Plan[bool]:
        """Let those who take part in turns shorten a prompt that is too long; tell whether another try makes sense."""
        if run.gathered is None or not self._saves(call):
            return False
        made = False
        try:
            yield from self._core.with_breaker(self._save_for_parts(call, run, run.gathered))
            for part in self._core.state.parts:
                made |= yield from self._core.with_breaker(part.overflowed(self._core.state, run.gathered))
        except WorkingMemError as error:
            _log.warning("no room is made in a prompt that is too long: %s", error)
            return False
        return made

    def fail(self, call: HookCall, error: Exception | None) -> Plan[None]:
        """Save a run that may never go on; a question that the provider refuses with `error` is not sent again."""
        run = self._take(call)
        if not self._saves(call):
            return
        try:
            yield from self._save(call, run)
            known = {row.id for row in run.known.rows} if run.known else set()
            if (
                error is not None
                and is_refusal(error)
                and (refused := [one.id for one in turn_of(call.messages) if one.id in known])
            ):
                ids = required_ids(call.ids)
                yield from self._core.with_breaker(change_thread(self._core.state, *ids, "refuse", refused=refused))
        except WorkingMemError as failure:
            _log.warning("a run that has failed is not saved: %s", failure)

    def end(self, call: HookCall) -> Plan[list[BaseMessage]]:
        """Save the rest of the run, and forget it; return the answers that were changed in place."""
        run = self._take(call)
        changed = run.changed(call.messages)
        self._core.state.shown_messages.pop(call.ids.thread_id)
        if self._saves(call):
            try:
                yield from self._save(call, run, is_over=True)
            except WorkingMemError as error:
                self._raise_or_log(error, "the turn is not saved")
        return changed

    def tool_call(self, call: Callable[[Any], Any], request: Any, thread_id: str | None) -> Plan[Any]:
        """Call a tool behind earlier calls of its answer that write, though LangGraph runs them side by side."""
        own, *earlier = (f"{thread_id}\0{id}" for id in _own_and_earlier(request))
        until = monotonic() + MOST_SECONDS
        while monotonic() < until and not all(map(self._done.get, earlier)):
            yield Sleep(PAUSE_SECONDS)
        try:
            return (yield from Call(partial(call, request), partial(call, request)))
        finally:
            self._done.put(own, own)

    # ------------------------------------------------------------------ saving

    def _raise_or_log(self, error: WorkingMemError, note: str) -> None:
        if self._core.on_error == "raise":
            raise error
        _log.warning("%s: %s", note, error)

    def _save(self, call: HookCall, run: Run, *, only_question: bool = False, is_over: bool = False) -> Plan[None]:
        ids, begun = required_ids(call.ids), {one.id for one in run.begun}
        appeared = [one.id for one in call.messages if one.id not in begun]
        messages = yield from self._turn.opened(self._all_messages(call, run), *ids, call.kind, appeared)
        storable = [one for one in messages if is_storable(one)]
        structured = structured_answers(storable, is_over=is_over)
        if only_question:  # with what stands in front of it
            asked = next((at for at, one in enumerate(storable) if one.id == run.question), len(storable) - 1)
            storable = storable[: asked + 1]
        is_known = run.saved and any(row.id == run.question for row in (run.known.rows if run.known else ()))
        plan = save_turn(
            self._core,
            storable,
            *ids,
            kind=call.kind,
            known=run.known,
            asked=run.question if is_known else None,
            structured=structured,
            title_model=run.model,
        )
        _, run.known = yield from self._core.with_breaker(plan)

    def _all_messages(self, call: HookCall, run: Run) -> list[BaseMessage]:
        """Return the messages of the run: those that other middleware has trimmed off its front count, too."""
        held, earlier = {one.id for one in call.messages}, run.seen or run.begun
        first = next((at for at, one in enumerate(earlier) if one.id in held), len(earlier))
        return [*filter(is_storable, earlier[:first]), *call.messages]


def _own_and_earlier(request: Any) -> list[str]:
    """Return names of a call, and of those before it in the answer that write and have no result yet."""
    messages, own = request.state["messages"], request.tool_call["id"]
    answer = next((one for one in reversed(messages) if isinstance(one, AIMessage)), AIMessage(""))
    answered = {one.tool_call_id for one in messages if isinstance(one, ToolMessage)}
    ids = [call["id"] for call in answer.tool_calls if call["name"].startswith(WRITING)]
    earlier = [id for id in ids[: ids.index(own)] if id not in answered] if own in ids else []
    return [f"{answer.id}\0{id}" for id in (own, *earlier)]
