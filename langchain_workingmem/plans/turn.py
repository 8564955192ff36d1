"""One turn: what a model is shown before it answers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from langchain_workingmem.errors import RedisReplyError
from langchain_workingmem.models import MemoryContext, RecallResult
from langchain_workingmem.options import HistoryOptions
from langchain_workingmem.plans import scripts, working_memory
from langchain_workingmem.plans.access import owner_tag, refusal, run_script
from langchain_workingmem.plans.codec import is_ours_to_keep
from langchain_workingmem.plans.effects import traced
from langchain_workingmem.plans.keys import check_id, encode
from langchain_workingmem.plans.recall import candidates, fetched
from langchain_workingmem.plans.rows import Wanted
from langchain_workingmem.plans.windows import history_window, provenance, valid
from langchain_workingmem.text.rendering import recalled_block
from langchain_workingmem.text.unicode import is_utf8

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.models import StoredMessage, WorkingMemoryState
    from langchain_workingmem.plans.effects import Command, Plan
    from langchain_workingmem.plans.recall import Query
    from langchain_workingmem.plans.scoring import Ranked
    from langchain_workingmem.plans.space import Space


def question(messages: Sequence[BaseMessage]) -> BaseMessage | None:
    """Return the last message of the user: what the turn answers, and what recall looks for."""
    return next((message for message in reversed(messages) if _is_users(message)), None)


def turn_of(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages of the present turn: from what the user said last on. Without a user's message, all."""
    end = next((at for at in range(len(messages) - 1, -1, -1) if _is_users(messages[at])), None)
    if end is None:
        return list(messages)
    start = end
    while start and _is_users(messages[start - 1]):
        start -= 1
    return list(messages[start:])


def _is_users(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) and is_ours_to_keep(message)


def is_summarised(messages: Sequence[BaseMessage]) -> bool:
    """Tell whether a summary stands for a part of these messages."""
    return any(message.additional_kwargs.get("lc_source") == "summarization" for message in messages)


def unsaved(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return what a turn has to save: itself, and the one before it, if that was left at an interrupt.

    Such a turn ends with calls that nobody has answered, and nothing of it may have been saved.
    """
    turn = turn_of(messages)
    before = messages[: len(messages) - len(turn)]
    last = before[-1] if before else None
    return [*unsaved(before), *turn] if isinstance(last, AIMessage) and last.tool_calls else turn


@dataclass(frozen=True, slots=True)
class Copies:
    """What the caller sent along without our ids, as clients do that keep the conversation themselves."""

    first: float = inf  # the sequence number from which on the caller's version stands for the thread
    said: frozenset[tuple[str, str]] = frozenset()

    def covers(self, row: StoredMessage) -> bool:
        """Tell whether a stored message of the thread stands among what was sent."""
        return row.seq >= self.first or _words(row.message) in self.said


def copies(rows: Sequence[StoredMessage], messages: Sequence[BaseMessage]) -> Copies:
    """Find whether the messages in front of the turn are the end of the thread, whose newest messages `rows` are.

    They are when both say the same, word for word from the end on, until one of them is used up; tool traffic, which
    clients do not send, counts for nothing.
    """
    known = {row.message.id for row in rows}
    before = [message for message in messages[: len(messages) - len(turn_of(messages))] if _is_said(message)]
    if all(message.id in known for message in before):
        return Copies()
    stored = [row for row in rows if _is_said(row.message)]
    length = min(len(before), len(stored))
    if not length or [_words(m) for m in before[-length:]] != [_words(row.message) for row in stored[-length:]]:
        return Copies()
    return Copies(stored[-length].seq, frozenset(_words(message) for message in before if message.id not in known))


def _is_said(message: BaseMessage) -> bool:
    return (
        isinstance(message, HumanMessage | AIMessage) and is_ours_to_keep(message) and bool(str(message.text).strip())
    )


def _words(message: BaseMessage) -> tuple[str, str]:
    return message.type, str(message.text)


@dataclass(frozen=True, slots=True)
class Gathered:
    """What the store knows for a turn."""

    thread_id: str
    stored: list[StoredMessage] = field(default_factory=list)  # what the history shows
    recalled: RecallResult = field(default_factory=RecallResult)
    places: Mapping[str, int] = field(default_factory=dict)  # of what was read and of what was given, by id
    working_memory: WorkingMemoryState | None = None


def gather(
    space: Space,
    new: Sequence[BaseMessage],
    thread_id: str,
    resource_id: str,
    history: HistoryOptions,
    query: Query | None,
) -> Plan[Gathered]:
    """Read history and working memory and search in one round trip, fetch the windows of the hits in another."""
    keys = space.keys.of(check_id(thread_id, "thread_id"))
    limit = history.last_messages
    given = [message.id for message in new if message.id and is_utf8(message.id)]  # others cannot be stored
    asked = question(new)
    wanted = Wanted(limit=limit, newest=limit is not None, asked=asked.id if asked and asked.id in given else None)
    place = None
    if space.working_memory is not None:
        place = yield from working_memory.find(space, thread_id, resource_id)
    calls = [
        scripts.READ.call(keys.all, owner_tag(resource_id), *wanted.arguments()),
        *([("ZMSCORE", keys.order, *given)] if given else ()),
        *(working_memory.reading(place) if place else ()),
    ]

    def read(replies: list[Any]) -> tuple[Gathered, Copies]:
        rows = wanted.read(replies[0], thread_id)
        sent = copies(rows, new)
        seqs = replies[1] if given else ()
        places = {row.message.id or "": row.seq for row in rows}
        places |= {id: int(float(seq)) for id, seq in zip(given, seqs, strict=True) if seq is not None}
        state = working_memory.state_of(space, place, replies[1 + bool(given) :]) if place else None
        return Gathered(thread_id, _shown(rows, new, history, sent), RecallResult(), places, state), sent

    if query is None or not query.text.strip():
        return read((yield from run_script(thread_id, resource_id, *calls)))[0]
    if limit is None:  # all of this thread is shown anyway
        query = query.without([thread_id])
    looking = _recall(space, query, thread_id, resource_id, calls, read, new, spare=(limit or 0) + len(given))
    return (
        yield from traced(
            "retriever", "semantic_recall", query.text, looking, lambda gathered: gathered.recalled.to_documents()
        )
    )


def _recall(
    space: Space,
    query: Query,
    thread_id: str,
    resource_id: str,
    calls: Sequence[Command],
    read: Callable[[list[Any]], tuple[Gathered, Copies]],
    new: Sequence[BaseMessage],
    *,
    spare: int,
) -> Plan[Gathered]:
    """Search in the round trip that reads the history, and leave out what the history shows and what is given anyway.

    Where in the thread the given messages stand is known by then: to let every candidate bring its id instead takes
    Search a quarter longer.
    """
    try:
        ranked, replies = yield from candidates(space, query, calls, spare=spare)
    except RedisReplyError as error:
        raise refusal(error, thread_id, resource_id) from None
    gathered, sent = read(replies)
    here, places = encode(thread_id).encode(), gathered.places
    present = {row.seq for row in gathered.stored} | {places[id] for one in new if (id := one.id or "") in places}
    end = min(sent.first, _asked(new, places))

    def is_fresh(one: Ranked) -> bool:
        return one.thread != here or (one.seq not in present and one.seq < end)

    recalled = yield from fetched(space, query, ranked, is_fresh, spare=spare)
    if sent.said:
        kept = [row for row in recalled.rows if row.thread_id != thread_id or not sent.covers(row)]
        recalled = replace(recalled, rows=kept)
    return replace(gathered, recalled=recalled)


def _shown(
    read: Sequence[StoredMessage], new: Sequence[BaseMessage], options: HistoryOptions, sent: Copies
) -> list[StoredMessage]:
    given = {message.id for message in new}
    rows = {row.message.id: row for row in read if row.message.id not in given and row.seq < sent.first}
    if not (options.exclude_tools or options.roles or options.max_tokens):
        return list(rows.values())  # what no provider accepts goes when all is put together
    kept = history_window([row.message for row in rows.values()], options, new)
    return [row if (row := rows[message.id]).message is message else replace(row, message=message) for message in kept]


def assemble(
    space: Space,
    gathered: Gathered,
    new: Sequence[BaseMessage],
    history: HistoryOptions,
    *,
    read_only: bool,
    for_model: bool = False,
) -> MemoryContext:
    """Put a context together; pure.

    Order: system messages of `new`, what is recalled from this thread, its history, the rest of `new`. A stored
    message that is also in `new` stands where `new` has it. What is sent to a model as it is begins with the user, because
    Bedrock refuses to begin with an answer, and Gemini with a call.
    """
    thread_id, recalled, state = gathered.thread_id, gathered.recalled, gathered.working_memory
    given = {message.id for message in new if message.id}
    stored = [row for row in gathered.stored if row.message.id not in given]
    present = given | {row.message.id for row in stored}
    similarity = {hit.message.id: hit.similarity for hit in recalled.hits if hit.thread_id == thread_id}
    here, elsewhere = [], []
    for row in recalled.rows:
        if row.thread_id != thread_id:
            elsewhere.append(row)
        elif row.message.id not in present:
            data = {"thread_id": thread_id, "similarity": similarity.get(row.message.id)}
            here.append(replace(row, message=provenance(row.message, data)))
    rows = sorted([*here, *stored], key=lambda row: row.seq)
    past = [row.message for row in rows]
    if here and history.exclude_tools:  # what is recalled brings no tools back that the history leaves out
        past = history_window(past, HistoryOptions(exclude_tools=history.exclude_tools), new)
    seqs = {row.message.id or "": row.seq for row in rows}
    prompts = [message for message in new if isinstance(message, SystemMessage)]
    rest = [message for message in new if not isinstance(message, SystemMessage)]
    block = recalled_block(replace(recalled, rows=elsewhere), thread_id)
    system = [block] if block else []
    if state is not None:
        system.append(working_memory.block(space, state, read_only=read_only))
    own = {id(message) for message in new}

    def is_earlier_answer(group: Sequence[BaseMessage]) -> bool:
        return for_model and not any(
            isinstance(one, HumanMessage) or one.id in given or id(one) in own for one in group
        )

    shown = valid(_in_order(past, {**seqs, **gathered.places}, rest), is_earlier_answer)
    return MemoryContext(
        messages=[*prompts, *shown],
        system=system,
        recalled=recalled,
        working_memory=state,
    )


def _asked(messages: Sequence[BaseMessage], places: Mapping[str, int]) -> float:
    """Return where in the thread the question stands that is to be answered, infinity while it is not stored."""
    asked = question(messages)
    return places.get(asked.id or "", inf) if asked else inf


def _in_order(past: list[BaseMessage], places: Mapping[str, int], rest: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Put stored messages in front of the given one that follows them in the thread, else in front of the turn.

    A checkpointed state holds its own turns; what another writer added to the thread between them belongs between them. What
    stands behind the question is left out: an answer that is asked for again, or a turn that failed half-way.
    """
    turn_starts = len(rest) - len(turn_of(rest))
    asked = _asked(rest, places)
    merged: list[BaseMessage] = []
    waiting = deque(message for message in past if places[message.id or ""] < asked)
    for at, message in enumerate(rest):
        place = places.get(message.id or "")
        while waiting and (at == turn_starts or (place is not None and places[waiting[0].id or ""] < place)):
            merged.append(waiting.popleft())
        merged.append(message)
    return [*merged, *waiting]
