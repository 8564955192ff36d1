"""What the store holds for a turn: history, working memory, recalled messages, and what the caller's list is.

`Memory.context`, `Memory.save_turn`, nodes and middleware share `TurnPlans`.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import chain, dropwhile, islice, takewhile
from math import inf
from typing import TYPE_CHECKING, Any

from langchain_core.messages import HumanMessage, SystemMessage

from langchain_workingmem._engine.calls import traced
from langchain_workingmem._engine.plan import LONG, compute, send
from langchain_workingmem._redis.codec import as_messages, is_readable, is_storable, read_rows
from langchain_workingmem._redis.indexes import EMBEDDING_ERRORS
from langchain_workingmem._redis.keys import Facts, check_id, encode
from langchain_workingmem._redis.scripts import READ, owner_tag, read_reply
from langchain_workingmem._redis.state import Recent
from langchain_workingmem._text.messages import structured_answers, words_digest, words_in
from langchain_workingmem._text.sending import Marks, provider_valid
from langchain_workingmem.history.follow import Entry, Known, follow, last_question, turn_start
from langchain_workingmem.history.read import with_media
from langchain_workingmem.history.save import entry_of, known_in, list_head, unmarked
from langchain_workingmem.recall.question import Query
from langchain_workingmem.recall.ranking import Hidden
from langchain_workingmem.recall.search import recall_for_turn, search
from langchain_workingmem.turn.assemble import (
    Turn,
    choose_shown,
    fit,
    in_order,
    is_users,
    media_begin,
    media_named,
    question,
    without_excluded,
)
from langchain_workingmem.working_memory.store import ScopeKey, read_commands, read_state

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from langchain_core.messages import BaseMessage, MessageLikeRepresentation

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.state import Core, MemoryState
    from langchain_workingmem.history.follow import Kind
    from langchain_workingmem.models import RecallResult, StoredMessage
    from langchain_workingmem.options import HistoryOptions, PerCall
    from langchain_workingmem.recall.ranking import Ranking

_log = logging.getLogger("langchain_workingmem")
MOST_EXTRA = 1000  # hits beyond those that are wanted


class Notes(Recent[tuple[str, str], tuple[str, Known]]):
    """What was read of a thread for a question, and the id of the question: saving its turn needs no second look."""

    def note(self, thread_id: str, message: BaseMessage | None, known: Known) -> None:
        """Note what is known of a thread before a question is answered, or after its turn is saved."""
        if message is not None and message.id:
            self.put((thread_id, words_digest(message)), (message.id, known))

    def take(self, thread_id: str, message: BaseMessage | None) -> Known | None:
        """Return what was read for a question. One without an id gets the noted id; it is a new one if that turn is saved."""
        noted = None if message is None else self.get((thread_id, words_digest(message)))
        if message is None or noted is None:
            return None
        id, known = noted
        if message.id is None and not known.is_saved:
            message.id = id
        return known if message.id == id else None

    def drop(self, thread_id: str, message: BaseMessage | None) -> None:
        """Forget what was read for a question whose turn is saved: a run from an earlier state takes a fresh look."""
        if message is not None:
            self.pop((thread_id, words_digest(message)))


@dataclass(frozen=True, slots=True)
class TurnPlans:
    """Plans of one turn."""

    core: Core
    history: HistoryOptions
    notes: Notes = field(default_factory=Notes)

    def read_unmarked(
        self,
        messages: Iterable[MessageLikeRepresentation],
        thread_id: str,
        user_id: str,
        kind: Kind = "list",
        appeared: Iterable[str | None] = (),
    ) -> Plan[list[BaseMessage]]:
        """Return messages as they were before memory changed them, without those that memory has put in."""
        originals = yield from unmarked(self.core.state, as_messages(messages), thread_id, check_id(user_id, "user_id"))
        counts = Counter(message.id for message in originals if message.type == "ai" and message.id)
        for index, message in enumerate(originals):
            if counts[message.id or ""] > 1:  # caches and fakes repeat ids, which tell nothing then
                originals[index] = message.model_copy(update={"id": None})
        if any("lc_source" in message.additional_kwargs for message in originals):
            _take_source_off(originals, kind, {*appeared})
        return originals

    def gather(
        self,
        messages: Sequence[BaseMessage],
        ids: tuple[str, str],
        limits: PerCall,
        *,
        kind: Kind = "list",
        left_out: frozenset[int] = frozenset(),
    ) -> Plan[Turn]:
        """Read and search in one round trip; one for windows, one more on another branch, one for media.

        Messages without an id get one, if they are stored the stored one.
        """
        core, state, options = self.core, self.core.state, self.history
        if limits.last_messages is not None:  # exactly that many, for this call
            options = replace(options, last_messages=limits.last_messages, step=1)
        turn = Turn(*ids, kind, state.zone(*ids, limits.timezone), messages, left_out, limits.recall is False)
        turn.question = question(messages)
        storable = [message for message in messages if is_storable(message)]
        structured = structured_answers(storable, is_over=False)
        digests = [words_digest(message, structured=id(message) in structured) for message in storable]
        entries = [entry_of(message, message.id, digest) for message, digest in zip(storable, digests, strict=True)]
        turn.head = _history_head(options, entries, encode(turn.user_id))
        turn.head["uncovered"] = covering = next((part.covers for part in state.parts if part.covers), None)
        history_calls = [READ.on(state.keys.of(turn.thread_id), **turn.head)]
        scope_key = ScopeKey.of(state, *ids) if state.working_memory and limits.working_memory else None
        memory_calls = read_commands(scope_key) if scope_key else []
        part_calls = [part.commands(state, *ids) for part in state.parts]
        calls = [*history_calls, *memory_calls, *chain(*part_calls)]

        # more hits than are wanted, as the history shows some of them anyway
        last, ranking = options.last_messages or 0, None
        extra = min(last + (options.step or last) + len(messages), MOST_EXTRA)
        query = _query_of(state, turn, options, limits, is_covered=covering is not None)
        if query is not None:
            try:
                ranking, replies = yield from search(state, query, calls, extra=extra)
            except EMBEDDING_ERRORS as error:
                if core.on_error == "raise":
                    raise
                _log.warning("%s; this turn goes without recall", error)
        if ranking is None:
            replies = yield from send(*calls)
        waiting, call_groups = iter(replies), (history_calls, memory_calls, *part_calls)
        (history_reply,), memory_replies, *part_replies = ([*islice(waiting, len(group))] for group in call_groups)

        reply = read_reply(history_reply, *ids)
        _follow_list(core, turn, reply, storable, entries)
        rows = _stored_messages(turn, reply, entries, history_reply[1])
        # dropped messages leave room in a limited window, and others may have written behind an edited question
        reads_again = turn.followed.changes_branch and (turn.first_seq > -inf or bool(turn.followed.again))

        if scope_key is not None:
            memory = read_state(state, scope_key, memory_replies)
            if memory.kept and state.remembering.keeper is None:
                from langchain_workingmem import keeping

                memory = yield from keeping.with_living_sources(state, scope_key, memory)
            turn.working_memory = memory
        for part, commands, answers in zip(state.parts, part_calls, part_replies, strict=True):
            reads_again |= yield from part.gathered(state, turn, commands, answers)

        if reads_again:
            rows = yield from _read_again(state, turn, storable, entries)
        turn.history = yield from _with_shown_media(state, turn, options, rows)
        if query is not None and ranking is not None and len(ranking.order):
            turn.recalled = yield from _recalled(core, turn, options, query, ranking, extra)
        return turn


def _take_source_off(messages: list[BaseMessage], kind: Kind, appeared: Container[str | None]) -> None:
    """Take LangChain's `lc_source` off what the user says in this turn: a client may have written it."""
    backwards = reversed(range(len(messages)))
    if kind == "state":  # its last message that did not appear in the run
        indexes = [index for index in backwards if messages[index].id not in appeared][:1]
    else:  # the last words of the user
        tail = dropwhile(lambda index: not isinstance(messages[index], HumanMessage), backwards)
        user_words = takewhile(lambda index: isinstance(messages[index], HumanMessage), tail)
        indexes = [*takewhile(lambda index: messages[index].id not in appeared, user_words)]
    for index in indexes:
        message = messages[index]
        if isinstance(message, HumanMessage) and "lc_source" in message.additional_kwargs:
            extras = {key: value for key, value in message.additional_kwargs.items() if key != "lc_source"}
            messages[index] = message.model_copy(update={"additional_kwargs": extras})


# ---------------------------------------------------------------------- reading


def _query_of(
    state: MemoryState, turn: Turn, options: HistoryOptions, limits: PerCall, *, is_covered: bool
) -> Query | None:
    """Return what recall searches for: the user's last words, if any. `is_covered`: by a log, a part of the history."""
    arguments = limits.recall or {}
    is_asked_for = any(value for name, value in arguments.items() if name != "now")
    recall = state.recalling if is_asked_for else state.recall  # the first raises where it is off
    text = "" if turn.question is None else words_in(turn.question)
    if recall is None or turn.is_private or not text.strip():
        return None
    where: Any = {"thread_id": turn.thread_id, "user_id": turn.user_id, "thread_filters": state.thread_filters}
    query = Query.of(recall, text, **where, turn=True, zone=turn.zone, **arguments)
    shows_whole_thread = options.last_messages is None and options.max_tokens is None and options.roles is None
    if shows_whole_thread and not is_covered and turn.kind != "state":
        query = replace(query, where={**query.where, "not_thread_ids": [turn.thread_id]})
    return query


def _history_head(options: HistoryOptions, entries: Sequence[Entry], user: str) -> dict[str, Any]:
    """Return what `read.lua` is told: the limits of the history and, for a list of several messages, their ids."""
    last, roles = options.last_messages, options.roles
    kinds = "qa" if roles is None else "".join(kind for role, kind in (("human", "q"), ("ai", "a")) if role in roles)
    # the store knows what messages weigh with all media
    limit = options.max_tokens if options.token_counter == "approximate" and options.media == "all" else None
    step = options.step or last or 1
    head: dict[str, Any] = {"user": user, "kinds": kinds or "qa", "last": last, "step": step, "tokens": limit}
    if len(entries) > 1 or (entries and entries[0].id):
        head |= list_head(entries)
        head["question"] = next((entry.id for entry in reversed(entries) if entry.letter == "q"), None)
    return head


def _follow_list(
    core: Core, turn: Turn, reply: Mapping[str, Any], messages: Sequence[BaseMessage], entries: Sequence[Entry]
) -> None:
    """Note which messages of the thread the list is, and which of it no model is shown; give missing ids."""
    known = turn.known = known_in(reply)
    turn.followed = followed = follow(entries, turn.kind, known, turn.left_out)
    taken_ids = {entry.id for entry in entries}
    for index, id in sorted(followed.aliases.items()):
        if entries[index].id is None and id not in taken_ids:  # else it was sent again
            messages[index].id = id
            taken_ids.add(id)
    for message in turn.messages:
        message.id = message.id or core.new_id()
    ids = [message.id or "" for message in messages]
    stored = {facts.seq: facts for facts in known.facts}
    turn.seqs = {ids[index]: seq for index, seq in followed.seqs.items()}
    turn.totals = {ids[index]: stored[seq].total_tokens for index, seq in followed.seqs.items() if stored[seq].digest}
    turn.abandoned = known.ranges(followed.drop) if followed.drop else []
    question_at = last_question(entries)
    turn.question_seq = followed.seqs.get(question_at, inf)
    # what a provider has refused; but the present turn is sent again whole, as its tools have run
    refused = {index for index, seq in followed.seqs.items() if stored[seq].is_refused}
    start = turn_start(entries, refused) if refused else 0
    refused_ids = {ids[index] for index in refused if index < start or start < 0}
    stays = {*followed.seqs, *followed.new}
    deleted = {ids[index] for index in range(question_at) if ids[index] in known.deleted and index not in stays}
    turn.hidden_ids = frozenset(refused_ids | deleted | {ids[index] for index in followed.hidden})


def _stored_messages(
    turn: Turn, reply: Mapping[str, Any], entries: Sequence[Entry], bodies: Sequence[bytes | None]
) -> list[StoredMessage]:
    """Return the messages of the history, and note what it is: without those that the list holds or has left behind."""
    turn.shown, turn.rows_revision = [*map(Facts.read, reply.get("shown") or ())], reply.get("rows_revision")
    turn.first_seq, turn.cut = reply.get("begins", -inf), reply.get("cut", 0)
    followed, waiting, kept = turn.followed, reversed(bodies), list[tuple[int, int, bytes | None]]()
    located = {seq for seqs in reply.get("located") or () for seq in seqs}  # their bodies were not read
    in_list = {*turn.seqs.values()}
    repeated: set[str] = set()
    if turn.kind == "list":  # nothing is shown twice, also where the list agrees with the thread only in part
        digests = [entries[index].digest for index in range(last_question(entries)) if index not in followed.seqs]
        repeated = {*digests} if followed.seqs else {*digests} - {""}  # "" is tool traffic: a known list sends it all
    turn.tokens = 0
    for facts in reversed(turn.shown):
        if facts.seq in located:
            continue
        body = next(waiting)
        is_in_list = facts.seq in in_list or facts.digest in repeated
        is_behind = facts.seq >= turn.question_seq or any(low <= facts.seq <= high for low, high in turn.abandoned)
        is_trimmed = facts.writer == followed.writer and facts.seq not in turn.left_out  # the state has had it
        if is_in_list or is_behind or (is_trimmed and turn.kind == "state"):
            continue
        kept.append((facts.seq, facts.total_tokens if facts.digest else 0, body))
        turn.seqs[facts.id], turn.tokens = facts.seq, turn.tokens + facts.tokens
        turn.totals |= {facts.id: facts.total_tokens} if facts.digest else {}
    turn.size = sum([len(body or b"") for *_, body in kept])
    return read_rows(kept, turn.thread_id, make=turn.size <= LONG)


def _read_again(
    state: MemoryState, turn: Turn, messages: Sequence[BaseMessage], entries: Sequence[Entry]
) -> Plan[list[StoredMessage]]:
    """Read the history without what the list has left behind; its words are not looked for again. One round trip."""
    turn.head |= {"said": 0, "spoken": None} | ({"question": None} if turn.followed.again else {})
    turn.head["without"] = [*turn.abandoned, *(turn.head.get("without") or ())] or None
    (reply,) = yield from send(READ.on(state.keys.of(turn.thread_id), **turn.head))
    turn.seqs = {message.id: turn.seqs[message.id] for message in messages if message.id in turn.seqs}
    return _stored_messages(turn, read_reply(reply, turn.thread_id, turn.user_id), entries, reply[1])


def _with_shown_media(
    state: MemoryState, turn: Turn, options: HistoryOptions, rows: Sequence[StoredMessage]
) -> Plan[list[BaseMessage]]:
    """Return the messages, older media only named. One round trip where media that are shown lie beside the bodies."""
    media_rows = [row for row in rows if "media" in row.record]
    if not media_rows and turn.size <= LONG:  # `_stored_messages` has made them
        return [row.message for row in rows]
    if media_rows:
        listed = [message for message in turn.messages if not isinstance(message, SystemMessage)]
        conversation = in_order([row.message for row in rows if is_readable(row)], turn.seqs, listed)
        shown = {message.id for message in conversation[media_begin(conversation, options.media) :]}
        shown_rows = [row for row in media_rows if is_readable(row) and row.message.id in shown]
        yield from with_media(state, shown_rows, keep_lost=True)
    readable = yield from compute(lambda: [row for row in rows if is_readable(row)], turn.size)
    marks = Marks(state.secret, turn.thread_id, turn.user_id)
    return [marks.put(media_named(row.message), {}) if "media" in row.record else row.message for row in readable]


def _recalled(
    core: Core, turn: Turn, options: HistoryOptions, query: Query, ranking: Ranking, extra: int
) -> Plan[RecallResult]:
    """Fetch the best hits and their windows, without what the model is shown anyway. Messages are compared by seq."""
    past, present, _ = choose_shown(turn, options, turn.messages)
    shown_ids = turn.hidden_ids.union([message.id or "" for message in (*past, *present)])
    hidden_seqs = {*turn.followed.drop, *(turn.seqs[id] for id in shown_ids if id in turn.seqs)}

    said = (words_in(message) for message in reversed((*turn.history, *turn.messages)) if is_users(message))
    hidden = Hidden(encode(turn.thread_id).encode(), hidden_seqs, turn.question_seq)
    result = yield from traced(recall_for_turn(core, query, ranking, hidden, said, extra), query.text)
    repeated = {row.place for row in result.rows if row.place in hidden_seqs or row.place >= turn.question_seq}
    rows = [row for row in result.rows if row.thread_id != turn.thread_id or row.place not in repeated]
    return replace(result, rows=rows)


def read_history(
    state: MemoryState, thread_id: str, user_id: str | None, options: HistoryOptions
) -> Plan[list[BaseMessage]]:
    """Read what the history shows of a thread. One round trip."""
    turn = Turn(check_id(thread_id, "thread_id"), user_id or "", "part")  # no list is compared
    turn.head = _history_head(options, (), owner_tag(user_id))
    (reply,) = yield from send(READ.on(state.keys.of(thread_id), **turn.head))
    rows = _stored_messages(turn, read_reply(reply, thread_id, user_id), (), reply[1])
    messages = yield from _with_shown_media(state, turn, options, rows)
    history = without_excluded(messages, options, (), turn.totals)
    return provider_valid(fit(history, (), turn.totals, options, turn.cut)[0])
