"""What of a history the options show: how much fits into `max_tokens`, without the roles and tools that they leave out. Pure functions."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, ToolMessage

from langchain_workingmem._text.said import has_content, is_memory_tool, is_said, structured_text, weight_of
from langchain_workingmem._text.sending import headed_groups, with_calls

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.options import HistoryOptions

# types of content blocks: of Anthropic, of OpenAI's Responses, of LangChain
_CALLS = {"tool_use", "function_call", "custom_tool_call", "tool_call", "tool_call_chunk", "invalid_tool_call"}
_REASONING = {"thinking", "redacted_thinking", "reasoning"}


def fit(
    past: Sequence[BaseMessage],
    present: Sequence[BaseMessage],
    uptos: Mapping[str, int],
    options: HistoryOptions,
    cut: int = 0,
    *,
    is_cut: bool = False,
) -> tuple[list[BaseMessage], int]:
    """Cut a history to `max_tokens`, and count the messages left out, with the `cut` ones, which the store left out.

    `is_cut`: the limit has left out some before.

    Tool traffic is cut first, then turns, the oldest first. The last question and its answer stay, and so does the `present`
    turn, which does not count. The history begins where the tokens of the thread (`uptos`, by id) pass a multiple of a third of
    the limit. So its beginning, which providers cache, stays until the limit is reached; then about two thirds are left.
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
    said = [at for at, (head, _) in enumerate(headed) if is_said(head) or (head.id or "") in uptos]
    begin = 0
    if said and (cut or is_cut or sum(sizes[at] for at in said) > limit):
        begin = _begin(grouped, sizes, said, uptos, limit)
    room = limit - sum(sizes[at] for at in said if at >= begin)
    kept: list[list[BaseMessage]] = []
    for at in range(len(grouped) - 1, -1, -1):
        if at in said:
            if at >= begin:
                kept.append(grouped[at])
        elif cut and len(headed[at][1]) == 1 and headed[at][0] is not headed[at][1][0]:
            continue  # the copy of a call whose result the store left out
        elif sizes[at] == 0 or (at >= begin and room >= 0 and (room := room - sizes[at]) >= 0):
            kept.append(grouped[at])
    shown = [*chain(*reversed(kept))]
    return shown, cut + len(past) - len(shown)


def _begin(
    grouped: list[list[BaseMessage]], sizes: list[int], said: list[int], uptos: Mapping[str, int], limit: int
) -> int:
    """Find the first question from which on all fits, if possible one where a third of the limit ends; else the last."""
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
    """Leave out the oldest finished tool calls of the running turn, if the program has named a limit; never the newest ones."""
    count = weight_of if options.token_counter == "approximate" else options.token_counter
    excess, gone = count(present) - (options.max_tokens or 0), set[int]()
    groups = [group for _, group in headed_groups(present) if len(group) > 1]
    for group in groups[:-1] if excess > 0 else ():
        if excess <= 0:
            break
        gone.update(map(id, group))
        excess -= count(group)
    return [one for one in present if id(one) not in gone], len(gone)


# ---------------------------------------------------------------------- roles and tools


def history_slice(
    messages: Sequence[BaseMessage],
    options: HistoryOptions,
    new: Sequence[BaseMessage] = (),
    said: Container[str | None] = (),
    given: Container[str | None] = (),
) -> list[BaseMessage]:
    """Leave out roles and tools as the options say, whole groups at a time; roles do not choose among the `given` ids.

    A stored call whose results are among the `new` messages belongs to the present turn, and always stays. `said` are ids of
    questions and answers: a structured answer whose tool is left out is shown as text.
    """
    excluded, roles = options.exclude_tools, options.roles
    fresh = {id(message) for message in new}
    present: list[BaseMessage] = []
    kept: list[BaseMessage] = []
    answered = [_as_answer(one, excluded) if one.id in said else one for one in messages]
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
    if options.roles is not None or excluded is True:
        return True
    # each turn asks this of each message that it shows, so the usual ones are told apart without a call
    calling = [message for message in messages if isinstance(message, AIMessage) and message.tool_calls]
    return any(_is_lean(message, excluded) for message in calling)


def _without_tools(group: list[BaseMessage], excluded: bool | str | Sequence[str]) -> list[BaseMessage]:  # noqa: FBT001
    """Return a call and its results without the calls that are left out; its words stay."""
    call, *results = group
    if not results or not isinstance(call, AIMessage):
        return group
    kept = [one for one in call.tool_calls if not _is_excluded(one["name"], excluded)]
    if len(kept) == len(call.tool_calls) and excluded is not True:
        return group
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
        return group  # providers refuse reasoning whose answer was changed
    return [lean, *(one for one in results if isinstance(one, ToolMessage) and one.tool_call_id in ids)]


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
