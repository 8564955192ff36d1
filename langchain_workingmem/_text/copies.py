"""TODO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage


SOURCE = "langchain_workingmem"


NAME = "lc_name"  # in additional_kwargs of a copy: the name that was given


def is_from_memory(message: BaseMessage) -> bool:
    """Tell whether memory put this message where it stands."""
    return message.additional_kwargs.get("lc_source") == SOURCE


def from_memory(message: BaseMessage, data: dict[str, Any] | None = None, **update: Any) -> BaseMessage:
    """Copy a message, marked as put there by memory: it is not saved again, and no provider is sent the mark."""
    marks: dict[str, Any] = {"lc_source": SOURCE}
    if data is not None:
        marks["lc_data"] = data
    return message.model_copy(update={"additional_kwargs": {**message.additional_kwargs, **marks}, **update})


# the user's own content, in the copy of the message that memory put text in front of
ORIGINAL = "langchain_workingmem_original"


def with_memory(message: BaseMessage, blocks: Sequence[str]) -> BaseMessage:
    """Copy a message of the user with text of memory in front; `without_memory` gives the user's own back."""
    text, content = "\n\n".join(blocks), message.content
    more = f"{text}\n\n{content}" if isinstance(content, str) else [{"type": "text", "text": text}, *content]
    extras = {
        ORIGINAL: content,
        **message.additional_kwargs,
    }  # of several memories the first one's copy has the original
    return message.model_copy(update={"content": more, "additional_kwargs": extras})


def is_copy(message: BaseMessage) -> bool:
    """Tell whether a message is a copy that `with_memory` made."""
    return ORIGINAL in message.additional_kwargs


def without_memory(message: BaseMessage) -> BaseMessage:
    """Return the user's own message of a copy that `with_memory` made, and any other as it is."""
    if not is_copy(message):
        return message
    extras = dict(message.additional_kwargs)
    content = extras.pop(ORIGINAL)
    return message.model_copy(update={"content": content, "additional_kwargs": extras})


def with_given_name(message: BaseMessage) -> BaseMessage:
    """Return a message under the name that it was given, which `sendable` may have changed."""
    if NAME not in message.additional_kwargs:
        return message
    extras = dict(message.additional_kwargs)
    return message.model_copy(update={"name": extras.pop(NAME), "additional_kwargs": extras})
