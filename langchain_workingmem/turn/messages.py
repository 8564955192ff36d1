"""Lists of messages: which of them are the present turn, where stored ones belong, and whose media are shown. Pure functions."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Literal

from langchain_core.messages import HumanMessage

from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem._text.said import has_media, named_media

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_core.messages import BaseMessage


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


# ---------------------------------------------------------------------- media


def media_begin(messages: Sequence[BaseMessage], shown: Literal["all", "last"] | int) -> int:
    """Return the index from which on media are shown: the question of the last turn that has some, or of the last `shown`."""
    left = 1 if shown == "last" else shown
    if left == "all":
        return 0
    has_some = False
    for at in range(len(messages) - 1, -1, -1):
        has_some = has_some or has_media(messages[at])
        if has_some and is_users(messages[at]) and not (at and is_users(messages[at - 1])):
            left, has_some = left - 1, False
            if not left:
                return at
    return 0


def with_names(messages: Sequence[BaseMessage], end: int) -> list[BaseMessage]:
    """Copy messages in front of the index `end` that have media, with names in the place of these."""
    return [*(named(one) if has_media(one) else one for one in messages[:end]), *messages[end:]]


def named(message: BaseMessage) -> BaseMessage:
    """Name the media of a message, in a copy."""
    content = [message.content] if isinstance(message.content, str) else message.content
    return message.model_copy(update={"content": named_media(content)})
