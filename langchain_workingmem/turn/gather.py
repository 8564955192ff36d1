"""What the store holds for a turn: the history, working memory, recalled messages, and which messages the caller's list is."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from langchain_core.messages import SystemMessage

from langchain_workingmem._engine.calls import traced
from langchain_workingmem._engine.plan import LONG, Call, send
from langchain_workingmem._redis.access import owner_tag, read_reply
from langchain_workingmem._redis.codec import is_readable, is_storable, read_rows
from langchain_workingmem._redis.indexes import NO_VECTORS
from langchain_workingmem._redis.keys import Facts, check_id, encode
from langchain_workingmem._redis.scripts import READ
from langchain_workingmem._redis.state import wing
from langchain_workingmem._text.said import structured_answers, words_of
from langchain_workingmem._text.sending import has_mark
from langchain_workingmem.history import AS_STORED, Entry, Followed, Known, fill, follow, known_in, list_head, readable
from langchain_workingmem.models import RecallResult
from langchain_workingmem.recall import recall_for_turn, search, words_in_row
from langchain_workingmem.turn.fit import fit, history_slice
from langchain_workingmem.turn.messages import in_order, is_users, media_begin, named
from langchain_workingmem.working_memory.store import ScopeKey, read_commands, read_state

if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from zoneinfo import ZoneInfo

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.plan import Command, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.history import Kind
    from langchain_workingmem.models import StoredMessage, WorkingMemoryState
    from langchain_workingmem.options import HistoryOptions, OnError
    from langchain_workingmem.recall import Query, Ranked, Ranking

_log = logging.getLogger("langchain_workingmem")

_ASKED_AGAIN = 10  # messages of the user, of which some may repeat the question
MOST_SPARE = 1000  # more candidates of recall than are wanted, because the history may show some of them


@dataclass(slots=True)
class Request:
    """What to gather: for which list of the caller, and whose it is."""

    thread_id: str
    user_id: str
    messages: Sequence[BaseMessage]  # as they were before memory changed them; each has an id
    kind: Kind
    history: HistoryOptions
    query: Query | None  # None: nothing is recalled
    on_error: OnError = "raise"
    numbered: frozenset[str] = frozenset()  # ids that memory has given to messages of the list
    zone: ZoneInfo | None = None  # None: UTC
    left_out: frozenset[int] = frozenset()  # seqs of messages that a load node has taken out of the state
    working_memory: bool = True  # False: it is not shown


@dataclass(slots=True)
class Gathered:
    """What the store holds for a turn."""

    thread_id: str
    user_id: str = ""
    kind: Kind = "list"
    zone: ZoneInfo | None = None
    known: Known | None = None  # what the thread knows of the caller's list
    followed: Followed = field(default_factory=Followed)
    history: list[BaseMessage] = field(default_factory=list)  # stored messages that the caller's list does not have
    stored_ids: dict[str | None, str] = field(default_factory=dict)  # of messages of the list that have others there
    seqs: dict[str, int] = field(default_factory=dict)  # by id, of the history and of the caller's list
    uptos: dict[str, int] = field(default_factory=dict)  # tokens of the thread up to each question and answer, by id
    hidden: frozenset[str] = frozenset()  # ids in the list that no model is shown: sent again, or refused by a provider
    gone: list[list[int]] = field(default_factory=list)  # ranges of seqs that the list has left behind
    begins: float = -inf  # seq where the history begins: it limits what is shown of a state, too
    end: float = inf  # seq of the question, where it is stored: later messages are not its history
    tokens: int = 0  # of the history
    size: int = 0  # bytes of the history
    cut: int = 0  # messages that the limit of tokens left in the store
    is_cut: bool = False  # the limit of tokens has left out some
    recalled: RecallResult = field(default_factory=RecallResult)
    working_memory: WorkingMemoryState | None = None
    covered: Container[int] = ()  # seqs of messages that are not shown, because something in `parts` stands for them
    parts: dict[str, Any] = field(default_factory=dict)  # what parts of the turn have found, by the name of the part
    limit: int | None = None  # tokens of the conversation, where a part bounds it

    def output(self) -> dict[str, Any]:
        """Return the output of the run that callbacks and LangSmith see."""
        document = self.working_memory.text if self.working_memory else None
        return {"history": self.history, "recalled": self.recalled.messages, "working_memory": document}

    def is_too_old(self, message: BaseMessage) -> bool:
        """Tell whether a message of a state is stored, and lies before the history."""
        return self.kind == "state" and self.seqs.get(message.id or "", inf) < self.begins

    def uncovered(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return the messages for which nothing else stands."""
        return [one for one in messages if self.seqs.get(one.id or "") not in self.covered]


def gather(state: MemoryState, turn: Request) -> Plan[Gathered]:
    """Read history and working memory and search in one round trip, fetch the windows of the hits in another.

    One more reads the history again where the list has left messages of the thread behind, one more the media. With on_error="log" a
    turn goes without recall when the embedding model fails.
    """
    found = Gathered(turn.thread_id, turn.user_id, turn.kind, turn.zone)
    entries = entries_of(turn.messages)
    listed = [entry._replace(id=None) if entry.id in turn.numbered else entry for _, entry in entries]
    head = _history_head(turn, listed)
    for part in state.parts:
        part.narrow(head)
    calls = [READ.on(state.keys.of(turn.thread_id), **head)]
    scope_key = None
    if state.working_memory is not None and turn.working_memory:
        scope_key = ScopeKey.of(state, turn.thread_id, turn.user_id)
        calls += read_commands(scope_key)
    at = len(calls)
    asked = [part.commands(state, turn.thread_id, turn.user_id) for part in state.parts]
    for some in asked:
        calls += some
    last = turn.history.last_messages or 0
    # more hits than are wanted, as the model is shown some messages anyway
    spare = min(last + (turn.history.step or last) + len(turn.messages), MOST_SPARE)
    query, ranking, replies = yield from _searched(state, turn, head, calls, spare)
    reply = read_reply(replies[0], turn.thread_id, turn.user_id)
    _follow_list(found, turn, entries, listed, reply)
    rows = _rows(found, turn, listed, reply, replies[0][1])
    is_other = found.followed.changes_branch and found.begins > -inf
    if scope_key is not None:
        found.working_memory = read_state(state, scope_key, replies[1:at])
    for part, some in zip(state.parts, asked, strict=True):
        is_other |= yield from part.gathered(state, found, head, reply, some, replies[at : at + len(some)])
        at += len(some)
    if scope_key and found.working_memory and found.working_memory.kept and state.remembering.keeper is None:
        found.working_memory = yield from wing("keeping").verified(state, scope_key, found.working_memory)
    if is_other:  # without what the list has left behind
        head |= {"without": sorted([*found.gone, *head.get("without", ())]) or None, "said": 0}
        (again,) = yield from send(READ.on(state.keys.of(turn.thread_id), **head))
        found.seqs = {one.id: found.seqs[one.id] for one, _ in entries if one.id in found.seqs}
        rows = _rows(found, turn, listed, read_reply(again, turn.thread_id, turn.user_id), again[1])
    if query is not None and ranking is not None and len(ranking):
        found.recalled = yield from _recalled(state, found, turn, query, ranking, rows, spare)
    elif ranking is not None:
        _warn_without_vectors(state, turn, reply)
    if found.size > LONG or any("media" in row.record for row in rows):
        found.history = yield from _messages_of(state, found, turn, rows)
    else:
        found.history = [row.message for row in rows]
    return found


def _searched(
    state: MemoryState, turn: Request, head: dict[str, Any], calls: list[Command], spare: int
) -> Plan[tuple[Query | None, Ranking | None, list[Any]]]:
    """Search for the question, and send the calls beside; return the query, what it finds, and the replies to the calls."""
    query = turn.query
    if query is None:
        return None, None, (yield from send(*calls))
    if (
        head["last"] is None and turn.history.max_tokens is None and "uncovered" not in head
    ):  # the thread is shown whole
        query = query.without(turn.thread_id)
    try:
        ranking, replies = yield from search(state, query, calls, spare=spare)
    except NO_VECTORS as error:
        if turn.on_error == "raise":
            raise
        _log.warning("%s; this turn goes without recall", error)
        return None, None, (yield from send(*calls))
    return query, ranking, replies


def entries_of(messages: Sequence[BaseMessage]) -> list[tuple[BaseMessage, Entry]]:
    """Return the messages of a list that history stores, with what `follow` compares of them."""
    storable = [message for message in messages if is_storable(message)]
    structured = structured_answers(storable, is_over=False)
    return [
        (one, Entry(one.id, "" if id(one) in structured else AS_STORED if has_mark(one) else words_of(one)))
        for one in storable
    ]


def _history_head(turn: Request, listed: Sequence[Entry]) -> dict[str, Any]:
    """Return the head of `read.lua`."""
    options = turn.history
    last, roles = options.last_messages, options.roles
    kinds = "qa" if roles is None else "".join(kind for role, kind in (("human", "q"), ("ai", "a")) if role in roles)
    # the store knows what messages weigh with all of their media
    limit = options.max_tokens if options.token_counter == "approximate" and options.media == "all" else None
    head: dict[str, Any] = {
        "user": encode(turn.user_id) if turn.user_id else "",
        "kinds": kinds or "qa",
        "last": last,
        "step": options.step or last or 1,
        "tokens": limit,
    }
    if len(listed) > 1 or (listed and listed[0].id):
        head |= list_head(listed)
        head["asked"] = next((entry.id for entry in reversed(listed) if entry.words.startswith("q")), None)
    return head


def _follow_list(
    found: Gathered,
    turn: Request,
    entries: Sequence[tuple[BaseMessage, Entry]],
    listed: Sequence[Entry],
    reply: dict[str, Any],
) -> None:
    """Say which messages of the thread the caller's list is, and which of it no model is shown."""
    found.known = known_in(reply)
    if "next_seq" not in reply:
        return
    found.followed = done = follow(listed, turn.kind, found.known, turn.left_out)
    ids = [message.id or "" for message, _ in entries]
    found.seqs = {ids[at]: seq for at, seq in done.seqs.items()}
    found.stored_ids = {ids[at]: id for at, id in done.aliases.items()}
    if not (done.seqs or done.drop or found.known.deleted):
        return
    found.gone = found.known.ranges(done.drop)
    rows = {row.seq: row for row in found.known.rows}
    asked = max((at for at, entry in enumerate(listed) if entry.words.startswith("q")), default=-1)
    found.end = done.seqs.get(asked, inf)
    hidden = {ids[at] for at, seq in done.seqs.items() if seq in rows and rows[seq].is_refused and at != asked}
    hidden |= {ids[at] for at in range(asked) if ids[at] in found.known.deleted and at not in {*done.seqs, *done.new}}
    if turn.kind == "state":  # one that a client has sent again stands in it under two ids
        seqs = [*done.seqs.values()]
        hidden |= {ids[at] for at in done.aliases if at > min(done.seqs) and seqs.count(done.seqs[at]) > 1}
    found.hidden = frozenset(hidden)
    found.uptos = {ids[at]: rows[seq].upto for at, seq in done.seqs.items() if seq in rows and rows[seq].words}


def _rows(
    found: Gathered, turn: Request, listed: Sequence[Entry], reply: dict[str, Any], bodies: Sequence[bytes | None]
) -> list[StoredMessage]:
    """Return the rows of the history, without those of the caller's list, and those that it has left behind or trimmed."""
    done, waiting, some = found.followed, iter(bodies), list[tuple[int, int, bytes | None]]()
    skipped, repeated, traffic, trimming = {*found.seqs.values()}, set[str](), False, None
    if (
        turn.kind == "list" and listed
    ):  # nothing is shown twice, also where the list agrees with the thread only in part
        asked = max((at for at, entry in enumerate(listed) if entry.words.startswith("q")), default=-1)
        repeated = {entry.words for at, entry in enumerate(listed) if at not in done.seqs and at < asked} - {""}
        traffic = bool(done.seqs) and any(not entry.words for at, entry in enumerate(listed) if at not in done.seqs)
    elif turn.kind == "state":  # what a state has had and lacks now is trimmed
        trimming = done.writer
    located = {seq for seqs in reply.get("located") or () for seq in seqs or ()}
    found.tokens = 0
    for facts in reply.get("shown") or ():
        place, words, tokens, upto, writer, _, id = facts.split(":", 6)
        if (seq := int(place)) in located:
            continue
        body = next(waiting)
        if seq in skipped or seq >= found.end or words in repeated or (traffic and not words):
            continue
        if (writer == trimming and seq not in turn.left_out) or any(low <= seq <= high for low, high in found.gone):
            continue
        some.append((seq, int(upto) if words else 0, body))
        found.seqs[id], found.tokens = seq, found.tokens + int(tokens)
        if words:
            found.uptos[id] = int(upto)
    found.begins = reply.get("begins", -inf)
    found.cut, found.is_cut = reply.get("cut", 0), "cut_at" in reply or bool(reply.get("cut"))
    found.size = sum([len(body or b"") for *_, body in some])
    return read_rows(some, turn.thread_id, make=found.size <= LONG)


def _recalled(
    state: MemoryState,
    found: Gathered,
    turn: Request,
    query: Query,
    ranking: Ranking,
    history: Sequence[StoredMessage],
    spare: int,
) -> Plan[RecallResult]:
    """Fetch the best hits, without what the model is shown anyway. Messages are compared by seq."""
    here, end = encode(turn.thread_id).encode(), found.end
    known = {*found.seqs.values(), *found.followed.drop}
    if turn.kind == "state":  # what is too old to be shown may be recalled
        known = {seq for seq in known if seq >= found.begins} | set(found.followed.drop)

    def is_hidden(one: Ranked) -> bool:
        return one.thread == here and (one.seq in known or one.seq >= end)

    plan = recall_for_turn(
        state,
        query,
        ranking,
        is_hidden=is_hidden,
        before=partial(_said_before, state, turn, found.known, query.text, history),
        spare=spare,
        on_error=turn.on_error,
    )
    result = yield from traced("retriever", "semantic_recall", query.text, plan, RecallResult.to_documents)
    # windows of the hits may hold what is shown anyway, too
    rows = [
        row for row in result.rows if row.thread_id != turn.thread_id or (row.place not in known and row.place < end)
    ]
    return replace(result, rows=rows)


def _said_before(
    state: MemoryState, turn: Request, known: Known | None, text: str, history: Sequence[StoredMessage]
) -> Plan[str]:
    """Return what the user said before a question: in the caller's list, in the history, else in the store (one round trip).

    A question that was asked twice follows up what stood before it.
    """
    said = [*map(words_in_row, (row for row in history if row.role == "human"))]
    said += [str(one.text) for one in turn.messages if is_users(one)]
    if known is not None and known.version is not None and not any(one != text for one in said):
        some = replace(turn.history, last_messages=_ASKED_AGAIN, step=1, roles=("human",), max_tokens=None)
        said = [str(one.text) for one in (yield from read_history(state, turn.thread_id, turn.user_id, some))]
    return next((one for one in reversed(said) if one.strip() and one != text), "")


def _warn_without_vectors(state: MemoryState, turn: Request, reply: dict[str, Any]) -> None:
    """Say once that recall finds nothing in a thread whose messages have no vectors."""
    facts = [Facts.read(one) for one in reply.get("shown") or ()]
    if any(one.words for one in facts) and not any(one.vectors for one in facts) and state.is_first("vectors"):
        _log.warning(
            "the messages of thread %r have no vectors, so recall does not find them: they were saved while recall was off, or "
            "the embedding model failed; memory.recall.reindex() makes vectors for all",
            turn.thread_id,
        )


def _messages_of(
    state: MemoryState, found: Gathered, turn: Request, rows: Sequence[StoredMessage]
) -> Plan[list[BaseMessage]]:
    """Return the messages of rows; older media are named. One round trip where media that are shown lie beside them."""
    short: set[int] = set()
    if any("media" in row.record for row in rows):
        short = yield from _with_media(state, found, turn, rows)
    if found.size > LONG:  # else they are made
        rows = yield from Call(partial(readable, rows))
    if not short:
        return [row.message for row in rows]
    marks = state.marks(turn.thread_id, turn.user_id)
    return [marks.put(named(row.message), {}) if row.place in short else row.message for row in rows]


def _with_media(state: MemoryState, found: Gathered, turn: Request, rows: Sequence[StoredMessage]) -> Plan[set[int]]:
    """Read the media that a turn shows; return the seqs of messages whose media are only named. At most one round trip."""
    fresh = [one for one in turn.messages if not isinstance(one, SystemMessage)]
    together = in_order([row.message for row in rows if is_readable(row)], found.seqs, fresh)
    at = media_begin(together, turn.history.media)
    shown = {message.id for message in together[at:]}
    waiting = [row for row in rows if "media" in row.record]
    read = [row for row in waiting if row.message.id in shown]
    keys = state.keys.of(turn.thread_id)
    commands: list[Command] = [
        ("HMGET", keys.media, *(f"{row.place}:{number}" for number in range(len(row.record["media"])))) for row in read
    ]
    for row, texts in zip(read, (yield from send(*commands)) if commands else [], strict=True):
        if None not in texts:  # else they are named
            fill(row, texts)
    return {row.place for row in waiting if "media" in row.record}


def read_history(
    state: MemoryState, thread_id: str, user_id: str | None, options: HistoryOptions
) -> Plan[list[BaseMessage]]:
    """Read what the history shows of a thread. One round trip."""
    turn = Request(thread_id, user_id or "", (), "part", options, None)
    head = {**_history_head(turn, ()), "user": owner_tag(user_id)}
    (reply,) = yield from send(READ.on(state.keys.of(check_id(thread_id, "thread_id")), **head))
    found = Gathered(thread_id)
    rows = _rows(found, turn, (), read_reply(reply, thread_id, user_id), reply[1])
    messages = yield from _messages_of(state, found, turn, rows)
    history = history_slice(messages, options, (), found.uptos)
    return fit(history, (), found.uptos, options, found.cut, is_cut=found.is_cut)[0]
