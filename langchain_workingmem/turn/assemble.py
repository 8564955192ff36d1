"""What a model is shown in a turn, made of what was gathered, without I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem._text.rendering import recalled_block
from langchain_workingmem._text.said import is_blank
from langchain_workingmem._text.sending import provider_valid
from langchain_workingmem.models import MemoryContext
from langchain_workingmem.turn.fit import fit, fit_present, history_slice, is_sliced
from langchain_workingmem.turn.made import note_made
from langchain_workingmem.turn.media import media_begin, with_names
from langchain_workingmem.turn.messages import in_order, is_users, turn_of
from langchain_workingmem.usage import Counting
from langchain_workingmem.working_memory import working_memory_block

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem._text.sending import Marks
    from langchain_workingmem.options import HistoryOptions
    from langchain_workingmem.turn.gather import Gathered

BLANK = "(empty message)"  # shown for a question without content, which providers refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """To whom a context is shown."""

    read_only: bool = False
    for_model: bool = False  # it has to begin with the user, because Bedrock refuses an answer there, and Gemini a call
    tools: Sequence[str] | None = None  # names of the model's tools; None: those of the options
    name: str | None = None  # of the memory, where an agent has several
    in_prompt: Callable[[Sequence[str]], BaseMessage | None] | None = None  # see `Counting`


_TO_A_PROGRAM = Shown()


def assemble(
    state: MemoryState,
    options: HistoryOptions,
    gathered: Gathered,
    messages: Sequence[BaseMessage],
    shown: Shown = _TO_A_PROGRAM,
) -> MemoryContext:
    """Put a context together, and note what the model is shown.

    Order: system messages of the caller, the history, the rest of the list; what both have stands where the list has it. Memory goes
    into a copy of the user's message, so that the prompt keeps its prefix.
    """
    prompts = [message for message in messages if isinstance(message, SystemMessage)]
    given = [one for one in messages if not isinstance(one, SystemMessage) and one.id not in gathered.hidden]
    present = turn_of(given)
    earlier = given[: len(given) - len(present)]
    recent = [message for message in earlier if not gathered.is_too_old(message)]
    old, stored = len(earlier) - len(recent), gathered.history
    if gathered.covered:
        recent, stored = gathered.uncovered(recent), gathered.uncovered(stored)
        last = next((one for one in reversed(present) if is_users(one)), None)
        left = {id(last), *map(id, gathered.uncovered(present))}
        present = [one for one in present if id(one) in left]
    if gathered.limit is not None:
        options = replace(options, max_tokens=min(options.max_tokens or gathered.limit, gathered.limit))
    past = in_order(stored, gathered.seqs, recent)
    if options.roles is not None:  # roles choose among stored messages only
        own = {id(message) for message in gathered.history}
        kept = {id(message) for message in history_slice(gathered.history, options, given, gathered.uptos)}
        past = [message for message in past if id(message) not in own or id(message) in kept]
    slicing = options if options.roles is None else replace(options, roles=None)
    if is_sliced(past, slicing):
        past = history_slice(past, slicing, present, gathered.uptos)
    if options.media != "all":
        past = with_names(past, media_begin([*past, *present], options.media))[: len(past)]
    omitted = more = 0
    # what the store has weighed needs no second look
    is_light = not recent and not gathered.is_cut and gathered.tokens <= (options.max_tokens or 0)
    if options.max_tokens is not None and not (is_light and options.token_counter == "approximate"):
        past, omitted = fit(past, present, gathered.uptos, options, gathered.cut, is_cut=gathered.is_cut)
    if options.max_tokens is not None and not options.has_default_limit:
        present, more = fit_present(present, options)
    speech: list[BaseMessage] = []
    if shown.for_model:
        past, speech = _begun_by_user(past, given, gathered)
    marks = state.marks(gathered.thread_id, gathered.user_id)
    if any(map(is_blank, present)):
        present = [marks.put(one, {"content": BLANK}, content=one.content) if is_blank(one) else one for one in present]
    found = provider_valid([*past, *present])
    asked = next((at for at in range(len(found) - 1, -1, -1) if is_users(found[at])), None)
    _note(state, gathered, found, asked)
    found = _marked(found, [*gathered.history, *messages, *present], marks)
    question, system, first = _blocks(state, gathered, shown)
    if first and found and asked != 0:
        begun = _begun_with(found, first, marks)
        asked, found, first = asked and asked + len(begun) - len(found), begun, []
    if asked is None:
        system = [*first, *question, *system]
    elif blocks := [*first, *question, *map(_as_said, speech)]:
        found[asked] = marks.with_memory(found[asked], blocks)
    context = MemoryContext(
        messages=[*prompts, *found],
        system=system,
        recalled=gathered.recalled,
        working_memory=gathered.working_memory,
        omitted=old + omitted + more,
        observations=gathered.parts.get("observations"),
    )
    note_made(context, Counting(options.token_counter, present, shown.in_prompt))
    return context


def _begun_by_user(
    past: Sequence[BaseMessage], given: Sequence[BaseMessage], gathered: Gathered
) -> tuple[list[BaseMessage], list[BaseMessage]]:
    """Return a history that begins with the user, and what the assistant said before the user's first word in the thread."""
    own = {id(message) for message in given}
    at = next(
        (at for at, one in enumerate(past) if (isinstance(one, HumanMessage) and not is_blank(one)) or id(one) in own),
        len(past),
    )
    while 0 < at < len(past) and past[at].type in ("tool", "function"):  # with the call that it answers
        at -= 1
    first: list[BaseMessage]
    first = [one for one in past[:at] if isinstance(one, AIMessage) and not one.tool_calls and str(one.text).strip()]
    return list(past[at:]), first if gathered.begins == -float("inf") else []


def _as_said(message: BaseMessage) -> str:
    """Write what the assistant said before the user, to be shown in front of the user's words."""
    return f"<said_by_assistant>\n{message.text}\n</said_by_assistant>"


def _marked(found: Sequence[BaseMessage], originals: Sequence[BaseMessage], marks: Marks) -> list[BaseMessage]:
    """Mark the copies among the messages, so that whoever saves them saves what they stand for."""
    known = {id(message) for message in originals}
    by_id = {message.id: message for message in originals if message.id}
    if all(id(message) in known for message in found):
        return list(found)
    shown = []
    for message in found:
        original = by_id.get(message.id or "")
        if id(message) in known or original is None or not is_storable(message):
            shown.append(message)
        else:
            shown.append(marks.put(message, {}, content=original.content, name=original.name))
    return shown


def _note(state: MemoryState, gathered: Gathered, found: Sequence[BaseMessage], asked: int | None) -> None:
    """Note what the model is shown, for its tools."""
    message = None if asked is None else found[asked]
    words, memo = "" if message is None else str(message.text), state.shown_to_model
    stored = {seq: row.id for row in (gathered.known.rows if gathered.known else ()) for seq in (row.seq,)}
    ids = [stored.get(gathered.seqs.get(one.id or "", -1), one.id) for one in found if one.id]
    memo.note_shown_messages(gathered.thread_id, ids, words, gathered.user_id, message.id if message else None)
    if gathered.working_memory is not None:
        memo.note_shown_document(gathered.thread_id, gathered.working_memory.key, gathered.working_memory.text)


def _begun_with(found: list[BaseMessage], blocks: Sequence[str], marks: Marks) -> list[BaseMessage]:
    """Put blocks in front of the conversation: into a copy of the user's words, where it begins with these."""
    if is_users(found[0]):
        return [marks.with_memory(found[0], blocks), *found[1:]]
    return [marks.inserted(HumanMessage("\n\n".join(blocks))), *found]


def _blocks(state: MemoryState, gathered: Gathered, shown: Shown) -> tuple[list[str], list[str], list[str]]:
    """Return the blocks of memory for the front of the question, the end of the system prompt, and the front of the conversation."""
    blocks: dict[str, list[str]] = {"question": [], "system": [], "first": []}
    for part in state.parts:
        for placement, text in part.blocks(state, gathered, shown.name):
            blocks[placement].append(text)
    if state.recall is not None:
        block = recalled_block(gathered.recalled, gathered.thread_id, shown.name, gathered.zone)
        if block:
            blocks[state.recall.placement].append(block)
    if gathered.working_memory is not None:
        block = working_memory_block(
            state,
            gathered.working_memory,
            read_only=shown.read_only,
            tools=shown.tools,
            name=shown.name,
            zone=gathered.zone,
        )
        blocks[state.remembering.placement].append(block)
    return blocks["question"], blocks["system"], blocks["first"]
