"""What a model may be shown: pure functions over lists of messages, no I/O.

Providers refuse a tool result without its call, a call without all of its results, the same id twice, and messages
without content. Whatever memory puts together passes through `valid`.
"""

from __future__ import annotations

from itertools import dropwhile
from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage, BaseMessage, FunctionMessage, ToolCall, ToolMessage

from langchain_workingmem._text.copies import NAME, from_memory
from langchain_workingmem._text.names import acceptable_name
from langchain_workingmem._text.said import function_call_id, has_content, is_said, tool_call_ids, weight_of
from langchain_workingmem._text.unicode import to_utf8, without_surrogates
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from langchain_workingmem.options import HistoryOptions

_SENT = ("content", "name", "tool_calls", "invalid_tool_calls")
_RAW_CALLS = {"tool_calls", "function_call"}  # ChatOpenAI sends these when a message has no calls of its own


def groups(messages: Iterable[BaseMessage]) -> list[list[BaseMessage]]:
    """Return what must stay together, as `headed_groups` finds it."""
    return [group for _, group in headed_groups(messages)]


def headed_groups(messages: Iterable[BaseMessage]) -> list[tuple[BaseMessage, list[BaseMessage]]]:
    """Cut a conversation into what must stay together: a call with its results right behind it, or one message.

    A result is found wherever it stands behind its call; a provider that numbers its calls anew in each answer is
    understood. Left out: results without a call, messages without content, and repetitions of an id (the later one
    stays, at the first's place). Of an answer whose calls miss any result the words stay, in a copy; in front of each
    group stands the message that it was made of.
    """
    unique: dict[object, BaseMessage] = {}
    for message in messages:
        unique[message.id if message.id is not None else object()] = message
    found: list[tuple[BaseMessage, dict[str, BaseMessage | None]]] = []
    waiting: dict[str, dict[str, BaseMessage | None]] = {}
    for message in unique.values():
        if isinstance(message, ToolMessage | FunctionMessage):
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
    whole = [
        (message, [message, *filter(None, answers.values())] if None not in answers.values() else [with_calls(message)])
        for message, answers in found
    ]
    return [(head, group) for head, group in whole if len(group) > 1 or has_content(group[0])]


def with_calls(message: BaseMessage, calls: Sequence[ToolCall] = ()) -> BaseMessage:
    """Copy an answer with only these of its tool calls.

    Content blocks, and what a provider said in its own form, would still carry the others: words remain.
    """
    extras = {key: value for key, value in message.additional_kwargs.items() if key not in _RAW_CALLS}
    lean = message.model_copy(update={"additional_kwargs": extras})
    return from_memory(lean, tool_calls=list(calls), invalid_tool_calls=[], content=str(message.text))


def flat(grouped: Iterable[Sequence[BaseMessage]]) -> list[BaseMessage]:
    """Put groups back into one list."""
    return [message for group in grouped for message in group]


def provider_valid(
    messages: Iterable[BaseMessage], skip: Callable[[Sequence[BaseMessage]], bool] = lambda _: False
) -> list[BaseMessage]:
    """Return the messages that every provider accepts, in order; the first groups are left out as long as `skip` says so."""
    return [sendable(message) for message in flat(dropwhile(skip, groups(messages)))]


def sendable(message: BaseMessage) -> BaseMessage:
    """Return a message as it is, or a copy that requests can carry.

    In the copy there are no lone surrogates (half an emoji, say), and a speaker's name is one that providers accept; the
    name that was given stays beside it, for whoever saves the copy.
    """
    content, calls = (
        message.content,
        isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls),
    )
    if isinstance(content, str) and content.isascii() and not message.name and not calls:
        return message  # nearly all of them
    parts = {name: value for name in _SENT if (value := getattr(message, name, None))}
    try:
        clean = {name: without_surrogates(value) for name, value in parts.items()}
        if message.name and not isinstance(message, ToolMessage | FunctionMessage):  # theirs are those of their calls
            clean["name"] = acceptable_name(message.name)
        if clean == parts:
            return message
    except RecursionError as error:
        raise OptionError(
            f"message {message.id!r} is nested deeper than Python can follow, or holds itself",
            remedy="no provider takes that, so pass content and arguments of tools as plain JSON",
        ) from error
    if message.name and clean["name"] != message.name:
        clean["additional_kwargs"] = {**message.additional_kwargs, NAME: to_utf8(message.name or "")}
    return message.model_copy(update=clean)


def history_slice(
    messages: Sequence[BaseMessage], options: HistoryOptions, new: Sequence[BaseMessage] = ()
) -> list[BaseMessage]:
    """Cut stored messages to what the options allow, whole groups at a time, the newest kept.

    A stored call whose results are among the `new` messages belongs to the present turn, and stays whatever the options.
    """
    fresh = {id(message) for message in new}
    present: list[BaseMessage] = []
    kept: list[list[BaseMessage]] = []
    for head, group in headed_groups([*messages, *new]):
        if id(head) in fresh:
            continue
        old = [message for message in group if id(message) not in fresh]
        if len(old) < len(group):
            present += old
        else:
            kept += _without_tools(group, options.exclude_tools)
    if options.roles is not None:
        kept = [group for group in kept if all(message.type in options.roles for message in group)]
    return [*flat(kept), *present]


def fit(
    past: Sequence[BaseMessage],
    present: Sequence[BaseMessage],
    uptos: Mapping[str, int],
    options: HistoryOptions,
    cut: int = 0,
) -> tuple[list[BaseMessage], int]:
    """Cut a history to `max_tokens`, and say how many messages that leaves out, with those that are `cut` already.

    Tool traffic leaves first, the oldest first, then the oldest turns; the last question and its answer stay, and so does the
    `present` turn, which does not count. The beginning stands where the tokens that were ever said (`uptos`, by id) pass a
    multiple of a third of the limit: so it stays until the limit is reached, and then about two thirds are left.
    """
    if options.max_tokens is None:
        return list(past), 0
    limit = options.max_tokens
    count = weight_of if options.token_counter == "approximate" else options.token_counter
    fresh = {id(message) for message in present}
    together = headed_groups([*past, *present])
    headed = [(head, group) for head, group in together if id(head) not in fresh]
    grouped = [[message for message in group if id(message) not in fresh] for _, group in headed]
    wanted = {id(one) for _, group in together if fresh & set(map(id, group)) for one in group}
    sizes = [0 if wanted & set(map(id, group)) else count(group) for group in grouped]
    said = [at for at, (head, _) in enumerate(headed) if is_said(head)]
    questions = {at for at in said if grouped[at][0].type == "human"}
    begin = 0
    spoken = sum(sizes[at] for at in said)
    if said and (cut or spoken > limit):
        last = max(questions, default=said[-1])
        found = _begin(grouped, sizes, said, questions, uptos, limit)
        begin = last if found is None else min(found, last)
    room = limit - sum(sizes[at] for at in said if at >= begin)
    kept: list[list[BaseMessage]] = []
    for at in range(len(grouped) - 1, -1, -1):
        if at in said:
            if at >= begin:
                kept.append(grouped[at])
        elif cut and len(headed[at][1]) == 1 and headed[at][0] is not headed[at][1][0]:
            continue  # words of a call whose result is too long
        elif sizes[at] == 0 or (at >= begin and room >= 0 and (room := room - sizes[at]) >= 0):
            kept.append(grouped[at])
    shown = flat(reversed(kept))
    return shown, cut + len(past) - len(shown)


def _begin(
    grouped: Sequence[Sequence[BaseMessage]],
    sizes: Sequence[int],
    said: Sequence[int],
    questions: Collection[int],
    uptos: Mapping[str, int],
    limit: int,
) -> int | None:
    """Find the first question from which on what was said fits; one at which a third of the limit ends, if there is any."""
    third = max(limit / 3, 1)
    left = sum(sizes[at] for at in said)
    exact = None
    before = uptos.get(grouped[said[0]][0].id or "", 0) // third
    for at in said:
        if at in questions:
            step = uptos.get(grouped[at][0].id or "", 0) // third
            if left <= limit:
                exact = at if exact is None else exact
                if step > before:
                    return at
            before = step
        left -= sizes[at]
    return exact


def _without_tools(group: list[BaseMessage], names: bool | Sequence[str]) -> list[list[BaseMessage]]:  # noqa: FBT001
    call, *results = group
    if not results or not isinstance(call, AIMessage) or not names:
        return [group]
    if names is not True and not any(one["name"] in names for one in call.tool_calls):
        return [group]
    kept = [] if names is True else [one for one in call.tool_calls if one["name"] not in names]
    ids = {one["id"] for one in kept}
    lean = with_calls(call, kept)
    left = [one for one in results if isinstance(one, ToolMessage) and one.tool_call_id in ids]
    return [[lean, *left]] if kept or has_content(lean) else []
