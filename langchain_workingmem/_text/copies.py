"""Copies of messages that memory changes: marked as from memory, or with text of memory in front of the user's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_core.messages import BaseMessage


# keys and values in additional_kwargs of a copy
SOURCE = "langchain_workingmem"
NAME = "lc_name"  # the name that the message was given
ORIGINAL = "langchain_workingmem_original"  # the user's own content
# positions of messages that a node has taken out of the state
COVERED = "langchain_workingmem_covered"
_RANGES = re.compile(r"\d{1,15}(?:-\d{1,15})?(?:,\d{1,15}(?:-\d{1,15})?)*", re.ASCII)


def is_from_memory(message: BaseMessage) -> bool:
    """Tell whether memory inserted this message."""
    return message.additional_kwargs.get("lc_source") == SOURCE


def from_memory(message: BaseMessage, data: dict[str, Any] | None = None, **update: Any) -> BaseMessage:
    """Copy a message as one that memory inserts: it is not saved again. Providers do not receive the flag."""
    added = {"lc_source": SOURCE} if data is None else {"lc_source": SOURCE, "lc_data": data}
    return message.model_copy(update={"additional_kwargs": {**message.additional_kwargs, **added}, **update})


def with_memory(message: BaseMessage, blocks: Sequence[str]) -> BaseMessage:
    """Copy a message of the user with text of memory in front; `without_memory` undoes this."""
    text, content = "\n\n".join(blocks), message.content
    more = f"{text}\n\n{content}" if isinstance(content, str) else [{"type": "text", "text": text}, *content]
    # with several memories, the first copy holds the original
    extras = {ORIGINAL: content, **message.additional_kwargs}
    return message.model_copy(update={"content": more, "additional_kwargs": extras})


def with_words(message: BaseMessage, text: str) -> BaseMessage:
    """Copy a message with other text instead of its own; `without_memory` undoes this."""
    extras = {ORIGINAL: message.content, **message.additional_kwargs}
    return message.model_copy(update={"content": text, "additional_kwargs": extras})


def is_copy(message: BaseMessage) -> bool:
    """Tell whether a message is a copy that `with_memory`, `with_words` or `with_covered` made."""
    return ORIGINAL in message.additional_kwargs or COVERED in message.additional_kwargs


def without_memory(message: BaseMessage) -> BaseMessage:
    """Return the message as it was for a copy that `with_memory`, `with_words` or `with_covered` made, any other message unchanged."""
    if not is_copy(message):
        return message
    extras = dict(message.additional_kwargs)
    extras.pop(COVERED, None)
    content = extras.pop(ORIGINAL, message.content)
    return message.model_copy(update={"content": content, "additional_kwargs": extras})


def with_covered(message: BaseMessage, positions: str) -> BaseMessage:
    """Copy a message of a state with the positions of those that were taken out of it; `without_memory` undoes this."""
    return message.model_copy(update={"additional_kwargs": {**message.additional_kwargs, COVERED: positions}})


def covered_in(messages: Iterable[BaseMessage]) -> set[str]:
    """Return the positions that `with_covered` has noted in messages, as they were written; a client may have changed them."""
    found = (message.additional_kwargs.get(COVERED) for message in messages)
    return {positions for positions in found if isinstance(positions, str) and _RANGES.fullmatch(positions)}


def with_given_name(message: BaseMessage) -> BaseMessage:
    """Return a message with the name that it was given, which was changed for a provider."""
    if NAME not in message.additional_kwargs:
        return message
    extras = dict(message.additional_kwargs)
    return message.model_copy(update={"name": extras.pop(NAME), "additional_kwargs": extras})
