"""The observer as keeper: in the same call, and from the same answer, as its notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from langchain_workingmem._engine.effects import send
from langchain_workingmem._redis.access import owner_tag, run_script
from langchain_workingmem.keeping.keeper.answers import NOTHING, Answered, split_answer
from langchain_workingmem.keeping.keeper.asking import Question
from langchain_workingmem.keeping.keeper.runs import KEEPER
from langchain_workingmem.keeping.store import keys_of, mark_command, read_kept
from langchain_workingmem.working_memory import find_scope_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage
    from langchain_workingmem.observations import Opened

T = TypeVar("T")


class Beside:
    """One call of an observer that keeps working memory, too."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._answered: Answered = NOTHING

    @property
    def shown(self) -> tuple[str, str]:
        """Return the rules, and the document."""
        return self._question.rules(beside=True), self._question.document

    def reading(self, read: Callable[..., T]) -> Callable[..., T]:
        """Return what reads an answer; an answer of notes alone changes nothing."""

        def read_both(answer: BaseMessage, *, is_last: bool) -> T:
            notes, operations = split_answer(str(answer.text))
            found = read(answer.model_copy(update={"content": notes}), is_last=is_last)
            self._answered = self._question.accepted(operations, is_last=is_last)
            return found

        return read_both

    def keep(self) -> Plan[None]:
        """Write the operations. Four round trips, none without operations."""
        question, answered = self._question, self._answered
        if answered == NOTHING:
            return
        yield from question.write(answered)
        yield from count(question.state, question, operations=question.taken, left_out=question.left_out)


def beside(
    state: MemoryState, owner: str | None, opened: Sequence[Opened], rows: Sequence[StoredMessage]
) -> Plan[Beside]:
    """Prepare a call of an observer. Two round trips: the threads tell from now on what is deleted of them."""
    thread_ids = dict.fromkeys(one.row.thread_id for one in opened)
    where = yield from find_scope_key(state, next(iter(thread_ids)), owner)
    scope = state.remembering.scope
    yield from send(*(mark_command(state, one, owner, scope) for one in thread_ids))
    kept = yield from read_kept(state, where, opens=True)
    return Beside(Question(state, where, kept, opened, rows, state.zone(where.thread_id, owner)))


def count(state: MemoryState, question: Question, **counted: int) -> Plan[Any]:
    """Count operations. One round trip."""
    where = question.where
    used = [part for pair in counted.items() for part in pair]
    call = KEEPER.call(keys_of(where), owner_tag(where.resource_id), state.process, "count", 0, "", 0, "", 0, 0, *used)
    yield from run_script(where.thread_id or "", where.resource_id, call)
