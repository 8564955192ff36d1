"""What was said: the messages of the user, and the answers that end a turn. Tool traffic is not.

The history counts what was said, and a list without ids is recognised by it. So each stored message carries its words: a
digest, behind q for a question and a for an answer.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from langchain_workingmem._text.rendering import words_in

if TYPE_CHECKING:
    from collections.abc import Iterable

_DIGITS = 12  # of the digest: 48 bits, and the messages of one thread are compared
_ROLES_OF_USERS = {"user", "human"}


def has_content(message: BaseMessage) -> bool:
    """Tell whether there is anything in a message that a provider would accept as content."""
    content = message.content
    return bool(content.strip()) if isinstance(content, str) else any(map(_is_filled, content))


def _is_filled(block: str | dict[Any, Any]) -> bool:
    if isinstance(block, dict):
        return block.get("type") != "text" or bool(str(block.get("text") or "").strip())
    return bool(block.strip())


def tool_call_ids(message: BaseMessage) -> list[str]:
    """Give the ids of the tool calls of an answer, malformed ones included, because providers are sent those as well."""
    if not isinstance(message, AIMessage):
        return []
    calls = [call["id"] or "" for call in (*message.tool_calls, *message.invalid_tool_calls)]
    if not calls and (former := message.additional_kwargs.get("function_call")):
        return [function_call_id(former.get("name"))]
    return calls


def function_call_id(name: str | None) -> str:
    """Make an id of a call of the kind that was before tools: it has a name only, and one result right behind it."""
    return f"\0{name}"


def words_of(message: BaseMessage) -> str:
    """Return the digest of what a message says, blanks at both ends ignored; empty for what is not said.

    Pictures and files of the user count, because "what is this?" may ask about several.
    """
    kind = _kind(message)
    if not kind or not has_content(message):
        return ""
    text = words_in(message).strip()
    if kind == "q" and not isinstance(message.content, str):
        others = [block for block in message.content if isinstance(block, dict) and block.get("type") != "text"]
        if others:
            text = f"{text}\0{_written(others)}"
    return kind + hashlib.sha1(text.encode(errors="replace"), usedforsecurity=False).hexdigest()[:_DIGITS]


def _written(blocks: list[dict[Any, Any]]) -> str:
    """Write blocks in any order of their names; empty for what cannot be written, hence not be stored either."""
    try:
        return json.dumps(blocks, sort_keys=True, default=str)
    except TypeError:  # names that have no order, or are none
        pass
    except (ValueError, RecursionError):
        return ""
    try:
        return json.dumps(json.loads(json.dumps(blocks, default=str)), sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return ""


def _kind(message: BaseMessage) -> str:
    if isinstance(message, HumanMessage):
        return "q"
    if isinstance(message, AIMessage):
        return "" if tool_call_ids(message) else "a"
    if isinstance(message, ChatMessage):
        return "q" if message.role in _ROLES_OF_USERS else "a"
    return ""


def is_said(message: BaseMessage) -> bool:
    """Tell whether the history counts a message."""
    return bool(_kind(message)) and has_content(message)


def weight_of(messages: Iterable[BaseMessage]) -> int:
    """Estimate the tokens of messages, as langchain_core does."""
    return count_tokens_approximately(messages)
