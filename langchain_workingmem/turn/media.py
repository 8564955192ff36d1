"""Which media a history shows: older pictures, audio and files are named in a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from langchain_workingmem._text.said import has_media, named_media
from langchain_workingmem.turn.messages import is_users

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage


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
