"""What the store holds for a turn, and how the caller's list of messages differs from the thread."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.messages import SystemMessage

from langchain_workingmem._engine.effects import Later, compute
from langchain_workingmem._engine.tracing import traced
from langchain_workingmem._redis.access import Sweeping, owner_tag, run_script, script_error, sweep
from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem._redis.indexes import NO_VECTORS
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.copies import is_from_memory, without_memory
from langchain_workingmem._text.said import structured_answers, words_of
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem.errors import RedisReplyError, ThreadNotFoundError
from langchain_workingmem.history import Branch, fit, history_slice, media_begin, read_rows, with_media, with_names
from langchain_workingmem.models import RecallResult
from langchain_workingmem.recall import among_threads, fetch_hits, find_candidates, reindex_messages
from langchain_workingmem.turn.messages import in_order, turn_of
from langchain_workingmem.working_memory import find_scope_key, read_commands, read_state

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.effects import Argument, Command, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.history import Kind
    from langchain_workingmem.models import WorkingMemoryState
    from langchain_workingmem.options import HistoryOptions, OnError
    from langchain_workingmem.recall import Query

_log = logging.getLogger("langchain_workingmem")

TURN = Script("turn/turn", "header", "turn/usual", "history/branch")
CHECKPOINTED = {"state", "substate"}  # kinds of lists of which the options limit what is shown
MOST_SPARE = 1000  # more candidates of recall than are wanted, because the history may show some of them


class Moment(NamedTuple):
    """When a question is asked, and where."""

    now: datetime | None = None  # None: it does not matter
    zone: ZoneInfo | None = None  # None: UTC


_ANY_TIME = Moment()


@dataclass(slots=True)
class Gathered:
    """What the store holds for a turn; `gather` fills it in."""

    thread_id: str
    user_id: str = ""
    stored: list[BaseMessage] = field(default_factory=list)  # the history, without messages of the caller's list
    recalled: RecallResult = field(default_factory=RecallResult)
    # by id, of the history and of the caller's list, whose messages also have their stored ids here
    seqs: Mapping[str, int] = field(default_factory=dict)
    uptos: Mapping[str, int] = field(default_factory=dict)  # tokens of the thread up to each question and answer, by id
    has_media: bool = (
        False  # messages of the history refer to media, until `_with_media` has read what is shown of them
    )
    cut: int = 0  # messages that the limit of tokens left in the store
    is_late: bool = False  # vectors may expire before the thread: a writer has died
    is_cut: bool = False  # it has left out messages, of the store or of the caller's list
    branch: Branch = field(default_factory=Branch)
    left_seqs: frozenset[int] = frozenset()  # of messages that the caller's list has left behind
    begins: float = -inf  # sequence number where the history begins: it limits what is shown of a state, too
    end: float = inf  # sequence number of the question, where it is stored: later messages are not its history
    working_memory: WorkingMemoryState | None = None
    moment: Moment = _ANY_TIME  # of the question

    def output(self) -> dict[str, Any]:
        """Return the output of the run that callbacks and LangSmith see."""
        return {
            "history": self.stored,
            "recalled": self.recalled.messages,
            "working_memory": self.working_memory.text if self.working_memory else None,
        }

    def is_too_old(self, message: BaseMessage) -> bool:
        """Tell whether a message of a state is stored, and lies before the history."""
        return self.branch.kind in CHECKPOINTED and self.seqs.get(message.id or "", inf) < self.begins


def hidden_positions(gathered: Gathered, messages: Sequence[BaseMessage], shown: Sequence[BaseMessage]) -> list[int]:
    """Return the positions of those stored messages of the caller's list that the turn does not show."""
    ids = {message.id for message in shown if not is_from_memory(message)}  # not a copy that shows less
    return [seq for one in messages if one.id not in ids and (seq := gathered.seqs.get(one.id or "")) is not None]


def divided(
    gathered: Gathered, new: Sequence[BaseMessage]
) -> tuple[list[BaseMessage], list[BaseMessage], list[BaseMessage]]:
    """Return messages of the store, of earlier turns in the caller's list, and of the present turn."""
    hidden = gathered.branch.hidden
    rest = [one for one in new if not isinstance(one, SystemMessage) and one.id not in hidden]
    given = {message.id for message in rest if message.id}
    present = turn_of(rest)
    earlier = rest[: len(rest) - len(present)]
    return [message for message in gathered.stored if message.id not in given], earlier, present


def gather(
    state: MemoryState,
    new: Sequence[BaseMessage],
    thread_id: str,
    user_id: str,
    history: HistoryOptions,
    query: Query | None,
    kind: Kind,
    on_error: OnError,
    removed: str = "",  # noqa: ARG001
    moment: Moment = _ANY_TIME,
) -> Plan[Gathered]:
    """Read history and working memory and search in one round trip, fetch the windows of the hits in another.

    `new` is the caller's list, of which each message has an id, and `removed` are the positions of those that memory has taken
    out of it. With on_error="log" a turn goes without recall when the embedding model fails.
    """
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    entries = [without_memory(message) for message in new if is_storable(message)]
    arguments = [
        owner_tag(user_id),
        "part" if kind == "substate" else kind,
        *_limits(history),
        int(any(message.additional_kwargs.get("lc_source") == "summarization" for message in new)),
    ]
    structured = structured_answers(entries, is_over=False)
    for entry in entries:
        words = words_of(entry, structured=id(entry) in structured)
        arguments += [entry.id if entry.id and is_utf8(entry.id) else "", words]
    scope_key = None
    if state.working_memory is not None:
        scope_key = yield from find_scope_key(state, thread_id, user_id)
    calls = [TURN.call(keys.all, *arguments), *(read_commands(scope_key) if scope_key else ())]

    def read(replies: list[Any]) -> Gathered:
        found = _gathered(replies[0], entries, kind, thread_id)
        given = {message.id for message in new} - found.branch.hidden
        stored = [message for message in found.stored if message.id not in given]
        if history.roles is not None:
            stored = history_slice(stored, history, new, found.uptos)
        found.user_id, found.stored, found.moment = user_id, stored, moment
        found.working_memory = read_state(state, scope_key, replies[1:]) if scope_key else None
        return found

    def completed(found: Gathered) -> Plan[Gathered]:
        yield from _complete(state, found, new, history)
        return found

    if query is not None and query.text.strip():
        last = history.last_messages
        if last is None and history.max_tokens is None:  # the history shows all of this thread
            query = query.without([thread_id])
        spare = min((last or 0) + (history.step or last or 0) + len(entries), MOST_SPARE)
        plan = _recall(state, query, calls, read, spare, on_error)
        plan = traced("retriever", "semantic_recall", query.text, plan, lambda found: found.recalled.to_documents())
        try:
            return (yield from completed((yield from plan)))
        except NO_VECTORS as error:
            if on_error == "raise":
                raise
            _log.warning("%s; this turn goes without recall", error)
    replies = yield from run_script(thread_id, user_id, *calls)
    found = yield from compute(partial(read, replies), _size(replies[0]))
    return (yield from completed(found))


def _complete(state: MemoryState, found: Gathered, new: Sequence[BaseMessage], history: HistoryOptions) -> Plan[None]:
    """Read the media of a turn, and repair what a writer that died has left."""
    if found.has_media:
        yield from _with_media(state, found, new, history)
    if found.is_late and found.thread_id not in state.room(Sweeping):
        yield Later(_repair(state, found.thread_id))


def _repair(state: MemoryState, thread_id: str) -> Plan[None]:
    """Do in the background what a writer that died has left of a thread: the expiry of its vectors, or new ones."""
    sweeping = state.room(Sweeping)
    sweeping.add(thread_id)
    try:
        with suppress(ThreadNotFoundError, *NO_VECTORS):  # it was deleted meanwhile; or the next turn tries again
            yield from sweep(state, thread_id) if state.recall is None else reindex_messages(state, None, thread_id)
    finally:
        sweeping.discard(thread_id)


def _recall(
    state: MemoryState,
    query: Query,
    calls: Sequence[Command],
    read: Callable[[list[Any]], Gathered],
    spare: int,
    on_error: OnError,
) -> Plan[Gathered]:
    """Search in the round trip that reads the history, and leave out what the model is shown anyway.

    Messages are compared by sequence number: with the ids of all candidates, Search takes a quarter longer.
    """
    thread_id = query.thread_id or ""
    try:
        query = yield from among_threads(state, query)
        ranked, replies = yield from find_candidates(state, query, calls, spare=spare)
    except RedisReplyError as error:
        raise script_error(error, thread_id, query.user_id) from None
    gathered = yield from compute(partial(read, replies), _size(replies[0]))
    here = encode(thread_id).encode()
    known = {*gathered.seqs.values(), *gathered.left_seqs}
    if gathered.branch.kind in CHECKPOINTED:  # what is too old to be shown may be recalled
        known = {seq for seq in known if seq >= gathered.begins} | gathered.left_seqs

    def is_fresh(seq: int) -> bool:
        return seq not in known and seq < gathered.end

    recalled = yield from fetch_hits(
        state,
        query,
        ranked,
        lambda one: one.thread != here or is_fresh(one.seq),
        on_error=on_error,
    )
    # windows of the hits may hold what is shown anyway, too
    rows = [row for row in recalled.rows if row.thread_id != thread_id or is_fresh(row.seq)]
    gathered.recalled = recalled if len(rows) == len(recalled.rows) else replace(recalled, rows=rows)
    return gathered


def read_history(
    state: MemoryState, thread_id: str, user_id: str | None, history: HistoryOptions
) -> Plan[list[BaseMessage]]:
    """Read what the history shows of a thread. One round trip."""
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    call = TURN.call(keys.all, owner_tag(user_id), "part", *_limits(history), 0)
    (reply,) = yield from run_script(thread_id, user_id, call)
    found = _gathered(reply, [], "part", thread_id)
    if found.has_media:
        yield from _with_media(state, found, (), history)
    rows = history_slice(found.stored, history, (), found.uptos)
    return fit(rows, (), found.uptos, history, found.cut, is_cut=found.is_cut)[0]


def _with_media(state: MemoryState, found: Gathered, new: Sequence[BaseMessage], history: HistoryOptions) -> Plan[None]:
    """Read those media of the history that a turn shows, and name the others. At most one round trip."""
    together = in_order(found.stored, found.seqs, new)
    at = media_begin(together, history.media)
    shown = dict(zip(map(id, together), with_names(together, at), strict=True))
    found.stored = [shown[id(message)] for message in found.stored]
    gone = yield from with_media(state, found.stored, found.thread_id)
    found.stored = [message for message in found.stored if id(message) not in gone]


def _limits(history: HistoryOptions) -> list[Argument]:
    """Write what the history shows as `turn.lua` reads it."""
    last = history.last_messages
    roles = f",{','.join(history.roles)}," if history.roles else ""
    # the store knows what messages weigh with all of their media
    is_counted = history.token_counter == "approximate" and history.media == "all"
    most = history.max_tokens if is_counted else None
    return [
        "" if last is None else last,
        history.step or last or 1,
        int(history.exclude_tools is True),
        roles,
        most or "",
    ]


def _size(reply: list[Any]) -> int:
    """Count the bytes of the messages in the reply of `turn.lua`."""
    return sum(map(len, reply[11][2::3]))


def _gathered(reply: list[Any], entries: Sequence[BaseMessage], kind: Kind, thread_id: str) -> Gathered:
    """Read the reply of `turn.lua` about the entries, the messages that were compared with the thread."""
    start, cut, left, left_seqs, back, claimed, stored, seqs, uptos, changed, refused, history, *rest = reply
    _, begins, is_cut, next_seq = rest
    rows = read_rows(history, thread_id)
    ids = [message.id or "" for message in entries]
    names = {id: name.decode() for id, name in zip(ids, stored, strict=True) if name}
    known = {id: seq for id, seq in zip(ids, seqs, strict=True) if seq >= 0}
    tokens = {id: upto for id, upto in zip(ids, uptos, strict=True) if upto > 0}
    asked = next((id for id, entry in zip(ids[::-1], entries[::-1], strict=True) if entry.type == "human"), "")
    resent = {id for id in ids[:start] if id in names}
    # of the present turn, what was forgotten is shown until the turn ends
    refusals = (
        {
            id
            for at, (id, flag) in enumerate(zip(ids, refused, strict=True))
            if flag and id and id != asked and (flag == 1 or asked in ids[at:])
        }
        if any(refused)
        else set()
    )
    is_deleted = (
        2 in refused and dict(zip(ids, refused, strict=True)).get(asked) == 2
    )  # a new question may have the id of such a one
    edited = [id for id, flag in zip(ids, changed, strict=True) if flag and names.get(id) == id]
    redacted: Collection[str] = ()
    if edited and kind in CHECKPOINTED:
        current = names.keys() - {id.decode() for id in back}
        redacted = [id for id, after in pairwise(ids) if after in current and names[after] == after]
    branch = Branch(
        kind=kind,
        left=[id.decode() for id in left],
        back=[id.decode() for id in back],
        claimed=[id.decode() for id in claimed],
        edited=edited,
        redacted=frozenset(redacted),
        aliases={id: name for id, name in names.items() if id and id != name},
        anchor=next((names[id] for id in ids[start:] if id in names), ""),
        question=names.get(asked, asked if is_deleted else ""),
        hidden=frozenset(resent | refusals),
        seen=int(next_seq),
    )
    return Gathered(
        thread_id,
        stored=[row.message for row in rows],
        has_media=bool([value for value in history[2::3] if value[-2:] == b"]}"]),
        seqs={row.message.id or "": row.seq for row in rows} | {names[id]: known[id] for id in known} | known,
        uptos={row.message.id or "": row.upto for row in rows if row.upto}
        | {names[id]: tokens[id] for id in tokens}
        | tokens,
        cut=cut,
        branch=branch,
        left_seqs=frozenset(left_seqs),
        begins=float(begins),
        is_late=is_cut > 1,
        is_cut=is_cut % 2 == 1,
        end=known.get(asked, inf),
    )
