"""Which of a caller's messages are the present turn and are saved, and how they and memory become the context of a model."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from langchain_workingmem._redis.codec import is_ours_to_keep
from langchain_workingmem._text.copies import with_memory, without_memory
from langchain_workingmem._text.rendering import recalled_block
from langchain_workingmem.history import fit, provider_valid
from langchain_workingmem.models import MemoryContext
from langchain_workingmem.working_memory import working_memory_block

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.history import Branch
    from langchain_workingmem.options import HistoryOptions
    from langchain_workingmem.turn.operations import Gathered


def _is_users(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) and is_ours_to_keep(message)


def question(messages: Sequence[BaseMessage]) -> BaseMessage | None:
    """Return the last message of the user: the turn answers it, and recall searches for it."""
    return next((message for message in reversed(messages) if _is_users(message)), None)


def turn_of(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the present turn: the last messages of the user and all after them; without any, all messages."""
    return list(messages[_start_of_turn(messages, len(messages)) :])


def _start_of_turn(messages: Sequence[BaseMessage], end: int) -> int:
    """Return the index of the first message of the turn that ends before the index `end`."""
    start = next((at for at in range(end - 1, -1, -1) if _is_users(messages[at])), 0)
    while start and _is_users(messages[start - 1]):
        start -= 1
    return start


def unsaved(messages: Sequence[BaseMessage], stored: Collection[str] = ()) -> list[BaseMessage]:
    """Return what a turn has to save: itself, and all before it since the last message whose id is in `stored`.

    Without such a message, earlier messages may be examples of the program. Then only turns that were interrupted are
    saved as well: they end with unanswered tool calls, and possibly nothing of them is saved yet.
    """
    start = _start_of_turn(messages, len(messages))
    known = next((at for at in range(start - 1, -1, -1) if messages[at].id in stored), None)
    if known is not None:
        return list(messages[known + 1 :])
    while start and isinstance(last := messages[start - 1], AIMessage) and last.tool_calls:
        start = _start_of_turn(messages, start)
    return list(messages[start:])


def to_save(messages: Sequence[BaseMessage], branch: Branch, stored: Collection[str] = ()) -> list[BaseMessage]:
    """Return what is unsaved, with earlier questions that were edited, without what is stored under another id."""
    fresh = unsaved(messages, stored)
    ids = {message.id for message in fresh}
    edited = (message for message in messages if message.id in branch.edited and message.id not in ids)
    return [one for one in (*edited, *fresh) if one.id not in branch.aliases and one.id not in branch.hidden]


def assemble(
    state: MemoryState,
    gathered: Gathered,
    new: Sequence[BaseMessage],
    history: HistoryOptions,
    *,
    read_only: bool,
    for_model: bool = False,
    tools: Sequence[str] | None = None,
    name: str | None = None,
) -> MemoryContext:
    """Put a context together, and note what the model is shown.

    `tools` are the names of the model's tools, None: those of the options. `name` is the memory's, where an agent has several.
    Order: system messages of `new`, the history, the rest of `new`; what both have stands where `new` has it. With `for_model`
    a history begins with the user, because Bedrock refuses an answer at the beginning, and Gemini a call. Memory goes into a
    copy of the user's message, so that the prompt keeps its prefix.
    """
    current, recalled = gathered.working_memory, gathered.recalled
    prompts = [message for message in new if isinstance(message, SystemMessage)]
    rest = [one for one in new if not isinstance(one, SystemMessage) and one.id not in gathered.branch.hidden]
    given = {message.id for message in rest if message.id}
    present = turn_of(rest)
    past = [message for message in gathered.stored if message.id not in given]
    merged = _in_order(past, gathered.seqs, rest[: len(rest) - len(present)])
    kept, omitted = fit(merged, present, gathered.uptos, history, gathered.cut)
    own = {id(message) for message in rest}

    def is_earlier_answer(group: Sequence[BaseMessage]) -> bool:
        return for_model and not any(
            isinstance(one, HumanMessage) or one.id in given or id(one) in own for one in group
        )

    shown = provider_valid([*kept, *present], is_earlier_answer)
    asked = next((at for at in range(len(shown) - 1, -1, -1) if _is_users(shown[at])), None)
    words = "" if asked is None else str(without_memory(shown[asked]).text)
    aliases = gathered.branch.aliases
    state.note_shown_messages(gathered.thread_id, [aliases.get(one.id, one.id) for one in shown if one.id], words)
    blocks: dict[str, list[str]] = {"question": [], "system": []}
    if state.recall is not None and (block := recalled_block(recalled, gathered.thread_id, name)):
        blocks[state.recall.placement].append(block)
    if current is not None:
        block = working_memory_block(state, current, read_only=read_only, tools=tools, name=name)
        blocks[state.remembering.placement].append(block)
        state.note_shown_document(gathered.thread_id, current.key, current.text)
    if asked is None:
        blocks["system"] = [*blocks["question"], *blocks["system"]]
    elif blocks["question"]:
        shown[asked] = with_memory(shown[asked], blocks["question"])
    return MemoryContext(
        messages=[*prompts, *shown],
        system=blocks["system"],
        recalled=recalled,
        working_memory=current,
        omitted=omitted,
    )


def _in_order(past: list[BaseMessage], seqs: Mapping[str, int], earlier: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Put each stored message before the `earlier` one of the caller that follows it in the thread, else at the end.

    A checkpointed state holds its own turns. What another writer added to the thread meanwhile belongs between them.
    """
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
