"""Questions and answers: messages of the user, and answers of the model without tool calls. The rest is tool traffic.

A structured answer is an answer as well: a tool call that ends a turn, as no call of the model follows.
The history counts questions and answers, and recognises messages without ids by a digest of them.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from langchain_workingmem._text.chunks import CHARACTERS_PER_TOKEN, count_tokens, length
from langchain_workingmem._text.media import has_media, media_in, media_tokens, named_media
from langchain_workingmem._text.names import is_memory_tool
from langchain_workingmem._text.rendering import words_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_DIGITS = 12  # of the digest: 48 bits, enough within one thread
_LONG = 1_000  # characters
_ROLES_OF_USERS = {"user", "human"}
_ROLE_LENGTHS = {"human": len("user"), "ai": len("assistant"), "tool": len("tool")}


def has_content(message: BaseMessage) -> bool:
    """Tell whether a message holds content that a provider would accept."""
    content = message.content
    return bool(content.strip()) if isinstance(content, str) else any(map(_is_filled, content))


def is_blank(message: BaseMessage) -> bool:
    """Tell whether a user has sent nothing, no picture either."""
    return isinstance(message, HumanMessage) and not has_content(message)


def _is_filled(block: str | dict[Any, Any]) -> bool:
    if isinstance(block, dict):
        return block.get("type") != "text" or bool(str(block.get("text") or "").strip())
    return bool(block.strip())


def tool_call_ids(message: BaseMessage) -> list[str]:
    """Return the ids of the tool calls of an answer, invalid calls included: providers receive those, too."""
    if not isinstance(message, AIMessage):
        return []
    calls = [call.get("id") or "" for call in (*message.tool_calls, *message.invalid_tool_calls)]
    if not calls and (former := message.additional_kwargs.get("function_call")):
        return [function_call_id(former.get("name"))]
    return calls


def function_call_id(name: str | None) -> str:
    """Make an id for a legacy function call, which has only a name and one result right after it."""
    return f"\0{name}"


def structured_answers(messages: Sequence[BaseMessage], *, is_over: bool) -> set[int]:
    """Return the Python `id` of each message that is a structured answer: its calls have results, and its turn is over.

    `is_over` tells whether the last turn is. Memory's own calls answer nobody.
    """
    found = set()
    for at in [at for at, one in enumerate(messages) if isinstance(one, AIMessage) and one.tool_calls]:
        call: Any = messages[at]
        waiting, ends = {*tool_call_ids(call)}, is_over
        for position in range(at + 1, len(messages)):
            follower = messages[position]
            if isinstance(follower, AIMessage | HumanMessage):
                ends = isinstance(follower, HumanMessage)
                break
            waiting.discard(getattr(follower, "tool_call_id", ""))
        if ends and not waiting and any(not is_memory_tool(one["name"]) for one in call.tool_calls):
            found.add(id(call))
    return found


def structured_text(message: BaseMessage) -> str:
    """Return the text of a structured answer: its own, and a line for each argument. Recall searches it."""
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    args = (call["args"] for call in calls if not is_memory_tool(call["name"]))
    lines = (f"{name}: {_plain(value)}" for one in args for name, value in one.items())
    return "\n".join(filter(None, (words_in(message), *lines)))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def words_of(message: BaseMessage, *, structured: bool = False) -> str:
    """Return q (question), a (answer) or as (structured answer) and a digest of the text without outer blanks; else empty.

    Empty is tool traffic. The digest includes a user's pictures and files, because "what is this?" may be asked about several.
    """
    kind = "as" if structured else _kind(message)
    if not kind or not (structured or has_content(message)):
        return ""
    text = (structured_text(message) if structured else words_in(message)).strip()
    if kind == "q" and not isinstance(message.content, str):
        others = [block for block in message.content if isinstance(block, dict) and block.get("type") != "text"]
        if others:
            text = f"{text}\0{_written(others)}"
    return (kind + hashlib.sha1(text.encode(errors="replace"), usedforsecurity=False).hexdigest())[: _DIGITS + 1]


def _brief(value: Any) -> Any:
    """Replace long strings by a digest: that takes a fifth of the time."""
    if isinstance(value, str):
        return (
            value
            if len(value) < _LONG
            else hashlib.sha1(value.encode(errors="replace"), usedforsecurity=False).hexdigest()
        )
    if isinstance(value, dict):
        return {key: _brief(one) for key, one in value.items()}
    return [*map(_brief, value)] if isinstance(value, list) else value


def _written(blocks: list[dict[Any, Any]]) -> str:
    """Write blocks as JSON with sorted keys; empty for what is not JSON, which cannot be stored either."""
    try:
        blocks = _brief(blocks)
    except RecursionError:
        return ""
    try:
        return json.dumps(blocks, sort_keys=True, default=str)
    except TypeError:  # keys that cannot be sorted become str first
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
    """Tell whether a message is a question or an answer, which the history counts."""
    return bool(_kind(message)) and has_content(message)


def weight_of(messages: Iterable[BaseMessage]) -> int:
    """Estimate the tokens of messages with their tool calls: of English as langchain_core does, else by `length`.

    Pictures, audio and files count what they cost a model (`media_tokens`).
    """
    return sum(map(_weight, messages))


def _weight(message: BaseMessage) -> int:
    content, role = message.content, _ROLE_LENGTHS.get(message.type)
    if role is None or not isinstance(content, str):
        if has_media(message):
            named = message.model_copy(update={"content": named_media(content)})
            return _weight(named) + sum(map(media_tokens, media_in(content)))
        try:
            text = f"{words_in(message)}{getattr(message, 'tool_calls', '')}"
            return count_tokens_approximately([message]) + count_tokens(text) - -(-len(text) // CHARACTERS_PER_TOKEN)
        except TypeError:  # a block whose text is no text
            content, role = repr(content), 0
    # the usual messages: a third of the time, and every message that is saved is weighed
    characters = length(content) + role + length(message.name or "")
    if isinstance(message, AIMessage):
        if message.tool_calls:
            characters += length(repr(message.tool_calls))
    elif isinstance(message, ToolMessage):
        characters += len(message.tool_call_id)
    return (characters + 3) // CHARACTERS_PER_TOKEN + 3
