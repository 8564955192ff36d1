"""The caller's list of messages: which of them are the present turn, and where stored ones belong."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from langchain_core.messages import HumanMessage

from langchain_workingmem._redis.codec import is_storable

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._text.sending import Marks
    from langchain_workingmem.history import Kind


def is_users(message: BaseMessage) -> bool:
    """Tell whether a message is what the user said."""
    return isinstance(message, HumanMessage) and is_storable(message)


def question(messages: Sequence[BaseMessage]) -> BaseMessage | None:
    """Return the last message of the user: the turn answers it, and recall searches for it."""
    return next((message for message in reversed(messages) if is_users(message)), None)


def turn_of(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the present turn: the last messages of the user and all after them; without any, all messages."""
    start = next((at for at in range(len(messages) - 1, -1, -1) if is_users(messages[at])), 0)
    while start and is_users(messages[start - 1]):
        start -= 1
    return list(messages[start:])


def opened(
    messages: Sequence[BaseMessage], marks: Marks, kind: Kind = "list", appeared: Container[str | None] = ()
) -> list[BaseMessage]:
    """Return messages as they were before memory changed them, without those that memory has put in.

    What a client has written counts for nothing: neither marks that nobody has signed, nor LangChain's `lc_source` on what the user
    says in this turn, unless its id is among those that have `appeared` during the run. Of a state that is the last message, as a
    summary of an earlier run may stand in front of it.
    """
    found = marks.opened(messages)
    if not any(message.additional_kwargs for message in found):
        return found
    last = len(found) - 1
    while last >= 0 and (found[last].id in appeared if kind == "state" else not isinstance(found[last], HumanMessage)):
        last -= 1
    for at in range(last, last - 1 if kind == "state" else -1, -1):
        message = found[at]
        if not isinstance(message, HumanMessage) or message.id in appeared:
            break
        if "lc_source" in message.additional_kwargs:
            extras = {key: value for key, value in message.additional_kwargs.items() if key != "lc_source"}
            found[at] = message.model_copy(update={"additional_kwargs": extras})
    return found


def in_order(past: list[BaseMessage], seqs: Mapping[str, int], earlier: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Merge stored messages into the earlier ones of the caller, by their sequence numbers; the rest goes to the end.

    A checkpointed state holds its own turns. What another writer added to the thread meanwhile belongs between them.
    """
    if not past:
        return list(earlier)
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
