"""The runs of an agent: what `MemoryMiddleware` knows of one between its hooks, and the plans that read and save."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.messages import AIMessage
from langgraph.config import get_config

from langchain_workingmem._engine.calls import is_refusal
from langchain_workingmem._redis.access import change_thread
from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem._redis.state import Recent
from langchain_workingmem._text.said import structured_answers
from langchain_workingmem.errors import IdError, OptionError, ThreadOwnershipError, WorkingMemError
from langchain_workingmem.faces.ids import Owner, outer_run, owned, required_ids, resolve
from langchain_workingmem.faces.nodes import kind_of
from langchain_workingmem.faces.per_call import PerCall
from langchain_workingmem.history import Known, save_turn
from langchain_workingmem.options import HistoryOptions
from langchain_workingmem.turn import Gathered, Turn, history_slice, is_sliced, question, turn_of
from langchain_workingmem.working_memory.store import read_working_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.history import Kind
    from langchain_workingmem.options import Ids

_log = logging.getLogger("langchain_workingmem")
_NOTES = HistoryOptions(exclude_tools="memory")

MOST_RUNS = 256  # that are kept; one that is dropped is read again
Key: TypeAlias = (
    "tuple[Ids, Ids, str]"  # ids that the run names, ids of the memory that it uses, the agent within the run
)


@dataclass(frozen=True, slots=True)
class HookCall:
    """The facts of one hook call: the conversation as it is now, its ids, and the config of the run."""

    messages: Sequence[BaseMessage]
    run_ids: Ids  # that the run names
    ids: Ids  # with the owner that the program has fixed
    namespace: str  # LangGraph's name for the agent within its run
    limits: PerCall
    kind: Kind
    is_nested: bool  # the agent runs inside a tool of another agent

    @classmethod
    def of(cls, state: Any, runtime: Any, owner: Owner | None, *, trust_client_ids: bool) -> HookCall:
        """Find the ids as `resolve` does, and read the rest from the state and the config of the run."""
        config = get_config()
        named = resolve(config, runtime=runtime, trust_client_ids=trust_client_ids)
        ids = owned(named, owner)
        namespace: str = config.get("configurable", {}).get("checkpoint_ns", "")
        is_nested = _is_nested(namespace, ids)
        kind: Kind = "part" if is_nested else kind_of(config)
        own = namespace.rpartition("|")[0]
        return cls(state["messages"], named, ids, own, PerCall.of(config), kind, is_nested)

    @property
    def key(self) -> Key:
        """Return what the run is kept under."""
        return self.run_ids, self.ids, self.namespace


def _is_nested(namespace: str, ids: Ids) -> bool:
    """Tell whether this agent runs inside a tool of another one, which has the same thread_id.

    The middleware of the other one says so. Without one, LangGraph's usual name for the node of the tools does.
    """
    if (outer := outer_run.get()) is not None:
        return outer.ids.thread_id == ids.thread_id
    return any(part.startswith("tools:") for part in namespace.split("|")[:-1])


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

    def own_view(self, messages: list[BaseMessage], history: HistoryOptions) -> list[BaseMessage]:
        """Leave out the calls of memory's tools that another agent has made in the same turn: they are its notes."""
        others = {one.id for one in turn_of(self.begun) if one.id and one.id != self.question}
        notes = [one for one in messages if one.id in others]
        if history.exclude_tools is False or not notes or not is_sliced(notes, _NOTES):
            return messages
        kept = {one.id: one for one in history_slice(notes, _NOTES)}
        return [kept.get(one.id, one) for one in messages if one.id not in others or one.id in kept]

    def changed(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return the answers of the model that were changed in place: no checkpoint holds the change."""
        copies = {id(answer): copy for answer, copy in self.answers}
        found = ((one, copies[id(one)]) for one in messages if id(one) in copies)
        return [one for one, copy in found if copy.model_copy(update={"id": one.id}) != one]


class Runs:
    """The runs of one middleware, and their plans."""

    def __init__(self, turn: Turn, *, persist: bool) -> None:
        self._turn, self._core, self._persist = turn, turn.core, persist
        self._runs: Recent[tuple[Key, str | None], Run] = Recent(
            MOST_RUNS
        )  # by key and question; and the last of a key

    def begin(self, call: HookCall) -> None:
        """Keep the messages with which a run begins: other middleware may trim them before the model is called."""
        self._keep(call)

    def _keep(self, call: HookCall) -> Run:
        asked = question(call.messages)
        run = Run([*call.messages], question=asked.id if asked else None)
        for id in (run.question, None):
            self._runs.put((call.key, id), run)
        return run

    def saves(self, call: HookCall) -> bool:
        """Tell whether messages may be saved: an agent in a tool does not write into the outer conversation."""
        return self._persist and call.limits.saves and not call.is_nested

    def prepare(self, call: HookCall, model: BaseChatModel) -> Plan[Run]:
        """Read what the model is shown, once a run, and save the question; later only read working memory."""
        run = self._find_or_begin(call)
        run.model, run.seen = model, self._all_messages(call, run)
        try:
            had = run.gathered is not None and not run.is_failed
            if not had:
                yield from self._core.with_breaker(self._gather(call, run))
                run.is_failed = False
            if run.gathered is not None and (had or run.gathered.limit is not None):
                yield from self._core.with_breaker(self._renew(call, run, run.gathered))
        except (IdError, OptionError, ThreadOwnershipError):
            raise  # a mistake of the program or of the client: it fails the same way every time
        except WorkingMemError as error:
            if self._core.on_error == "raise":
                raise
            _log.warning("the agent answers without memory: %s", error)
            run.gathered, run.is_failed = run.gathered or Gathered(*required_ids(call.ids)), True
        if not run.saved and self.saves(call) and not run.is_failed:
            yield from self._save_question(call, run)
        return run

    def _renew(self, call: HookCall, run: Run, found: Gathered) -> Plan[None]:
        """Read what may have changed within the run; what takes part in turns may work on its messages, so these are saved first."""
        state = self._core.state
        yield from self._save_for_parts(call, run, found)
        for part in (
            state.parts if not call.is_nested else ()
        ):  # the outer conversation is no history of an agent in a tool
            yield from part.renewed(state, found, waits=self.saves(call))
        if found.working_memory is not None:
            found.working_memory = yield from read_working_memory(state, *required_ids(call.ids))

    def _save_for_parts(self, call: HookCall, run: Run, found: Gathered) -> Plan[None]:
        if run.saved and any(part.follows for part in self._core.state.parts) and self.saves(call):
            yield from self._save(call, run)
            found.seqs |= {row.id: row.seq for row in (run.known.rows if run.known else ())}

    def make_room(self, call: HookCall, run: Run) -> Plan[bool]:
        """Let those who take part in turns make room, because the prompt is too long; tell whether another try makes sense."""
        if run.gathered is None or not self.saves(call):
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

    def _find_or_begin(self, call: HookCall) -> Run:
        """Return the run of these messages by its question, as several may be under way; a summary may have removed that."""
        asked = question(call.messages)
        if asked is not None and (run := self._runs.get((call.key, asked.id))) is not None:
            return run
        run = self._runs.get((call.key, None))
        return run if run is not None and (asked is None or run.gathered is None) else self._keep(call)

    def _forget(self, call: HookCall, run: Run) -> None:
        self._runs.pop((call.key, run.question))
        if self._runs.get((call.key, None)) is run:
            self._runs.pop((call.key, None))

    def _gather(self, call: HookCall, run: Run) -> Plan[None]:
        # as other middleware has redacted them by now; those that it has trimmed away count, too
        present = {one.id: one for one in call.messages}
        ids, messages = required_ids(call.ids), [present.get(one.id, one) for one in run.begun]
        new = yield from self._turn.opened(messages, *ids, call.kind)
        asked = question(new)
        run.question = asked.id if asked else None
        run.gathered = yield from call.limits.gather(self._turn, new, *ids, call.kind)
        run.known = run.gathered.known
        if call.is_nested:  # the outer conversation is no history of an agent in a tool
            run.gathered.history, run.gathered.begins = [], -inf
            run.gathered.covered, run.gathered.limit = (), None
            run.gathered.parts.clear()

    def _save_question(self, call: HookCall, run: Run) -> Plan[None]:
        """Save what the run began with, before the model is called: the run may be abandoned."""
        try:
            yield from self._save(call, run, only_question=True)
            run.saved = True
        except WorkingMemError as error:
            if isinstance(error, OptionError) or self._core.on_error == "raise":
                raise
            _log.warning("the question is saved after the answer: %s", error)

    def _save(self, call: HookCall, run: Run, *, only_question: bool = False, is_over: bool = False) -> Plan[None]:
        ids = required_ids(call.ids)
        begun = {one.id for one in run.begun}
        appeared = [one.id for one in call.messages if one.id not in begun]
        messages = yield from self._turn.opened(self._all_messages(call, run), *ids, call.kind, appeared)
        storable = [one for one in messages if is_storable(one)]
        structured = structured_answers(storable, is_over=is_over)
        if only_question:  # with what stands in front of it
            asked = next((at for at, one in enumerate(storable) if one.id == run.question), len(storable) - 1)
            storable = storable[: asked + 1]
        known_rows = run.known.rows if run.known else ()
        plan = save_turn(
            self._core,
            storable,
            *ids,
            kind=call.kind,
            known=run.known,
            asked=run.question if run.saved and any(row.id == run.question for row in known_rows) else None,
            structured=structured,
            title_model=run.model,
        )
        _, run.known = yield from self._core.with_breaker(plan)

    def _all_messages(self, call: HookCall, run: Run) -> list[BaseMessage]:
        """Return the messages of the run: those that other middleware has trimmed off its front count, too."""
        held, earlier = {one.id for one in call.messages}, run.seen or run.begun
        first = next((at for at, one in enumerate(earlier) if one.id in held), len(earlier))
        trimmed = [one for one in earlier[:first] if is_storable(one)]
        return [*trimmed, *call.messages]

    def end(self, call: HookCall) -> Plan[list[BaseMessage]]:
        """Save the rest of the run, and forget it; return the answers that were changed in place."""
        run = self._find_or_begin(call)
        changed = run.changed(call.messages)
        self._forget(call, run)
        thread_id = call.ids.thread_id
        try:
            if self.saves(call):
                yield from self._save(call, run, is_over=True)
        except WorkingMemError as error:
            if self._core.on_error == "raise":
                raise
            _log.warning("the turn is not saved: %s", error)
        finally:
            self._core.state.shown_messages.pop(thread_id)
        return changed

    def fail(self, call: HookCall, error: Exception | None) -> Plan[None]:
        """Save the run so far, because it may never go on; a question that the provider refuses with `error` is not sent again."""
        run = self._find_or_begin(call)
        self._forget(call, run)
        if not self.saves(call):
            return
        try:
            yield from self._save(call, run)
            if error is not None and is_refusal(error):
                ids = required_ids(call.ids)
                known = {row.id for row in run.known.rows} if run.known else set()
                refused = [one.id for one in turn_of(call.messages) if one.id in known]
                if refused:
                    plan = change_thread(self._core.state, *ids, "refuse", refused=refused)
                    yield from self._core.with_breaker(plan)
        except WorkingMemError as failure:
            _log.warning("a run that has failed is not saved: %s", failure)

    def note_answer(self, call: HookCall, answer: Any) -> None:
        """Note what the model has answered, with copies: other middleware may change it in place.

        An answer is new, also where its id stands in the state already, as with caches and fakes: there it would replace a message.
        """
        response, known = getattr(answer, "model_response", answer), {one.id for one in call.messages if one.id}
        result, answers = getattr(response, "result", []), self._find_or_begin(call).answers
        for at, one in enumerate(result):
            if isinstance(one, AIMessage):
                result[at] = one.model_copy(update={"id": self._core.new_id()}) if one.id in known else one
                answers.append((result[at], _snapshot(result[at])))


def _snapshot(message: BaseMessage) -> BaseMessage:
    """Copy a message so that no change in place reaches the copy."""
    is_flat = isinstance(message.content, str) and not message.additional_kwargs
    return message.model_copy(deep=not is_flat or bool(getattr(message, "tool_calls", None)))
