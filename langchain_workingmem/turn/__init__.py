"""What `Memory.context`, `Memory.save_turn`, nodes and middleware share of one turn: its messages, and what is read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import dropwhile, takewhile
from math import inf
from typing import TYPE_CHECKING, Any

from langchain_core.messages import HumanMessage

from langchain_workingmem._redis.codec import as_messages
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.state import Recent
from langchain_workingmem._text.messages import words_digest
from langchain_workingmem.history.follow import Known
from langchain_workingmem.history.save import opened
from langchain_workingmem.recall.question import Query
from langchain_workingmem.turn.assemble import Gathered, question
from langchain_workingmem.turn.gather import gather_turn

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from langchain_core.messages import BaseMessage, MessageLikeRepresentation

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.state import Core
    from langchain_workingmem.history.follow import Kind
    from langchain_workingmem.options import HistoryOptions, PerCall


class Notes(Recent[tuple[str, str], tuple[str, Known]]):
    """What was read of threads for a question, by thread and words, with its id: its turn needs no second look."""

    def note(self, thread_id: str, message: BaseMessage | None, known: Known) -> None:
        """Note what is known of a thread before a question is answered, or after its turn is saved."""
        if message is not None and message.id:
            self.put((thread_id, words_digest(message)), (message.id, known))

    def take(self, thread_id: str, message: BaseMessage | None) -> Known | None:
        """Return what was read for a question; one without an id gets it, unless its turn is saved: it is a new one."""
        found = None if message is None else self.get((thread_id, words_digest(message)))
        if message is None or found is None:
            return None
        id, known = found
        if message.id is None and known.saved_before == inf:
            message.id = id
        return known if message.id == id else None

    def drop(self, thread_id: str, message: BaseMessage | None) -> None:
        """Forget what was read for a question whose turn is saved: a run from an earlier state takes a fresh look."""
        if message is not None:
            self.pop((thread_id, words_digest(message)))


@dataclass(frozen=True, slots=True)
class Turn:
    """Plans of one turn."""

    core: Core
    history: HistoryOptions

    def opened(
        self,
        messages: Iterable[MessageLikeRepresentation],
        thread_id: str,
        user_id: str,
        kind: Kind = "list",
        appeared: Iterable[str | None] = (),
    ) -> Plan[list[BaseMessage]]:
        """Return messages as they were before memory changed them, without those that memory has put in."""
        given = as_messages(messages)
        found = yield from opened(self.core.state, given, thread_id, check_id(user_id, "user_id"))
        ids = Counter(one.id for one in found if one.type == "ai" and one.id)
        if len(ids) < ids.total():  # caches and fakes repeat ids, which tell nothing then
            found = [one.model_copy(update={"id": None}) if ids[one.id or ""] > 1 else one for one in found]
        return _unsourced(found, kind, {*appeared}) if any(one.additional_kwargs for one in found) else found

    def gather(
        self,
        new: Sequence[BaseMessage],
        ids: tuple[str, str],
        limits: PerCall,
        *,
        kind: Kind = "list",
        numbered: Container[str | None] = (),
        left_out: frozenset[int] = frozenset(),
    ) -> Plan[Gathered]:
        """Plan to read what the store holds for a turn; `limits.recall` may hold all arguments of recall."""
        state, (thread_id, user_id) = self.core.state, ids
        zone, arguments = state.zone(*ids, limits.timezone), limits.recall or {}
        text, query = question(new), None
        if state.recall is None and any(value for name, value in arguments.items() if name != "now"):
            state.recalling  # noqa: B018 - raises, because recall is off
        if state.recall is not None and limits.recall is not False and text is not None and str(text.text).strip():
            where: Any = {"thread_id": thread_id, "user_id": user_id, "thread_filters": state.thread_filters}
            query = Query.of(state.recall, str(text.text), **where, turn=True, zone=zone, **arguments)
        history = self.history
        if limits.last_messages is not None:  # exactly that many, for this call
            history = replace(history, last_messages=limits.last_messages, step=1)
        turn = Gathered(thread_id, user_id, kind, zone, new, left_out, is_private=limits.recall is False)
        return gather_turn(self.core, turn, history, query, numbered=numbered, working_memory=limits.working_memory)


def _unsourced(messages: list[BaseMessage], kind: Kind, appeared: Container[str | None]) -> list[BaseMessage]:
    """Take LangChain's `lc_source` off what the user says in this turn: a client may have written it."""
    order = reversed(range(len(messages)))
    if kind == "state":  # its last message that did not appear in the run
        new = [at for at in order if messages[at].id not in appeared][:1]
    else:  # the last words of the user
        last = dropwhile(lambda at: not isinstance(messages[at], HumanMessage), order)
        new = [*takewhile(lambda at: isinstance(messages[at], HumanMessage) and messages[at].id not in appeared, last)]
    for at in new:
        message = messages[at]
        if isinstance(message, HumanMessage) and "lc_source" in message.additional_kwargs:
            extras = {key: value for key, value in message.additional_kwargs.items() if key != "lc_source"}
            messages[at] = message.model_copy(update={"additional_kwargs": extras})
    return messages
