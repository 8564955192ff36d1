"""What a model is shown in a turn: which messages, in which order, and the blocks of memory. No I/O."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem._redis.state import ShownMessages
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
)
from langchain_workingmem._text.sending import Marks, headed_groups, provider_valid, with_calls
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem.history.follow import Followed, Known
from langchain_workingmem.models import MemoryContext, RecallResult
from langchain_workingmem.options import DEFAULT_LIMIT
from langchain_workingmem.usage import Counting
from langchain_workingmem.working_memory.prompt import working_memory_block

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence
    from zoneinfo import ZoneInfo

    from langchain_core.messages import BaseMessage, ToolCall

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.history.follow import Kind
    from langchain_workingmem.models import WorkingMemoryState
    from langchain_workingmem.options import HistoryOptions

BLANK = "(empty message)"  # shown for a question without content, which providers refuse
_collecting: ContextVar[tuple[list[MemoryContext], ...]] = ContextVar("langchain_workingmem_contexts", default=())


@dataclass(slots=True)
class Gathered:
    """A turn: the caller's list, and what the store holds for it."""

    # what is asked
    thread_id: str
    user_id: str = ""
    kind: Kind = "list"
    zone: ZoneInfo | None = None  # None: UTC
    messages: Sequence[BaseMessage] = ()  # as they were before memory changed them
    left_out: frozenset[int] = frozenset()  # seqs of messages that a load node has taken out of the state
    is_private: bool = False  # nothing of other threads is shown
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
        return [one for one in messages if self.seqs.get(one.id or "", -1) not in self.covered]


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """To whom a context is shown."""

    read_only: bool = False
    for_model: bool = False  # it has to begin with the user, because Bedrock refuses an answer there, and Gemini a call
    tools: Sequence[str] | None = None  # names of the model's tools; None: those of the options
    name: str | None = None  # of the memory, where an agent has several


_A_PROGRAM = Audience()


def assemble(
    state: MemoryState,
    options: HistoryOptions,
    gathered: Gathered,
    messages: Sequence[BaseMessage],
    audience: Audience = _A_PROGRAM,
) -> MemoryContext:
    """Put a context together, and note what the model is shown. Memory goes into a copy of the user's message."""
    prompts = [message for message in messages if isinstance(message, SystemMessage)]
    past, present, omitted = choose_shown(gathered, options, messages)
    speech: list[str] = []
    if audience.for_model:
        past, speech = _begun_by_user(past, messages, gathered)
    marks = Marks(state.secret, gathered.thread_id, gathered.user_id)
    present = [marks.put(one, {"content": BLANK}, content=one.content) if is_blank(one) else one for one in present]
    conversation = provider_valid([*past, *present])
    question_at = next((at for at in reversed(range(len(conversation))) if is_users(conversation[at])), None)
    # its tools are told what the model has seen, by the ids under which messages are stored
    stored = {facts.seq: facts.id for facts in (gathered.known.facts if gathered.known else ())}
    ids = {stored.get(gathered.seqs.get(one.id or "", -1), one.id) for one in conversation}
    seen = frozenset(id for id in ids if id and (id.isascii() or is_utf8(id)))
    words = "" if question_at is None else str(conversation[question_at].text).strip()
    state.shown_messages.put(gathered.thread_id, ShownMessages(seen, words))
    if gathered.working_memory is not None:
        state.shown_documents.note(gathered.thread_id, gathered.working_memory.key, gathered.working_memory.text)
    # copies are marked, so that whoever saves them saves what they stand for
    originals = [*gathered.history, *messages, *present]
    unchanged, by_id = {id(message) for message in originals}, {one.id: one for one in originals if one.id}
    for at, message in enumerate(conversation):
        original = None if id(message) in unchanged else by_id.get(message.id or "")
        if original is not None and is_storable(message):
            conversation[at] = marks.put(message, {}, content=original.content, name=original.name)
    first, at_question, system = _blocks(state, gathered, audience)
    if question_at is None:
        system = [*first, *at_question, *speech, *system]
    else:
        if question_at == 0 or not first:
            at_question = [*first, *at_question]
        elif is_users(conversation[0]):
            conversation[0] = marks.with_memory(conversation[0], first)
        else:
            conversation.insert(0, marks.inserted(HumanMessage("\n\n".join(first))))
            question_at += 1
        if blocks := [*at_question, *speech]:
            conversation[question_at] = marks.with_memory(conversation[question_at], blocks)
    context = MemoryContext(
        messages=[*prompts, *conversation],
        system=system,
        recalled=gathered.recalled,
        working_memory=gathered.working_memory,
        omitted=omitted,
        observations=gathered.parts.get("observations"),
    )
    object.__setattr__(context, "counting", Counting(options.token_counter, present))
    for made in _collecting.get():
        made.append(context)
    return context


def choose_shown(
    gathered: Gathered, options: HistoryOptions, messages: Sequence[BaseMessage]
) -> tuple[list[BaseMessage], list[BaseMessage], int]:
    """Return what is shown of the past and of the present turn, and how many messages are left out."""
    given = [one for one in messages if not isinstance(one, SystemMessage) and one.id not in gathered.hidden_ids]
    present = turn_of(given)
    earlier = given[: len(given) - len(present)]
    begin = gathered.first_seq if gathered.kind == "state" else -inf  # what lies before it is stored
    recent = [message for message in earlier if gathered.seqs.get(message.id or "", inf) >= begin]
    too_old, stored = len(earlier) - len(recent), gathered.history
    if gathered.covered:
        recent, stored = gathered.uncovered(recent), gathered.uncovered(stored)
        stays = {id(question(present)), *map(id, gathered.uncovered(present))}
        present = [one for one in present if id(one) in stays]
    if gathered.limit is not None:
        options = replace(options, max_tokens=min(options.max_tokens or gathered.limit, gathered.limit))
    past = in_order(stored, gathered.seqs, recent)
    if options.roles is not None or options.exclude_tools is True or any(_excluded(past, options)):
        past = without_excluded(past, options, present, gathered.totals, {one.id for one in recent})
    if options.media != "all":
        end = media_begin([*past, *present], options.media)
        past = [*(named(one) if attachments(one) else one for one in past[:end]), *past[end:]]
    omitted = 0
    # the store has weighed it: nothing would be cut
    fits = not recent and not gathered.cut and gathered.tokens <= (options.max_tokens or 0)
    if not fits or options.token_counter != "approximate":
        past, omitted = fit(past, present, gathered.totals, options, gathered.cut)
    if options.max_tokens not in (None, DEFAULT_LIMIT):  # only a limit that somebody chose cuts the running turn
        present, more = _fit_present(present, options)
        omitted += more
    return past, present, too_old + omitted


def _begun_by_user(
    past: Sequence[BaseMessage], given: Sequence[BaseMessage], gathered: Gathered
) -> tuple[list[BaseMessage], list[str]]:
    """Return a history that begins with the user, and blocks of what the assistant said before the first word."""
    # a list of the caller's that begins otherwise stays as it is
    first = next((one for one in given if not isinstance(one, SystemMessage)), None)
    begins = (at for at, one in enumerate(past) if not is_blank(one) and (talk_kind(one) == "q" or one is first))
    at = next(begins, len(past))
    while 0 < at < len(past) and past[at].type in ("tool", "function"):  # with the call that it answers
        at -= 1
    answers = [str(one.text) for one in past[:at] if isinstance(one, AIMessage) and not one.tool_calls]
    if gathered.first_seq > -inf:  # the thread begins earlier
        answers = []
    return list(past[at:]), [f"<said_by_assistant>\n{text}\n</said_by_assistant>" for text in answers if text.strip()]


def _blocks(state: MemoryState, gathered: Gathered, audience: Audience) -> tuple[list[str], list[str], list[str]]:
    """Return the blocks in front of the conversation, in front of the question, and behind the system prompt."""
    blocks: dict[str, list[str]] = {"first": [], "question": [], "system": []}
    for part in state.parts:
        for placement, text in part.blocks(state, gathered, audience.name):
            blocks[placement].append(text)
    if recalled := recalled_block(gathered.recalled, gathered.thread_id, audience.name, gathered.zone):
        blocks[state.recalling.placement].append(recalled)
    if gathered.working_memory is not None:
        document = working_memory_block(
            state.remembering,
            gathered.working_memory,
            read_only=audience.read_only,
            tools=audience.tools,
            name=audience.name,
            zone=gathered.zone,
        )
        blocks[state.remembering.placement].append(document)
    return blocks["first"], blocks["question"], blocks["system"]


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


# ---------------------------------------------------------------------- the conversation


def is_users(message: BaseMessage) -> bool:
    """Tell whether a message is what the user said."""
    return talk_kind(message) == "q" and is_storable(message)


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
        has_some = has_some or bool(attachments(messages[at]))
        if has_some and is_users(messages[at]) and not (at and is_users(messages[at - 1])):
            left, has_some = left - 1, False
            if not left:
                return at
    return 0


def named(message: BaseMessage) -> BaseMessage:
    """Name the media of a message, in a copy."""
    content = [message.content] if isinstance(message.content, str) else message.content
    names = [{"type": "text", "text": name} if (name := attachment(one)) else one for one in content]
    return message.model_copy(update={"content": names})


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
    fresh, groups = {id(message) for message in present}, list[_Group]()
    for head, group in headed_groups([*past, *present]):
        if id(head) not in fresh:
            own = [message for message in group if id(message) not in fresh]
            is_open, is_talk = len(own) < len(group), bool(talk_kind(head)) and has_content(head)
            groups.append(_Group(own, 0 if is_open else count(group), is_talk or head.id in totals, is_open))
    talk = [at for at, one in enumerate(groups) if one.is_talk]
    begin = 0
    if talk and (cut or sum(groups[at].tokens for at in talk) > limit):
        begin = _begin_of(groups, talk, totals, limit)
    room = limit - sum(one.tokens for one in groups[begin:] if one.is_talk)
    kept: list[list[BaseMessage]] = []
    for at in reversed(range(len(groups))):
        one = groups[at]
        if not one.is_talk:
            room -= one.tokens
        if one.is_open or (at >= begin and (one.is_talk or room >= 0)):
            kept.append(one.messages)
    shown = [*chain(*reversed(kept))]
    return shown, cut + len(past) - len(shown)


def _begin_of(groups: Sequence[_Group], talk: Sequence[int], totals: Mapping[str, int], limit: int) -> int:
    """Find the first question from which on all fits, if possible where a third of the limit ends; else the last."""
    # So the beginning, which providers cache, stays until the limit is reached; then about two thirds are left.
    third = max(limit / 3, 1)
    tokens, fitting, last = sum(groups[at].tokens for at in talk), list[int](), talk[-1]
    before = totals.get(groups[talk[0]].messages[0].id or "", 0) // third
    for at in talk:
        head = groups[at].messages[0]
        if talk_kind(head) == "q":
            step = totals.get(head.id or "", 0) // third
            if tokens <= limit:
                if step > before:
                    return at
                fitting.append(at)
            before, last = step, at
        tokens -= groups[at].tokens
    return next(iter(fitting), last)


def _fit_present(present: Sequence[BaseMessage], options: HistoryOptions) -> tuple[list[BaseMessage], int]:
    """Leave out the oldest finished tool calls of the running turn, never the newest ones."""
    count = weight_of if options.token_counter == "approximate" else options.token_counter
    excess, left_out = count(present) - (options.max_tokens or 0), set[int]()
    calls = [group for _, group in headed_groups(present) if len(group) > 1]
    for group in calls[:-1]:
        if excess > 0:
            left_out.update(map(id, group))
            excess -= count(group)
    return [one for one in present if id(one) not in left_out], len(left_out)


def without_excluded(
    messages: Sequence[BaseMessage],
    options: HistoryOptions,
    present: Sequence[BaseMessage] = (),
    answers: Container[str | None] = (),
    given: Container[str | None] = (),
) -> list[BaseMessage]:
    """Leave out roles and tools as the options say, whole groups. Roles choose among stored messages, not the `given`.

    A stored call whose results are in the `present` turn stays. A structured answer whose tool is left out is shown as
    text: `answers` have its id.
    """
    worded = [
        with_calls(one, content=structured_text(one)) if one.id in answers and any(_excluded([one], options)) else one
        for one in messages
    ]
    fresh, kept, open_calls = {id(message) for message in present}, list["BaseMessage"](), list["BaseMessage"]()
    for head, group in headed_groups([*worded, *present]):
        if id(head) in fresh:
            continue
        call, *results = group
        stored = [message for message in group if id(message) not in fresh]
        excluded = [one["id"] for one in _excluded([call], options)]
        if len(stored) < len(group):
            open_calls += stored
        elif options.roles is not None and head.id not in given and any(one.type not in options.roles for one in group):
            continue
        elif not results or not (excluded or options.exclude_tools is True):
            kept += group
        else:  # the call with the results that stay, or, of its content, the text
            calls = [one for one in getattr(call, "tool_calls", ()) if one["id"] not in excluded]
            lean, ids = with_calls(call, calls), {one["id"] for one in calls}
            left = [one for one in results if isinstance(one, ToolMessage) and one.tool_call_id in ids]
            kept += [lean, *left] if calls or has_content(lean) else []
    return [*kept, *open_calls]


def _excluded(messages: Sequence[BaseMessage], options: HistoryOptions) -> Iterator[ToolCall]:
    """Yield the tool calls that later turns leave out."""
    excluded = options.exclude_tools
    names = () if isinstance(excluded, bool | str) else excluded
    for call in chain.from_iterable(one.tool_calls for one in messages if isinstance(one, AIMessage)):
        if excluded is True or (excluded is not False and (is_memory_tool(call["name"]) or call["name"] in names)):
            yield call
