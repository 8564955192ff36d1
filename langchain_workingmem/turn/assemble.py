"""What a model is shown in a turn, made of what was gathered, without I/O."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem._redis.state import ShownMessages
from langchain_workingmem._text.messages import is_blank, recalled_block
from langchain_workingmem._text.sending import provider_valid
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem.models import MemoryContext
from langchain_workingmem.turn.fit import (
    fit,
    fit_present,
    history_slice,
    in_order,
    is_sliced,
    is_users,
    media_begin,
    turn_of,
    with_names,
)
from langchain_workingmem.usage import Counting
from langchain_workingmem.working_memory.prompt import working_memory_block

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem._text.sending import Marks
    from langchain_workingmem.options import HistoryOptions
    from langchain_workingmem.turn.gather import Gathered

BLANK = "(empty message)"  # shown for a question without content, which providers refuse
_collecting: ContextVar[tuple[list[MemoryContext], ...]] = ContextVar("langchain_workingmem_contexts", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """To whom a context is shown."""

    read_only: bool = False
    for_model: bool = False  # it has to begin with the user, because Bedrock refuses an answer there, and Gemini a call
    tools: Sequence[str] | None = None  # names of the model's tools; None: those of the options
    name: str | None = None  # of the memory, where an agent has several


_TO_A_PROGRAM = Shown()


def assemble(
    state: MemoryState,
    options: HistoryOptions,
    gathered: Gathered,
    messages: Sequence[BaseMessage],
    shown: Shown = _TO_A_PROGRAM,
) -> MemoryContext:
    """Put a context together, and note what the model is shown."""
    # Memory goes into a copy of the user's message, so that the prompt keeps its prefix.
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
    past, omitted = _past(gathered, options, in_order(stored, gathered.seqs, recent), recent, present)
    if options.max_tokens is not None and not options.has_default_limit:
        present, more = fit_present(present, options)
        omitted += more
    speech: list[str] = []
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
    if first and found and is_users(found[0]) and asked:
        found[0], first = marks.with_memory(found[0], first), []
    elif first and found and asked != 0:
        found = [marks.inserted(HumanMessage("\n\n".join(first))), *found]
        asked, first = asked and asked + 1, []
    if asked is None:
        system = [*first, *question, *system]
    elif blocks := [*first, *question, *speech]:
        found[asked] = marks.with_memory(found[asked], blocks)
    context = MemoryContext(
        messages=[*prompts, *found],
        system=system,
        recalled=gathered.recalled,
        working_memory=gathered.working_memory,
        omitted=old + omitted,
        observations=gathered.parts.get("observations"),
    )
    object.__setattr__(context, "counting", Counting(options.token_counter, present))
    for made in _collecting.get():
        made.append(context)
    return context


def _past(
    gathered: Gathered,
    options: HistoryOptions,
    past: list[BaseMessage],
    recent: Sequence[BaseMessage],
    present: Sequence[BaseMessage],
) -> tuple[list[BaseMessage], int]:
    """Return the conversation before the present turn as options show it, and how many messages are left out."""
    if is_sliced(past, options):
        past = history_slice(past, options, present, gathered.uptos, {one.id for one in recent})
    if options.media != "all":
        past = with_names(past, media_begin([*past, *present], options.media))
    # what the store has weighed needs no second look
    is_light = not recent and not gathered.cut and gathered.tokens <= (options.max_tokens or 0)
    if options.max_tokens is None or (is_light and options.token_counter == "approximate"):
        return past, 0
    return fit(past, present, gathered.uptos, options, gathered.cut)


def _begun_by_user(
    past: Sequence[BaseMessage], given: Sequence[BaseMessage], gathered: Gathered
) -> tuple[list[BaseMessage], list[str]]:
    """Return a history that begins with the user, and blocks of what the assistant said before the first word."""
    own = {id(message) for message in given}
    at = next(
        (at for at, one in enumerate(past) if (isinstance(one, HumanMessage) and not is_blank(one)) or id(one) in own),
        len(past),
    )
    while 0 < at < len(past) and past[at].type in ("tool", "function"):  # with the call that it answers
        at -= 1
    said = [str(one.text) for one in past[:at] if isinstance(one, AIMessage) and not one.tool_calls]
    if gathered.begins > -inf:  # the thread begins earlier
        said = []
    return list(past[at:]), [f"<said_by_assistant>\n{text}\n</said_by_assistant>" for text in said if text.strip()]


def _marked(found: list[BaseMessage], originals: Sequence[BaseMessage], marks: Marks) -> list[BaseMessage]:
    """Mark the copies among the messages, so that whoever saves them saves what they stand for."""
    known, by_id = {id(message) for message in originals}, {one.id: one for one in originals if one.id}
    for at, message in enumerate(found):
        original = None if id(message) in known else by_id.get(message.id or "")
        if original is not None and is_storable(message):
            found[at] = marks.put(message, {}, content=original.content, name=original.name)
    return found


def _note(state: MemoryState, gathered: Gathered, found: Sequence[BaseMessage], asked: int | None) -> None:
    """Note what the model is shown, for its tools."""
    message = None if asked is None else found[asked]
    words = "" if message is None else str(message.text).strip()
    stored = {row.seq: row.id for row in (gathered.known.rows if gathered.known else ())}
    ids = [stored.get(gathered.seqs.get(one.id or "", -1), one.id) for one in found if one.id]
    shown = frozenset(id for id in ids if id and (id.isascii() or is_utf8(id)))
    state.shown_messages.put(gathered.thread_id, ShownMessages(shown, words))
    if gathered.working_memory is not None:
        state.shown_documents.note(gathered.thread_id, gathered.working_memory.key, gathered.working_memory.text)


def _blocks(state: MemoryState, gathered: Gathered, shown: Shown) -> tuple[list[str], list[str], list[str]]:
    """Return the blocks in front of the question, at the end of the system prompt, and in front of the conversation."""
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
            state.remembering,
            gathered.working_memory,
            read_only=shown.read_only,
            tools=shown.tools,
            name=shown.name,
            zone=gathered.zone,
        )
        blocks[state.remembering.placement].append(block)
    return blocks["question"], blocks["system"], blocks["first"]


@contextmanager
def collect_contexts() -> Iterator[list[MemoryContext]]:
    """Collect the contexts that models are shown inside the `with` block, in order, one for each call of a model.

    They are those of middleware, load nodes and `Memory.context`, also in the threads and tasks that LangGraph starts.
    Outside of such a block memory keeps none. `contexts[-1].usage` tells what the last one costs.
    """
    made: list[MemoryContext] = []
    token = _collecting.set((*_collecting.get(), made))
    try:
        yield made
    finally:
        _collecting.reset(token)
