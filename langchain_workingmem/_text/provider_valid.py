"""Lists of messages that providers accept and that fit the options: pure functions, no I/O.

Providers refuse a tool result without its call, a call without all of its results, the same id twice, and messages without
content. Every list that memory puts together passes through `provider_valid`.
"""

from __future__ import annotations

from itertools import chain, dropwhile
from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage, BaseMessage, FunctionMessage, HumanMessage, ToolCall, ToolMessage

from langchain_workingmem._text.marks import SOURCE
from langchain_workingmem._text.names import acceptable_name, is_memory_tool
from langchain_workingmem._text.said import (
    function_call_id,
    has_content,
    structured_text,
    tool_call_ids,
)
from langchain_workingmem._text.unicode import is_utf8, without_surrogates
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Sequence
    from typing import Any

    from langchain_workingmem.options import HistoryOptions

_SENT = ("content", "name", "tool_calls", "invalid_tool_calls")
_RAW_CALLS = {"tool_calls", "function_call"}  # ChatOpenAI sends these when a message has no calls of its own
# types of content blocks: of Anthropic, of OpenAI's Responses, of LangChain
_CALLS = {"tool_use", "function_call", "custom_tool_call", "tool_call", "tool_call_chunk", "invalid_tool_call"}
_RESULTS = (ToolMessage, FunctionMessage)
_TALK = (HumanMessage, AIMessage)
_REASONING = {"thinking", "redacted_thinking", "reasoning"}


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
        kind = type(message)
        if kind is HumanMessage or (
            kind is AIMessage and not (message.tool_calls or message.invalid_tool_calls or message.additional_kwargs)
        ):  # most call nothing, and are told apart quickly
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


def history_slice(
    messages: Sequence[BaseMessage],
    options: HistoryOptions,
    new: Sequence[BaseMessage] = (),
    said: Container[str | None] = (),
) -> list[BaseMessage]:
    """Leave out roles and tools as the options say, whole groups at a time.

    A stored call whose results are among the `new` messages belongs to the present turn, and always stays. `said` are ids of
    questions and answers: a structured answer whose tool is left out is shown as text.
    """
    excluded = options.exclude_tools
    fresh = {id(message) for message in new}
    present: list[BaseMessage] = []
    kept: list[list[BaseMessage]] = []
    answered = [_as_answer(one, excluded) if one.id in said else one for one in messages]
    for head, group in headed_groups([*answered, *new]):
        if id(head) in fresh:
            continue
        old = [message for message in group if id(message) not in fresh]
        if len(old) < len(group):
            present += old
        else:
            kept += _without_tools(group, excluded)
    if options.roles is not None:
        kept = [group for group in kept if all(message.type in options.roles for message in group)]
    return [*chain(*kept), *present]


def is_sliced(messages: Iterable[BaseMessage], options: HistoryOptions) -> bool:
    """Tell whether `history_slice` may leave out any of these messages; usually it leaves out none."""
    excluded = options.exclude_tools
    if options.roles is not None or excluded is True:
        return True
    # each turn asks this of each message that it shows, so the usual ones are told apart without a call
    calling = [message for message in messages if isinstance(message, AIMessage) and message.tool_calls]
    return any(_is_lean(message, excluded) for message in calling)


def _without_tools(group: list[BaseMessage], excluded: bool | str | Sequence[str]) -> list[list[BaseMessage]]:  # noqa: FBT001
    call, *results = group
    if not results or not isinstance(call, AIMessage):
        return [group]
    kept = [one for one in call.tool_calls if not _is_excluded(one["name"], excluded)]
    if len(kept) == len(call.tool_calls) and excluded is not True:
        return [group]
    is_own = excluded is not True and all(one in kept or is_memory_tool(one["name"]) for one in call.tool_calls)
    broken = call.invalid_tool_calls if is_own else []
    ids = {one["id"] for one in (*kept, *broken)}
    content: str | list[Any] | None = None
    if isinstance(call.content, list) and (kept or is_own):
        content = [block for block in call.content if _calls_only(block, ids)]
    lean = with_calls(call, kept, content).model_copy(update={"invalid_tool_calls": broken})
    if not ids and (not has_content(lean) or _is_reasoning(content)):
        return []
    if is_own and _is_signed(call):
        return [group]  # providers refuse reasoning whose answer was changed
    left = [one for one in results if isinstance(one, ToolMessage) and one.tool_call_id in ids]
    return [[lean, *left]]


def _is_lean(message: BaseMessage, excluded: bool | str | Sequence[str]) -> bool:  # noqa: FBT001
    """Tell whether a history leaves out a tool call of the message."""
    if excluded is False or not isinstance(message, AIMessage):
        return False
    return any(_is_excluded(one["name"], excluded) for one in message.tool_calls)


def _as_answer(message: BaseMessage, excluded: bool | str | Sequence[str]) -> BaseMessage:  # noqa: FBT001
    """Write a structured answer as text where its tool is left out."""
    return with_calls(message, content=structured_text(message)) if _is_lean(message, excluded) else message


def _is_excluded(tool: str, excluded: bool | str | Sequence[str]) -> bool:  # noqa: FBT001
    """Tell whether `HistoryOptions.exclude_tools` leaves out the calls of a tool in later turns."""
    return excluded is True or is_memory_tool(tool) or (excluded != "memory" and tool in (excluded or ()))


def _is_reasoning(content: str | list[Any] | None) -> bool:
    """Tell whether content blocks hold nothing but reasoning."""
    return isinstance(content, list) and all(
        isinstance(block, dict) and (block.get("type") in _REASONING or not has_content(AIMessage([block])))
        for block in content
    )


def _is_signed(message: AIMessage) -> bool:
    """Tell whether a message has reasoning that the provider has signed, or refers to."""
    blocks = [block for block in message.content if isinstance(block, dict)]
    return any(
        block.get("type") in _REASONING or "signature" in block or "signature" in (block.get("extras") or {})
        for block in blocks
    ) or any("signature" in key or key == "reasoning" for key in message.additional_kwargs)


def _calls_only(block: str | dict[Any, Any], ids: Collection[str | None]) -> bool:
    """Tell whether a content block is no tool call, or the call with one of these ids."""
    return (
        not isinstance(block, dict) or block.get("type") not in _CALLS or block.get("call_id", block.get("id")) in ids
    )
