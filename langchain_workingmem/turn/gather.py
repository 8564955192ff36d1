"""What the store holds for a turn: history, working memory, recalled messages, and what the caller's list is."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import chain, islice
from math import inf
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from langchain_core.messages import SystemMessage

from langchain_workingmem._engine.calls import traced
from langchain_workingmem._engine.plan import LONG, compute, send
from langchain_workingmem._redis.codec import is_readable, is_storable, read_rows
from langchain_workingmem._redis.indexes import NO_VECTORS
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.scripts import READ, owner_tag, read_reply
from langchain_workingmem._redis.state import wing
from langchain_workingmem._text.messages import structured_answers, words_digest
from langchain_workingmem.history.follow import Entry, follow, last_question
from langchain_workingmem.history.read import with_media
from langchain_workingmem.history.save import entry_of, known_in, list_head
from langchain_workingmem.recall.search import recall_for_turn, search
from langchain_workingmem.turn.assemble import (
    Gathered,
    chosen,
    fit,
    history_slice,
    in_order,
    is_users,
    media_begin,
    named,
)
from langchain_workingmem.working_memory.store import ScopeKey, read_commands, read_state

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.state import Core, MemoryState
    from langchain_workingmem.models import RecallResult, StoredMessage
    from langchain_workingmem.options import HistoryOptions
    from langchain_workingmem.recall.question import Query
    from langchain_workingmem.recall.ranking import Ranking

_log = logging.getLogger("langchain_workingmem")
MOST_SPARE = 1000  # more candidates of recall than are wanted, because the history may show some of them


def gather_turn(
    core: Core,
    turn: Gathered,
    options: HistoryOptions,
    query: Query | None = None,
    *,
    numbered: Container[str | None] = (),
    working_memory: bool = True,
) -> Plan[Gathered]:
    """Read history and working memory and search in one round trip, fetch the windows of the hits in another."""
    # One more reads the history again where the list has left messages of the thread behind, one more the media.
    state, ids = core.state, (turn.thread_id, turn.user_id)
    storable = [message for message in turn.messages if is_storable(message)]
    structured = structured_answers(storable, is_over=False)
    entries = [
        entry_of(one, None if one.id in numbered else one.id, words_digest(one, structured=id(one) in structured))
        for one in storable
    ]
    head = _history_head(options, entries, encode(turn.user_id) if turn.user_id else "")
    for part in state.parts:
        part.narrow(head)
    read = READ.on(state.keys.of(turn.thread_id), **head)
    scope_key = ScopeKey.of(state, *ids) if state.working_memory is not None and working_memory else None
    memory_calls = read_commands(scope_key) if scope_key else []
    part_calls = [part.commands(state, *ids) for part in state.parts]
    calls = [read, *memory_calls, *chain(*part_calls)]
    last = options.last_messages or 0
    # more hits than are wanted, as the model is shown some messages anyway
    spare = min(last + (options.step or last) + len(turn.messages), MOST_SPARE)
    is_whole = options.last_messages is None and options.max_tokens is None and options.roles is None
    if query is not None and is_whole and "uncovered" not in head and turn.kind != "state":
        query = replace(query, where={**query.where, "not_thread_ids": [turn.thread_id]})
    ranking: Ranking | None = None
    if query is not None:
        try:
            ranking, replies = yield from search(state, query, calls, spare=spare)
        except NO_VECTORS as error:
            if core.on_error == "raise":
                raise
            _log.warning("%s; this turn goes without recall", error)
    if ranking is None:
        replies = yield from send(*calls)
    history, *others = replies
    reply = read_reply(history, *ids)
    _follow_list(turn, storable, entries, reply)
    rows = _rows(turn, entries, reply, history[1])
    # a window that was limited has to reach further back, and behind an edited question others may have written
    reads_again = turn.followed.changes_branch and (turn.begins > -inf or bool(turn.followed.again))
    waiting = iter(others)
    if scope_key is not None:
        turn.working_memory = read_state(state, scope_key, [*islice(waiting, len(memory_calls))])
        if turn.working_memory and turn.working_memory.kept and state.remembering.keeper is None:
            turn.working_memory = yield from wing("keeping").verified(state, scope_key, turn.working_memory)
    for part, some in zip(state.parts, part_calls, strict=True):
        reads_again |= yield from part.gathered(state, turn, head, reply, some, [*islice(waiting, len(some))])
    if reads_again:  # without what the list has left behind
        head |= {"without": [*turn.gone, *head.get("without", ())] or None, "said": 0, "spoken": None}
        head |= {"question": None} if turn.followed.again else {}
        (again,) = yield from send(READ.on(state.keys.of(turn.thread_id), **head))
        turn.seqs = {one.id: turn.seqs[one.id] for one in storable if one.id in turn.seqs}
        rows = _rows(turn, entries, read_reply(again, *ids), again[1])
    turn.history = yield from _messages_of(state, turn, options, rows)
    if query is not None and ranking:
        turn.recalled = yield from _recalled(core, turn, options, query, ranking, spare)
    return turn


def _history_head(options: HistoryOptions, entries: Sequence[Entry], user: str) -> dict[str, Any]:
    last, roles = options.last_messages, options.roles
    kinds = "qa" if roles is None else "".join(kind for role, kind in (("human", "q"), ("ai", "a")) if role in roles)
    # the store knows what messages weigh with all of their media
    limit = options.max_tokens if options.token_counter == "approximate" and options.media == "all" else None
    step = options.step or last or 1
    head: dict[str, Any] = {"user": user, "kinds": kinds or "qa", "last": last, "step": step, "tokens": limit}
    if len(entries) > 1 or (entries and entries[0].id):
        head |= list_head(entries)
        head["question"] = next((entry.id for entry in reversed(entries) if entry.words.startswith("q")), None)
    return head


def _follow_list(
    turn: Gathered, messages: Sequence[BaseMessage], entries: Sequence[Entry], reply: dict[str, Any]
) -> None:
    """Say which messages of the thread the caller's list is, and which of it no model is shown."""
    known = turn.known = known_in(reply)
    turn.followed = followed = follow(entries, turn.kind, known, turn.left_out)
    ids = [message.id or "" for message in messages]
    turn.seqs = {ids[at]: seq for at, seq in followed.seqs.items()}
    turn.stored_ids = {ids[at]: id for at, id in followed.aliases.items()}
    turn.gone = known.ranges(followed.drop) if followed.drop else []
    question_at = last_question(entries)
    turn.end = followed.seqs.get(question_at, inf)
    rows = {row.seq: row for row in known.rows}
    hidden = {ids[at] for at, seq in followed.seqs.items() if rows[seq].is_refused and at != question_at}
    hidden |= {
        ids[at] for at in range(question_at) if ids[at] in known.deleted and at not in {*followed.seqs, *followed.new}
    }
    if turn.kind == "state":  # one that a client has sent again stands in it under two ids
        seqs = [*followed.seqs.values()]
        hidden |= {ids[at] for at in followed.aliases if at > min(followed.seqs) and seqs.count(followed.seqs[at]) > 1}
    turn.hidden = frozenset(hidden)
    turn.uptos = {ids[at]: rows[seq].upto for at, seq in followed.seqs.items() if rows[seq].words}


def _rows(
    turn: Gathered, entries: Sequence[Entry], reply: dict[str, Any], bodies: Sequence[bytes | None]
) -> list[StoredMessage]:
    """Return the rows of the history, without those that the list has, has left behind or has trimmed."""
    followed, waiting, some = turn.followed, reversed(bodies), list[tuple[int, int, bytes | None]]()
    listed = {seq for seqs in reply.get("located") or () for seq in seqs or ()}  # their bodies were not read
    in_list = {*turn.seqs.values()}
    own_writer = followed.writer if turn.kind == "state" else None
    repeated: set[str] = set()
    if turn.kind == "list":  # nothing is shown twice, also where the list agrees with the thread only in part
        others = [entries[at].words for at in range(last_question(entries)) if at not in followed.seqs]
        repeated = {words for words in others if words or followed.seqs}
    turn.tokens = 0
    for text in reversed(reply.get("shown") or ()):
        place, words, tokens, upto, writer, _, id = text.split(":", 6)
        if (seq := int(place)) in listed:
            continue
        body = next(waiting)
        is_in_list = seq in in_list or words in repeated
        is_left_behind = seq >= turn.end or any(low <= seq <= high for low, high in turn.gone)
        is_trimmed = writer == own_writer and seq not in turn.left_out  # a state has had it, and lacks it now
        if is_in_list or is_left_behind or is_trimmed:
            continue
        some.append((seq, int(upto) if words else 0, body))
        turn.seqs[id], turn.tokens = seq, turn.tokens + int(tokens)
        if words:
            turn.uptos[id] = int(upto)
    turn.begins = reply.get("begins", -inf)
    turn.cut = reply.get("cut", 0)
    turn.size = sum([len(body or b"") for *_, body in some])
    return read_rows(some, turn.thread_id, make=turn.size <= LONG)


def _recalled(
    core: Core, turn: Gathered, options: HistoryOptions, query: Query, ranking: Ranking, spare: int
) -> Plan[RecallResult]:
    """Fetch the best hits and their windows, without what the model is shown anyway. Messages are compared by seq."""
    past, present, _ = chosen(turn, options, turn.messages)
    ids = turn.hidden.union([one.id or "" for one in (*past, *present)])
    known = {*turn.followed.drop, *(turn.seqs[id] for id in ids if id in turn.seqs)}

    def before() -> str:  # what the user said; a question that was asked twice follows up what stood before it
        said = [str(one.text) for one in (*turn.history, *turn.messages) if is_users(one)]
        return next((one for one in reversed(said) if one.strip() and one != query.text), "")

    hide = methodcaller("hide", encode(turn.thread_id).encode(), known, turn.end)
    plan = recall_for_turn(core.state, query, ranking, hide=hide, before=before, spare=spare, on_error=core.on_error)
    result = yield from traced(plan, query.text)
    rows = [
        row
        for row in result.rows
        if row.thread_id != turn.thread_id or (row.place not in known and row.place < turn.end)
    ]
    return replace(result, rows=rows)


def _messages_of(
    state: MemoryState, turn: Gathered, options: HistoryOptions, rows: Sequence[StoredMessage]
) -> Plan[list[BaseMessage]]:
    """Return the messages of rows; older media are named. One round trip where media that are shown lie beside them."""
    waiting = [row for row in rows if "media" in row.record]
    if not waiting and turn.size <= LONG:
        return [row.message for row in rows]
    if waiting:
        fresh = [one for one in turn.messages if not isinstance(one, SystemMessage)]
        together = in_order([row.message for row in rows if is_readable(row)], turn.seqs, fresh)
        shown = {one.id for one in together[media_begin(together, options.media) :]}
        yield from with_media(state, [row for row in waiting if row.message.id in shown], keep_lost=True)
    rows = yield from compute(lambda: [row for row in rows if is_readable(row)], turn.size)
    marks = state.marks(turn.thread_id, turn.user_id)
    return [marks.put(named(row.message), {}) if "media" in row.record else row.message for row in rows]


def read_history(
    state: MemoryState, thread_id: str, user_id: str | None, options: HistoryOptions
) -> Plan[list[BaseMessage]]:
    """Read what the history shows of a thread. One round trip."""
    turn = Gathered(check_id(thread_id, "thread_id"), user_id or "", "part")
    head = _history_head(options, (), owner_tag(user_id))
    (reply,) = yield from send(READ.on(state.keys.of(thread_id), **head))
    rows = _rows(turn, (), read_reply(reply, thread_id, user_id), reply[1])
    messages = yield from _messages_of(state, turn, options, rows)
    history = history_slice(messages, options, (), turn.uptos)
    return fit(history, (), turn.uptos, options, turn.cut)[0]
