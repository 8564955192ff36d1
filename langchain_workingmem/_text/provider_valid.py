"""Lists of messages that providers accept: pure functions, no I/O.

Providers refuse a tool result without its call, a call without all of its results, the same id twice, and messages without
content. Every list that memory puts together passes through `provider_valid`.
"""

from __future__ import annotations

from itertools import chain, dropwhile
from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage, BaseMessage, FunctionMessage, HumanMessage, ToolCall, ToolMessage

from langchain_workingmem._text.marks import SOURCE
from langchain_workingmem._text.names import acceptable_name
from langchain_workingmem._text.said import (
    function_call_id,
    has_content,
    tool_call_ids,
)
from langchain_workingmem._text.unicode import is_utf8, without_surrogates
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

_SENT = ("content", "name", "tool_calls", "invalid_tool_calls")
_RAW_CALLS = {"tool_calls", "function_call"}  # ChatOpenAI sends these when a message has no calls of its own
_RESULTS = (ToolMessage, FunctionMessage)
_TALK = (HumanMessage, AIMessage)


def headed_groups(messages: Iterable[BaseMessage]) -> list[tuple[BaseMessage, list[BaseMessage]]]:
    """Cut a conversation into what must stay together: a call with its results directly after it, or one message.

    Returns each group with the message that it was made of. Results may stand anywhere after their call; providers may number
    the calls of each answer from the start. Results without a call and messages without content are left out. Of messages with
    the same id the last one stays, at the position of the first. A call without all of its results becomes a copy of its words.
    """
    unique: dict[object, BaseMessage] = {}
    for message in messages:
        unique[object() if message.id is None else message.id] = message
    found: list[tuple[BaseMessage, dict[str, BaseMessage | None]]] = []
    waiting: dict[str, dict[str, BaseMessage | None]] = {}
    for message in unique.values():
        calls_nothing = type(message) is HumanMessage or (  # as most
            isinstance(message, AIMessage)
            and not (message.tool_calls or message.invalid_tool_calls or message.additional_kwargs)
        )
        if calls_nothing:
            found.append((message, {}))
        elif isinstance(message, _RESULTS):
            answered = function_call_id(message.name) if isinstance(message, FunctionMessage) else message.tool_call_id
            if answers := waiting.pop(answered, None):
                answers[answered] = message
        elif calls := tool_call_ids(message):
            answers = dict.fromkeys(calls)
            found.append((message, answers))
            if len(answers) == len(calls):  # the same id for two calls cannot be answered
                waiting.update(dict.fromkeys(calls, answers))
        else:
            found.append((message, {}))
    groups: list[tuple[BaseMessage, list[BaseMessage]]] = []
    for message, answers in found:
        group = [message]
        if answers:
            results = [answer for answer in answers.values() if answer is not None]
            group = [message, *results] if len(results) == len(answers) else [with_calls(message)]
        content = group[0].content
        if len(group) > 1 or (bool(content.strip()) if type(content) is str else has_content(group[0])):
            groups.append((message, group))
    return groups


def with_calls(
    message: BaseMessage, calls: Sequence[ToolCall] = (), content: str | list[Any] | None = None
) -> BaseMessage:
    """Copy an answer with only these of its tool calls; without other `content` with its text alone, as blocks may hold calls.

    The copy stands for more than it shows, so it is marked: nobody saves it.
    """
    extras = {key: value for key, value in message.additional_kwargs.items() if key not in _RAW_CALLS}
    lean = message.model_copy(update={"additional_kwargs": {**extras, "lc_source": SOURCE}})
    content = str(message.text) if content is None else content
    return lean.model_copy(update={"tool_calls": list(calls), "invalid_tool_calls": [], "content": content})


def provider_valid(
    messages: Iterable[BaseMessage], skip: Callable[[Sequence[BaseMessage]], bool] = lambda _: False
) -> list[BaseMessage]:
    """Return the messages that every provider accepts, in order, without the first groups as long as `skip` is true."""
    groups = (group for _, group in headed_groups(messages))
    return [
        one  # nearly all of them
        if type(one) in _TALK
        and type(one.content) is str
        and one.content.isascii()
        and not (one.name or (type(one) is AIMessage and (one.tool_calls or one.invalid_tool_calls)))
        else sendable(one)
        for one in chain(*dropwhile(skip, groups))
    ]


def sendable(message: BaseMessage) -> BaseMessage:
    """Return a message as it is, or a copy without lone surrogates (half an emoji), under a name that providers accept."""
    content = message.content
    calls = isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls)
    if isinstance(content, str) and not message.name and not calls and (content.isascii() or is_utf8(content)):
        return message  # nearly all of them
    parts = {name: value for name in _SENT if (value := getattr(message, name, None))}
    try:
        clean = {name: without_surrogates(value) for name, value in parts.items()}
        if message.name and not isinstance(message, _RESULTS):  # named after their calls
            clean["name"] = acceptable_name(message.name)
        if clean == parts:
            return message
    except RecursionError as error:
        raise OptionError(
            f"message {message.id!r} is nested deeper than Python can follow, or contains itself",
            remedy="pass content and arguments of tools as plain JSON",
        ) from error
    return message.model_copy(update=clean)
