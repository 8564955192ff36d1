"""Which messages a turn shows, and in which order: the present turn, older media, roles, tools, `max_tokens`. Pure."""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Literal

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem._text.messages import (
    attachment,
    has_content,
    has_media,
    is_memory_tool,
    is_said,
    medium_of,
    structured_text,
    weight_of,
)
from langchain_workingmem._text.sending import headed_groups, with_calls

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.options import HistoryOptions


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
    """Merge stored messages into the caller's earlier ones by seq, as others write meanwhile; the rest goes last."""
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


def media_begin(messages: Sequence[BaseMessage], shown: Literal["all", "last"] | int) -> int:
    """Return the index from which media are shown: the question of the last turn, or the last `shown`, with some."""
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
    names = [{"type": "text", "text": attachment(one)} if medium_of(one) else one for one in content]
    return message.model_copy(update={"content": names})


def fit(
    past: Sequence[BaseMessage],
    present: Sequence[BaseMessage],
    uptos: Mapping[str, int],
    options: HistoryOptions,
    cut: int = 0,
) -> tuple[list[BaseMessage], int]:
    """Cut a history to `max_tokens`; count what is left out, with the `cut` messages that the store left out before."""
    # Tool traffic goes first, then turns, the oldest first. The last question and answer, and the present turn, stay.
    if options.max_tokens is None:
        return list(past), 0
    limit = options.max_tokens
    count = weight_of if options.token_counter == "approximate" else options.token_counter
    fresh = {id(message) for message in present}
    grouped, sizes, said = list[list["BaseMessage"]](), list[int](), list[int]()
    for head, group in headed_groups([*past, *present]):
        if id(head) in fresh:
            continue
        if is_said(head) or head.id in uptos:
            said.append(len(grouped))
        grouped.append([message for message in group if id(message) not in fresh])
        sizes.append(count(group) if len(grouped[-1]) == len(group) else 0)
    begin = 0
    if said and (cut or sum(sizes[at] for at in said) > limit):
        begin = _begin(grouped, sizes, said, uptos, limit)
    room, spoken = limit - sum(sizes[at] for at in said if at >= begin), {*said}
    kept: list[list[BaseMessage]] = []
    for at in range(len(grouped) - 1, -1, -1):
        if at in spoken:
            if at >= begin:
                kept.append(grouped[at])
        elif sizes[at] == 0 or (at >= begin and room >= 0 and (room := room - sizes[at]) >= 0):
            kept.append(grouped[at])
    shown = [*chain(*reversed(kept))]
    return shown, cut + len(past) - len(shown)


def _begin(
    grouped: list[list[BaseMessage]], sizes: list[int], said: list[int], uptos: Mapping[str, int], limit: int
) -> int:
    """Find the first question from which on all fits, if possible where a third of the limit ends; else the last."""
    # So the beginning, which providers cache, stays until the limit is reached; then about two thirds are left.
    third = max(limit / 3, 1)
    left = sum(sizes[at] for at in said)
    exact = None
    before = uptos.get(grouped[said[0]][0].id or "", 0) // third
    last = said[-1]
    for at in said:
        if grouped[at][0].type == "human":
            step = uptos.get(grouped[at][0].id or "", 0) // third
            if left <= limit:
                exact = at if exact is None else exact
                if step > before:
                    return at
            before, last = step, at
        left -= sizes[at]
    return last if exact is None else exact


def fit_present(present: Sequence[BaseMessage], options: HistoryOptions) -> tuple[list[BaseMessage], int]:
    """Leave out the oldest finished tool calls of the running turn, never the newest ones."""
    count = weight_of if options.token_counter == "approximate" else options.token_counter
    excess, gone = count(present) - (options.max_tokens or 0), set[int]()
    groups = [group for _, group in headed_groups(present) if len(group) > 1]
    for group in groups[:-1] if excess > 0 else ():
        if excess <= 0:
            break
        gone.update(map(id, group))
        excess -= count(group)
    return [one for one in present if id(one) not in gone], len(gone)


def history_slice(
    messages: Sequence[BaseMessage],
    options: HistoryOptions,
    new: Sequence[BaseMessage] = (),
    said: Container[str | None] = (),
    given: Container[str | None] = (),
) -> list[BaseMessage]:
    """Leave out roles and tools as the options say, whole groups; roles choose among stored messages only."""
    # A stored call whose results are among the `new` messages belongs to the present turn, and stays. A structured
    # answer (`said` has its id) whose tool is left out is shown as text.
    excluded, roles = options.exclude_tools, options.roles
    fresh = {id(message) for message in new}
    present: list[BaseMessage] = []
    kept: list[BaseMessage] = []
    answered = [
        with_calls(one, content=structured_text(one)) if one.id in said and _has_excluded([one], excluded) else one
        for one in messages
    ]
    for head, group in headed_groups([*answered, *new]):
        if id(head) in fresh:
            continue
        old = [message for message in group if id(message) not in fresh]
        if len(old) < len(group):
            present += old
        elif roles is None or head.id in given or all(message.type in roles for message in group):
            kept += _without_tools(group, excluded)
    return [*kept, *present]


def is_sliced(messages: Iterable[BaseMessage], options: HistoryOptions) -> bool:
    """Tell whether `history_slice` may leave out any of these messages; usually it leaves out none."""
    excluded = options.exclude_tools
    return options.roles is not None or excluded is True or _has_excluded(messages, excluded)


def _without_tools(group: list[BaseMessage], excluded: bool | str | Sequence[str]) -> list[BaseMessage]:  # noqa: FBT001
    """Return a call and its results without the calls that are left out; then of its content the text stays."""
    call, *results = group
    if not results or not (excluded is True or _has_excluded([call], excluded)):
        return group
    kept = [one for one in getattr(call, "tool_calls", ()) if not _is_excluded(one["name"], excluded)]
    lean, ids = with_calls(call, kept), {one["id"] for one in kept}
    answers = [one for one in results if isinstance(one, ToolMessage) and one.tool_call_id in ids]
    return [lean, *answers] if kept or has_content(lean) else []


def _has_excluded(messages: Iterable[BaseMessage], excluded: bool | str | Sequence[str]) -> bool:  # noqa: FBT001
    calls = (call for one in messages if isinstance(one, AIMessage) for call in one.tool_calls)
    return any(_is_excluded(call["name"], excluded) for call in calls)


def _is_excluded(tool: str, excluded: bool | str | Sequence[str]) -> bool:  # noqa: FBT001
    if isinstance(excluded, bool):
        return excluded
    return is_memory_tool(tool) or (excluded != "memory" and tool in excluded)
