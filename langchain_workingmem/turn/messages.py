"""The caller's list of messages: which of them are the present turn, where stored ones belong, and what to save."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem._redis.state import Recent
from langchain_workingmem._text.said import words_of
from langchain_workingmem.history import Branch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._redis.state import MemoryState


def is_users(message: BaseMessage) -> bool:
    """Tell whether a message is what the user said."""
    return isinstance(message, HumanMessage) and is_storable(message)


def question(messages: Sequence[BaseMessage]) -> BaseMessage | None:
    """Return the last message of the user: the turn answers it, and recall searches for it."""
    return next((message for message in reversed(messages) if is_users(message)), None)


def turn_of(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the present turn: the last messages of the user and all after them; without any, all messages."""
    return list(messages[_start_of_turn(messages, len(messages)) :])


def _start_of_turn(messages: Sequence[BaseMessage], end: int) -> int:
    """Return the index of the first message of the turn that ends before the index `end`."""
    start = next((at for at in range(end - 1, -1, -1) if is_users(messages[at])), 0)
    while start and is_users(messages[start - 1]):
        start -= 1
    return start


def unsaved(messages: Sequence[BaseMessage], stored: Collection[str] = ()) -> list[BaseMessage]:
    """Return what a turn has to save: itself, and all before it since the last message whose id is in `stored`.

    Without such a message, earlier messages may be examples of the program. Then only turns that were interrupted are
    saved as well: they end with unanswered tool calls, and possibly nothing of them is saved yet.
    """
    start = _start_of_turn(messages, len(messages))
    known = next((at for at in range(start - 1, -1, -1) if messages[at].id in stored), None)
    if known is not None:
        return list(messages[known + 1 :])
    while start and isinstance(last := messages[start - 1], AIMessage) and last.tool_calls:
        start = _start_of_turn(messages, start)
    return list(messages[start:])


def to_save(messages: Sequence[BaseMessage], branch: Branch, stored: Collection[str] = ()) -> list[BaseMessage]:
    """Return what is unsaved, with earlier questions that were edited, without what is stored under another id."""
    fresh = unsaved(messages, stored)
    ids = {message.id for message in fresh}
    edited = (message for message in messages if message.id in branch.edited and message.id not in ids)
    return [one for one in (*edited, *fresh) if one.id not in branch.aliases and one.id not in branch.hidden]


class _Branches(Recent[tuple[str, str], Branch]):
    """How callers' messages differ from the thread, by thread and words of the question, until the turn is saved."""


def note_branch(state: MemoryState, thread_id: str, messages: Sequence[BaseMessage], branch: Branch) -> None:
    """Keep a branch until its turn is saved, under the id of the question and under its words.

    The words serve callers who save new objects without ids. Two different branches with the same words cannot be told
    apart by them: then neither is found.
    """
    if asked := question(messages):
        words = (thread_id, words_of(asked))
        state.room(_Branches).change(words, lambda other: branch if other is None or other == branch else Branch())
        state.room(_Branches).put((thread_id, asked.id or ""), branch)


def noted_branch(state: MemoryState, thread_id: str, asked: BaseMessage | None) -> Branch | None:
    """Return the branch that was noted for a question."""
    if asked is None:
        return None
    return state.room(_Branches).get((thread_id, words_of(asked) if asked.id is None else asked.id))


def note_saved_branch(state: MemoryState, thread_id: str, asked: BaseMessage | None, branch: Branch) -> None:
    """Note that a branch is saved; what remains serves a caller who saves the same turn again."""
    if asked is not None:
        words = words_of(asked)
        state.room(_Branches).pop((thread_id, words))
        state.room(_Branches).put((thread_id, asked.id or ""), replace(branch.without_changes(), saved=words))


def in_order(past: list[BaseMessage], seqs: Mapping[str, int], earlier: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Merge stored messages into the earlier ones of the caller, by their sequence numbers; the rest goes to the end.

    A checkpointed state holds its own turns. What another writer added to the thread meanwhile belongs between them.
    """
    if not any(message.id in seqs for message in earlier):  # the thread does not know this list: it came later
        return [*past, *earlier]
    merged: list[BaseMessage] = []
    waiting = deque(past)
    for message in earlier:
        seq = seqs.get(message.id or "")
        while waiting and seq is not None and seqs[waiting[0].id or ""] < seq:
            merged.append(waiting.popleft())
        merged.append(message)
    return [*merged, *waiting]
