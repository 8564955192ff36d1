"""What a model is shown in a turn: which messages, in which order, and the blocks of memory. No I/O."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from html import escape
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem._redis.state import ShownDocument, ShownMessages
from langchain_workingmem._text.messages import (
    attachment,
    attachments,
    has_content,
    is_blank,
    is_memory_tool,
    recalled_block,
    structured_text,
    talk_kind,
    weight_of,
    words_in,
)
from langchain_workingmem._text.sending import Marks, headed_groups, provider_valid, with_calls
from langchain_workingmem._text.unicode import is_utf8, visible
from langchain_workingmem.history.follow import Followed, Known
from langchain_workingmem.models import MemoryContext, RecallResult
from langchain_workingmem.options import DEFAULT_LIMIT
from langchain_workingmem.usage import Counting
from langchain_workingmem.working_memory.prompt import working_memory_block

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence
    from zoneinfo import ZoneInfo

    from langchain_core.messages import BaseMessage, ToolCall

    from langchain_workingmem._redis.keys import Facts
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.history.follow import Kind
    from langchain_workingmem.models import WorkingMemoryState
    from langchain_workingmem.options import HistoryOptions

BLANK = "(empty message)"  # shown for a question without content, which providers refuse
_collecting: ContextVar[tuple[list[MemoryContext], ...]] = ContextVar("langchain_workingmem_contexts", default=())


@dataclass(slots=True)
class Turn:
    """A turn: the caller's list, and what the store holds for it."""

    # what is asked
    thread_id: str
    user_id: str = ""
    kind: Kind = "list"
    zone: ZoneInfo | None = None  # None: UTC
    messages: Sequence[BaseMessage] = ()  # as they were before memory changed them
    left_out: frozenset[int] = frozenset()  # seqs of messages that a load node has taken out of the state
    is_private: bool = False  # `recall=False`: no recall, and no log of other threads
    question: BaseMessage | None = None  # the user's last message
    # what `read.lua` was told, and what it has shown of the history, with the revision of the rows that cover the rest
    head: dict[str, Any] = field(default_factory=dict)
    shown: list[Facts] = field(default_factory=list)
    rows_revision: str | None = None
    # what the list is
    known: Known | None = None  # what the thread knows of it
    followed: Followed = field(default_factory=Followed)
    hidden_ids: frozenset[str] = frozenset()  # in it, no model is shown them: sent again, refused or deleted
    abandoned: list[list[int]] = field(default_factory=list)  # ranges of seqs that it has left behind
    question_seq: float = inf  # where the question is stored: later messages are not its history
    # the history
    history: list[BaseMessage] = field(default_factory=list)  # stored messages that the list does not have
    first_seq: float = -inf  # it limits what is shown of a state, too; -inf: the thread begins there
    tokens: int = 0
    size: int = 0  # in bytes
    cut: int = 0  # messages that the limit of tokens left in the store
    # of both, by id
    seqs: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)  # tokens of the thread up to each question and answer
    # what else is shown
    recalled: RecallResult = field(default_factory=RecallResult)
    working_memory: WorkingMemoryState | None = None
    parts: dict[str, Any] = field(default_factory=dict)  # what parts of the turn have found, by the name of the part
    covered: Container[int] = ()  # seqs of messages that are not shown, because something in `parts` stands for them
    limit: int | None = None  # tokens of the conversation, where a part bounds it

    def uncovered(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return the messages for which nothing else stands."""
        return [message for message in messages if self.seqs.get(message.id or "", -1) not in self.covered]


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """To whom a context is shown."""

    read_only: bool = False
    for_model: bool = False  # it has to begin with the user, because Bedrock refuses an answer there, and Gemini a call
    tools: Sequence[str] | None = None  # names of the model's tools; None: those of the options
    name: str | None = None  # of the memory, where an agent has several


_FOR_PROGRAM = Audience()


def assemble(
    state: MemoryState,
    options: HistoryOptions,
    turn: Turn,
    messages: Sequence[BaseMessage],
    audience: Audience = _FOR_PROGRAM,
) -> MemoryContext:
    """Put a context together, and note what the model is shown. Memory goes into a copy of the user's message."""
    prompts = [message for message in messages if isinstance(message, SystemMessage)]
    past, present, omitted = choose_shown(turn, options, messages)
    speech: list[str] = []
    if audience.for_model:
        past, speech = _begun_by_user(past, turn)
    marks = Marks(state.secret, turn.thread_id, turn.user_id)
    present = [
        marks.put(message, {"content": BLANK}, content=message.content) if is_blank(message) else message
        for message in present
    ]
    conversation = provider_valid([*past, *present])
    question_at = asked_at(conversation, turn.question)
    # its tools are told what the model has seen, by the ids under which messages are stored
    stored = {facts.seq: facts.id for facts in (turn.known.facts if turn.known else ())}
    ids = {stored.get(turn.seqs.get(message.id or "", -1), message.id) for message in conversation}
    seen_ids = frozenset(id for id in ids if id and (id.isascii() or is_utf8(id)))
    text = "" if question_at is None else words_in(conversation[question_at]).strip()
    state.shown_messages.put(turn.thread_id, ShownMessages(seen_ids, text))
    if turn.working_memory is not None:
        state.shown_documents.put((turn.thread_id, turn.working_memory.key), ShownDocument(turn.working_memory.text))
    # copies are marked, so that whoever saves them saves what they stand for
    originals = [*turn.history, *messages, *present]
    unchanged, by_id = {*map(id, originals)}, {message.id: message for message in originals if message.id}
    for index, message in enumerate(conversation):
        original = None if id(message) in unchanged else by_id.get(message.id or "")
        if original is not None and is_storable(message):
            conversation[index] = marks.put(message, {}, content=original.content, name=original.name)
    first_blocks, question_blocks, system_blocks = _blocks(state, turn, audience)
    if question_at is None:
        system_blocks = [*first_blocks, *question_blocks, *speech, *system_blocks]
    else:
        if question_at == 0 or not first_blocks:
            question_blocks = [*first_blocks, *question_blocks]
        elif is_users(conversation[0]):
            conversation[0] = marks.with_memory(conversation[0], first_blocks)
        else:
            conversation.insert(0, marks.inserted(HumanMessage("\n\n".join(first_blocks))))
            question_at += 1
        if blocks := [*question_blocks, *speech]:
            conversation[question_at] = marks.with_memory(conversation[question_at], blocks)
    context = MemoryContext(
        messages=[*prompts, *conversation],
        system=system_blocks,
        recalled=turn.recalled,
        working_memory=turn.working_memory,
        omitted=omitted,
        observations=turn.parts.get("observations"),
    )
    object.__setattr__(context, "counting", Counting(options.token_counter, present))
    for contexts in _collecting.get():
        contexts.append(context)
    return context


def choose_shown(
    turn: Turn, options: HistoryOptions, messages: Sequence[BaseMessage]
) -> tuple[list[BaseMessage], list[BaseMessage], int]:
    """Return what is shown of the past and of the present turn, and how many messages are left out."""
    hidden = turn.hidden_ids
    candidates = [message for message in messages if not (isinstance(message, SystemMessage) or message.id in hidden)]
    present = turn_of(candidates, turn.question)
    earlier = candidates[: len(candidates) - len(present)]
    first_seq = turn.first_seq if turn.kind == "state" else -inf  # what lies before it is stored
    recent = [message for message in earlier if turn.seqs.get(message.id or "", inf) >= first_seq]
    too_old, stored = len(earlier) - len(recent), turn.history
    if turn.covered:
        recent, stored = turn.uncovered(recent), turn.uncovered(stored)
        asked, uncovered = asked_at(present, turn.question), {*map(id, turn.uncovered(present))}
        present = [message for index, message in enumerate(present) if index == asked or id(message) in uncovered]
    if turn.limit is not None:
        options = replace(options, max_tokens=min(options.max_tokens or turn.limit, turn.limit))
    past = in_order(stored, turn.seqs, recent) if stored and recent else [*stored, *recent]
    if options.roles is not None or options.exclude_tools is True or any(_excluded(past, options)):
        past = without_excluded(past, options, present, turn.totals, {message.id for message in recent})
    if options.media != "all":
        end = media_begin([*past, *present], options.media)
        past = [*(media_named(message) if attachments(message) else message for message in past[:end]), *past[end:]]
    omitted = 0
    # the store has weighed it: nothing would be cut
    fits = not recent and not turn.cut and turn.tokens <= (options.max_tokens or 0)
    if not fits or options.token_counter != "approximate":
        past, omitted = fit(past, present, turn.totals, options, turn.cut)
    if options.max_tokens not in (None, DEFAULT_LIMIT):  # only a limit that somebody chose cuts the running turn
        present, more_omitted = _fit_present(present, options)
        omitted += more_omitted
    return past, present, too_old + omitted


def _begun_by_user(past: Sequence[BaseMessage], turn: Turn) -> tuple[list[BaseMessage], list[str]]:
    """Return a history that begins with the user, and blocks of what the assistant said before the first word."""
    begins = (not is_blank(message) and talk_kind(message) == "q" for message in past)
    start = next((index for index, is_begin in enumerate(begins) if is_begin), len(past))
    texts = [words_in(message) for message in past[:start] if isinstance(message, AIMessage) and not message.tool_calls]
    # a thread may begin earlier
    shown = [escape(visible(text), quote=False) for text in texts if text.strip() and turn.first_seq == -inf]
    return list(past[start:]), [f"<said_by_assistant>\n{text}\n</said_by_assistant>" for text in shown]


def _blocks(state: MemoryState, turn: Turn, audience: Audience) -> tuple[list[str], list[str], list[str]]:
    """Return the blocks in front of the conversation, in front of the question, and behind the system prompt."""
    blocks: dict[str, list[str]] = {"first": [], "question": [], "system": []}
    for part in state.parts:
        for placement, text in part.blocks(state, turn, audience.name):
            blocks[placement].append(text)
    if recalled := recalled_block(turn.recalled, turn.thread_id, audience.name, turn.zone):
        blocks[state.recalling.placement].append(recalled)
    if turn.working_memory is not None:
        document = working_memory_block(
            state.remembering,
            turn.working_memory,
            read_only=audience.read_only,
            tools=audience.tools,
            name=audience.name,
            zone=turn.zone,
        )
        blocks[state.remembering.placement].append(document)
    return blocks["first"], blocks["question"], blocks["system"]


@contextmanager
def collect_contexts() -> Iterator[list[MemoryContext]]:
    """Collect the contexts that models are shown inside the `with` block, in order, one for each call of a model.

    They are those of middleware, load nodes and `Memory.context`, also in the threads and tasks that LangGraph starts.
    Outside of such a block memory keeps none. `contexts[-1].usage` tells what the last one costs.
    """
    contexts: list[MemoryContext] = []
    token = _collecting.set((*_collecting.get(), contexts))
    try:
        yield contexts
    finally:
        _collecting.reset(token)


def is_users(message: BaseMessage) -> bool:
    """Tell whether a message is what the user said."""
    return talk_kind(message) == "q" and is_storable(message)


def question(messages: Sequence[BaseMessage]) -> BaseMessage | None:
    """Return the last message of the user: the turn answers it, and recall searches for it."""
    return next((message for message in reversed(messages) if is_users(message)), None)


def asked_at(messages: Sequence[BaseMessage], asked: BaseMessage | None) -> int | None:
    """Return the index of what a turn answers: what was `asked` (tools may add words of a user), or the user's last."""
    backwards = range(len(messages) - 1, -1, -1)
    same = (index for index in backwards if asked is not None and messages[index].id == asked.id)
    return next(chain(same, (index for index in backwards if is_users(messages[index]))), None)


def turn_of(messages: Sequence[BaseMessage], asked: BaseMessage | None = None) -> list[BaseMessage]:
    """Return the present turn: what the user has asked and all after it; without a question, all messages."""
    start = asked_at(messages, asked) or 0
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
    remaining = 1 if shown == "last" else shown
    if remaining == "all":
        return 0
    has_media = False
    for index in range(len(messages) - 1, -1, -1):
        has_media = has_media or bool(attachments(messages[index]))
        if has_media and is_users(messages[index]) and not (index and is_users(messages[index - 1])):
            remaining, has_media = remaining - 1, False
            if not remaining:
                return index
    return 0


def media_named(message: BaseMessage) -> BaseMessage:
    """Name the media of a message, in a copy."""
    content = [message.content] if isinstance(message.content, str) else message.content
    parts = [{"type": "text", "text": name} if (name := attachment(part)) else part for part in content]
    return message.model_copy(update={"content": parts})


class _Group(NamedTuple):
    """What stays together: a question, an answer, or a call with its results."""

    messages: list[BaseMessage]  # those of the history
    tokens: int
    is_talk: bool  # a question or an answer, no tool traffic
    is_open: bool  # a call with results in the present turn: it stays, and takes no room


def fit(
    past: Sequence[BaseMessage],
    present: Sequence[BaseMessage],
    totals: Mapping[str, int],
    options: HistoryOptions,
    cut: int = 0,
) -> tuple[list[BaseMessage], int]:
    """Cut a history to `max_tokens`, tool traffic first, then old turns; count what is left out, also by the store."""
    if options.max_tokens is None:
        return list(past), 0
    limit = options.max_tokens
    count = weight_of if options.token_counter == "approximate" else options.token_counter
    present_ids, groups = {id(message) for message in present}, list[_Group]()
    for head, members in headed_groups([*past, *present]):
        if id(head) not in present_ids:
            stored = [message for message in members if id(message) not in present_ids]
            is_open, is_talk = len(stored) < len(members), bool(talk_kind(head)) and has_content(head)
            groups.append(_Group(stored, 0 if is_open else count(members), is_talk or head.id in totals, is_open))
    talk = [index for index, group in enumerate(groups) if group.is_talk]
    start = 0
    if talk and (cut or sum(groups[index].tokens for index in talk) > limit):
        start = _fitting_start(groups, talk, totals, limit)
    room = limit - sum(group.tokens for group in groups[start:] if group.is_talk)
    kept: list[list[BaseMessage]] = []
    for index in reversed(range(len(groups))):
        group = groups[index]
        if not group.is_talk:
            room -= group.tokens
        if group.is_open or (index >= start and (group.is_talk or room >= 0)):
            kept.append(group.messages)
    shown = [*chain(*reversed(kept))]
    return shown, cut + len(past) - len(shown)


def _fitting_start(groups: Sequence[_Group], talk: Sequence[int], totals: Mapping[str, int], limit: int) -> int:
    """Find the first question from which on all fits, if possible where a third of the limit ends; else the last."""
    # So the beginning, which providers cache, stays until the limit is reached; then about two thirds are left.
    third = max(limit / 3, 1)
    tokens, fitting, last_question = sum(groups[index].tokens for index in talk), list[int](), talk[-1]
    last_step = totals.get(groups[talk[0]].messages[0].id or "", 0) // third
    for index in talk:
        head = groups[index].messages[0]
        if talk_kind(head) == "q":
            step = totals.get(head.id or "", 0) // third
            if tokens <= limit:
                if step > last_step:
                    return index
                fitting.append(index)
            last_step, last_question = step, index
        tokens -= groups[index].tokens
    return next(iter(fitting), last_question)


def _fit_present(present: Sequence[BaseMessage], options: HistoryOptions) -> tuple[list[BaseMessage], int]:
    """Leave out the oldest finished tool calls of the running turn, never the newest ones."""
    count = weight_of if options.token_counter == "approximate" else options.token_counter
    excess, left_out = count(present) - (options.max_tokens or 0), set[int]()
    calls = [group for _, group in headed_groups(present) if len(group) > 1]
    for group in calls[:-1]:
        if excess > 0:
            left_out.update(map(id, group))
            excess -= count(group)
    return [message for message in present if id(message) not in left_out], len(left_out)


def without_excluded(
    messages: Sequence[BaseMessage],
    options: HistoryOptions,
    present: Sequence[BaseMessage] = (),
    talk_ids: Container[str | None] = (),
    listed_ids: Container[str | None] = (),
) -> list[BaseMessage]:
    """Leave out roles and tools as the options say, whole groups. Roles choose among stored messages, not `listed_ids`.

    A stored call whose results are in the `present` turn stays. A call that is talk, as `talk_ids` say, is a structured
    answer: where its tool is left out, it is shown as text.
    """
    worded = [*messages]
    for index, message in enumerate(messages):
        if message.id in talk_ids and any(_excluded([message], options)):
            worded[index] = with_calls(message, content=structured_text(message))
    present_ids, kept, open_calls = {id(message) for message in present}, list["BaseMessage"](), list["BaseMessage"]()
    for head, group in headed_groups([*worded, *present]):
        if id(head) in present_ids:
            continue
        call, *results = group
        stored = [message for message in group if id(message) not in present_ids]
        excluded = [tool_call["id"] for tool_call in _excluded([call], options)]
        has_other_roles = options.roles is not None and any(message.type not in options.roles for message in group)
        if len(stored) < len(group):
            open_calls += stored
        elif has_other_roles and head.id not in listed_ids:
            continue
        elif not results or not (excluded or options.exclude_tools is True):
            kept += group
        else:  # the call with the results that stay, or, of its content, the text
            calls = [tool_call for tool_call in getattr(call, "tool_calls", ()) if tool_call["id"] not in excluded]
            shortened, ids = with_calls(call, calls), {tool_call["id"] for tool_call in calls}
            results = [result for result in results if isinstance(result, ToolMessage) and result.tool_call_id in ids]
            kept += [shortened, *results] if calls or has_content(shortened) else []
    return [*kept, *open_calls]


def _excluded(messages: Sequence[BaseMessage], options: HistoryOptions) -> Iterator[ToolCall]:
    """Yield the tool calls that later turns leave out."""
    excluded = options.exclude_tools
    names = () if isinstance(excluded, bool | str) else excluded
    for call in chain.from_iterable(message.tool_calls for message in messages if isinstance(message, AIMessage)):
        if excluded is True or (excluded is not False and (is_memory_tool(call["name"]) or call["name"] in names)):
            yield call
