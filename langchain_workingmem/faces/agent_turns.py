"""The turns of an agent while they run: what `MemoryMiddleware` keeps between its hooks, and the plans that read and save."""

from __future__ import annotations

import logging
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from langchain_workingmem._redis.state import Recent
from langchain_workingmem._text.said import structured_answers
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem.errors import IdError, OptionError, ThreadOwnershipError, WorkingMemError
from langchain_workingmem.faces.agent_calls import AgentTurn, HookCall, Key
from langchain_workingmem.faces.ids import required_ids
from langchain_workingmem.history import is_refusal, refuse_messages, save_messages
from langchain_workingmem.turn import Gathered, Turn, question, turn_of
from langchain_workingmem.working_memory import read_working_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.faces.agent_calls import Answers
    from langchain_workingmem.options import OnError

_log = logging.getLogger("langchain_workingmem")

MOST_TURNS = 256  # that are kept; one that is dropped is read again


class AgentTurns:
    """The turns of one middleware that are running, and their plans."""

    def __init__(self, plans: Turn, *, persist: bool) -> None:
        self._plans = plans
        self._core = plans.core
        self._persist = persist
        self._turns: Recent[Key, AgentTurn] = Recent(MOST_TURNS)
        self._begun: Recent[Key, Sequence[BaseMessage]] = Recent(MOST_TURNS)

    def begin(self, call: HookCall) -> None:
        """Keep the messages with which a run begins: other middleware may trim them before the model is called."""
        self._turns.pop(call.key)
        self._begun.put(call.key, [*call.messages])

    def find(self, call: HookCall) -> AgentTurn | None:
        """Return the turn of these messages; a summary may have removed its question from them."""
        found = self._turns.get(call.key)
        asked = question(call.messages)
        return found if found and (asked is None or asked.id == found.question) else None

    def find_or_prepare(self, call: HookCall, model: BaseChatModel) -> Plan[AgentTurn]:
        """Return the turn of these messages for a call of `model`; read it if other middleware has dropped it."""
        turn = self.find(call) or (yield from self.prepare(call))
        return self.keep(call, replace(turn, model=model))

    def keep(self, call: HookCall, turn: AgentTurn) -> AgentTurn:
        """Keep a turn for the hooks that follow."""
        self._turns.put(call.key, turn)
        return turn

    def note_answers(self, call: HookCall, answers: Answers) -> None:
        """Note what the model has answered, with copies."""
        if answers and (turn := self.find(call)) is not None:
            self.keep(call, replace(turn, answers=(*turn.answers, *answers)))

    def forget(self, call: HookCall) -> AgentTurn | None:
        """Drop the turn, and return what was known."""
        return self._turns.pop(call.key)

    def end(self, call: HookCall) -> None:
        """Drop the turn, and what the model was shown in it."""
        if self.find(call) is not None:  # not the turn of another run of the thread
            self.forget(call)
        self._core.state.shown_to_model.forget_shown_messages(call.ids.thread_id)

    def saves(self, call: HookCall) -> bool:
        """Tell whether messages may be saved: an agent in a tool does not write into the outer conversation."""
        return self._persist and call.limits.saves and not call.is_nested

    def saves_question(self, call: HookCall, turn: AgentTurn) -> bool:
        """Tell whether this is the first model call of a turn, and there is something to save during it."""
        return not turn.saved and self.saves(call) and (turn.branch.has_changes or bool(turn.unsaved(call.messages)))

    def prepare(self, call: HookCall) -> Plan[AgentTurn]:
        """Gather what the store knows, once a turn; later only read working memory."""
        before = self.find(call)
        try:
            if before is not None:
                refreshing = self._refresh(before, call)
                return self.keep(call, (yield from self._core.with_breaker(refreshing)))
            begun = self._begun.pop(call.key)
            # as other middleware has redacted them by now; those that it has trimmed away count, too
            present = {one.id: one for one in call.messages}
            messages = [present.get(one.id, one) for one in begun or call.messages]
            gathering = call.limits.gather(self._plans, messages, *required_ids(call.ids), call.kind)
            gathered = yield from self._core.with_breaker(gathering)
        except (IdError, OptionError, ThreadOwnershipError):
            raise  # a mistake of the program or of the client: it fails the same way every time
        except WorkingMemError as error:
            if self._core.on_error == "raise":
                raise
            _log.warning("the agent answers without memory: %s", error)
            return self.keep(call, before or AgentTurn.of(call))
        turn = AgentTurn.of(call, self._seen_by(call, gathered), messages)
        others = frozenset(one.id for one in turn_of(begun or ()) if one.id and one.id != turn.question)
        return self.keep(call, replace(turn, others=others))

    def _seen_by(self, call: HookCall, gathered: Gathered) -> Gathered:
        """For an agent in a tool, leave out the outer conversation."""
        if not call.is_nested:
            return gathered
        return replace(gathered, begins=-inf, stored=[])

    def _refresh(self, before: AgentTurn, call: HookCall) -> Plan[AgentTurn]:
        """Read what may have changed during the turn. At most one round trip."""
        found, state = before.gathered, self._core.state
        ids = required_ids(call.ids)
        if found.working_memory is None:
            return before
        document = yield from read_working_memory(state, *ids)
        return replace(before, gathered=replace(found, working_memory=document))

    def save(
        self, call: HookCall, *, on_error: OnError | None = None, is_over: bool = False
    ) -> Plan[list[BaseMessage]]:
        """Save what is new, and at the end of the run supersede what was taken back; no round trip when nothing changed.

        Returns the answers that were changed in place, at the end of the run.
        """
        if not self.saves(call):
            return []
        before = self.find(call)
        turn = before or AgentTurn.of(call)
        after = yield from self._save(call, turn, on_error or self._core.on_error, is_over=is_over)
        if before is not None and after is not turn:
            self._core.state.shown_to_model.add_shown_messages(required_ids(call.ids)[0], after.saved)
            self.keep(call, after)
        return turn.changed(call.messages) if is_over else []

    def _save(self, call: HookCall, turn: AgentTurn, on_error: OnError, *, is_over: bool) -> Plan[AgentTurn]:
        structured = structured_answers(call.messages, is_over=is_over or call.has_answer)
        fresh = turn.unsaved(call.messages, structured)
        gone = turn.taken_back(call.messages) if is_over else []
        left = [*turn.branch.left, *(turn.branch.aliases.get(id, id) for id in gone)]
        branch = replace(turn.branch, left=left) if gone else turn.branch
        if not fresh and not branch.has_changes:
            return turn
        try:
            ids = required_ids(call.ids)
            plan = save_messages(
                self._core,
                fresh,
                *ids,
                on_error=on_error,
                branch=branch,
                title_model=turn.model,
                structured=structured,
                earlier=turn.before(call.messages, fresh),
            )
            yield from self._core.with_breaker(plan)
        except WorkingMemError as error:
            if on_error == "raise":
                raise
            _log.log(logging.DEBUG if turn.is_warned else logging.WARNING, "the turn is not saved: %s", error)
            return replace(turn, is_warned=True)
        return turn.with_saved(fresh, structured, gone)

    def save_question(self, call: HookCall) -> Plan[None]:
        """Save the user's message before it is answered; what fails here is tried again after the answer."""
        try:
            yield from self.save(call, on_error="raise")
        except WorkingMemError as error:
            _log.info("the question is saved after the answer: %s", error)
        except Exception:  # noqa: BLE001 - a bug is logged, and raised when it is tried again
            _log.exception("saving the question during the model call failed; it is saved after the answer")

    def recover(self, call: HookCall, error: Exception) -> Plan[AgentTurn | None]:
        """Save what there is of a turn that has failed; None: there is no shorter prompt to try."""
        yield from self.fail(call, error)
        return None

    def fail(self, call: HookCall, error: Exception) -> Plan[None]:
        """Save the turn so far, and forget it, because it may never go on.

        A turn that the provider refuses is stored as refused: else it is sent, and refused, with every later question.
        """
        yield from self.save(call, on_error="log")
        turn = self.forget(call)
        if turn is None or not self.saves(call) or not is_refusal(error):
            return
        ids = [turn.branch.aliases.get(message.id or "", message.id or "") for message in turn_of(call.messages)]
        try:
            owner = required_ids(call.ids)
            refusing = refuse_messages(self._core.state, *owner, [id for id in ids if is_utf8(id)])
            yield from self._core.with_breaker(refusing)
        except WorkingMemError as failure:
            _log.warning("a question that the provider has refused is sent again: %s", failure)
