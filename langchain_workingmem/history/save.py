"""Saving messages: prepared and embedded here, written by `write.lua` in one step, with vectors if the embedding model works."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.plan import LONG, Plan, Sleep, Spawn, compute, send
from langchain_workingmem._redis.access import guarded_write, owner_tag, read_reply, sweep_later, undone
from langchain_workingmem._redis.codec import UNREADABLE, as_messages, count_characters, draft_of, drafts
from langchain_workingmem._redis.facts import Facts
from langchain_workingmem._redis.indexes import NO_VECTORS
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.layout import check_layout
from langchain_workingmem._redis.scripts import READ, WRITE
from langchain_workingmem._text.said import is_blank, structured_answers
from langchain_workingmem._text.sending import has_mark
from langchain_workingmem._text.unicode import as_searched
from langchain_workingmem.errors import OptionError, ThreadConflictError, ThreadNotFoundError
from langchain_workingmem.history.follow import AS_STORED, Entry, Followed, Known, follow, is_one_turn
from langchain_workingmem.models import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage, MessageLikeRepresentation

    from langchain_workingmem._engine.plan import Argument
    from langchain_workingmem._redis.codec import Draft
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.history.follow import Kind

MOST = {"flat": 100_000, "hnsw": 10_000}  # messages and chunks of one step: they keep the server busy for 1 to 3 s
STEP = 500  # messages of a list that is new to memory, saved in one step
ATTEMPTS = 5  # of a write that supersedes, or that meets ids of stored messages

_log = logging.getLogger("langchain_workingmem")


# ---------------------------------------------------------------------- one step


def write(
    state: MemoryState,
    ready: Sequence[Draft],
    thread_id: str,
    user_id: str | None,
    **head: Any,
) -> Plan[tuple[dict[str, Any], Exception | None]]:
    """Embed messages and write them in one atomic step; return what the script has replied. One round trip.

    `head` are further fields of the first argument of `write.lua`. On an embedding failure, a size mismatch or a missing index: store
    without vectors, and return the error.
    """
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    texts = [text for draft in ready for text in draft.chunks if not draft.is_superseded]
    algorithm = state.recalling.index.algorithm if state.recall else "flat"
    if (count := len(ready) + len(texts)) > (most := MOST[algorithm]):
        seen = f"{count:,} messages and chunks in one atomic step, of at most {most:,} (with {algorithm})"
        raise OptionError(seen, remedy="save them in several calls")
    if not state.indexes.threads_ready:
        yield from state.indexes.ready()
    settings, vectors, failure = yield from embedded(state, texts)
    heads, arguments = _arguments(ready, vectors)
    call = WRITE.on(
        keys,
        *arguments,
        user=owner_tag(user_id),
        thread=encode(thread_id),
        ttl=state.ttl_ms,
        settings=settings,
        messages=heads,
        **head,
    )
    (found, *_), deleted = yield from guarded_write(state, thread_id, [user_id], call)
    if deleted is not None:
        if found.get("new"):  # else nothing was written, or only what is stored has changed
            new = [draft.id for draft in ready if draft.seq is None]
            version = found["version"] if found.get("is_new") else None
            yield from undone(state, thread_id, user_id or "", version, new)
        raise deleted
    if found.get("is_left"):
        yield from sweep_later(state, thread_id)
    if found.get("renew"):
        yield Spawn(renew_vectors(state, thread_id), task="ttl")
    return found, failure


def embedded(state: MemoryState, texts: Sequence[str]) -> Plan[tuple[str, list[bytes], Exception | None]]:
    """Embed texts; return the digest of the settings, the packed vectors, and why there are none. One call of the model."""
    indexes = state.indexes
    if not texts or state.recall is None:
        settings = indexes.index_digest(indexes.dims) if state.recall is not None and indexes.dims is not None else ""
        return settings, [], None
    try:
        found = yield from state.embedder.embed(texts)
        if indexes.dims != found.shape[1]:
            yield from indexes.vectors_ready(found.shape[1])
    except NO_VECTORS as error:
        return "", [], error
    return indexes.index_digest(found.shape[1]), indexes.pack(found), None


def _arguments(ready: Sequence[Draft], vectors: Sequence[bytes]) -> tuple[list[dict[str, Any]], list[Argument]]:
    """Return what `write.lua` reads of each message, and its body, vectors and media."""
    heads, arguments, waiting = list[dict[str, Any]](), list["Argument"](), iter(vectors)
    for draft in ready:
        chunks = draft.chunks if vectors and not draft.is_superseded else []
        heads.append({**draft.head(), "chunks": len(chunks)})
        arguments.append(draft.body)
        for text in chunks:
            arguments += (as_searched(text), next(waiting))
        arguments += [one.encode("utf-8", "surrogatepass") for one in draft.media]
    return heads, arguments


# ---------------------------------------------------------------------- appending and editing


def append(
    core: Core,
    messages: Iterable[MessageLikeRepresentation],
    thread_id: str,
    user_id: str | None,
    *,
    must_exist: bool = False,
    on_error: str | None = None,
) -> Plan[list[BaseMessage]]:
    """Save messages at the end of a thread; stored ones are replaced where they differ. With `must_exist` none is added.

    One round trip; one more where stored messages differ.
    """
    if not must_exist:
        check_id(user_id, "user_id")
    given = as_messages(messages)
    size, is_marked = count_characters(given), any(has_mark(message) for message in given)

    def prepare(given: list[BaseMessage]) -> list[Draft]:
        return drafts(given, core.state.recall, core.new_id, structured_answers(given, is_over=False))

    prepared = prepare(given) if size <= LONG and not is_marked else None  # mistakes show before the plan begins

    def plan() -> Plan[list[BaseMessage]]:
        own = given
        if is_marked:
            if core.state.secret is None:
                yield from check_layout(core.state)
            own = core.state.marks(check_id(thread_id, "thread_id"), user_id or "").opened(given)
            own = [one for one in own if not has_mark(one)]  # what is stored stands for it
        ready = (yield from compute(partial(prepare, own), size)) if prepared is None else prepared
        is_edit = True if must_exist else None
        failure = yield from _append(core.state, ready, thread_id, user_id, exists=is_edit, is_edit=is_edit)
        _tell(core, failure, thread_id, on_error)
        return [draft.message for draft in ready]

    return plan()


def _append(
    state: MemoryState,
    ready: Sequence[Draft],
    thread_id: str,
    user_id: str | None,
    *,
    exists: bool | None = None,
    is_edit: bool | None = None,
) -> Plan[Exception | None]:
    """Write messages; what is stored already is replaced where it differs. Return why there are no vectors."""
    todo, head = list({draft.id: draft for draft in ready}.values()), dict[str, Any]()
    for _ in range(ATTEMPTS):
        found, failure = yield from write(state, todo, thread_id, user_id, exists=exists, edit=is_edit, **head)
        if "known" not in found:
            yield from after_write(state, thread_id, user_id, found, todo)
            return failure
        todo, head = _differing(state, todo, found["known"], is_edit=bool(is_edit))
        if not todo and not head["back"]:
            return None
    raise ThreadConflictError(thread_id)


def _differing(
    state: MemoryState, ready: Sequence[Draft], known: Sequence[Any], *, is_edit: bool
) -> tuple[list[Draft], dict[str, Any]]:
    """Return what has still to be written of messages that may be stored: new ones, changed ones, and those without vectors."""
    todo, back, again, at = list["Draft"](), list[int](), dict[str, Any](), {place: rest for place, *rest in known}
    settings = state.indexes.index_digest(state.indexes.dims) if state.recall and state.indexes.dims else ""
    for place, draft in enumerate(ready):
        draft.seq = draft.facts = None
        if place not in at or not at[place][0]:
            again[draft.id] = True  # it may have been deleted
            todo.append(draft)
            continue
        text, is_current, digest = at[place]
        facts = Facts.read(text, is_current=is_current)
        if facts.is_structured and not draft.words:  # only a turn knows how it ends
            draft.words = facts.words
        if not is_current and not is_edit:
            back.append(facts.seq)
        if hashlib.sha1(draft.body, usedforsecurity=False).hexdigest() != digest or (facts.is_refused and is_edit):
            draft.seq = facts.seq
            todo.append(draft)
        elif is_current and draft.chunks and settings and facts.settings != settings:
            draft.facts = facts.text
            todo.append(draft)
    return todo, {"back": back, "again": again}


def rows_at(state: MemoryState, thread_id: str, seqs: Sequence[int]) -> Plan[dict[int, tuple[Facts, bytes | None]]]:
    """Return the facts and bodies of messages by seq. One round trip."""
    keys = state.keys.of(thread_id)
    asked = [("ZRANGE", key, seq, seq, "BYSCORE") for seq in seqs for key in (keys.order, keys.superseded)]
    bodies, *found = yield from send(("HMGET", keys.messages, *seqs), *asked)
    rows = dict[int, tuple[Facts, bytes | None]]()
    for at, seq in enumerate(seqs):
        current, superseded = found[2 * at : 2 * at + 2]
        if current or superseded:
            text = (current or superseded)[0].decode()
            rows[seq] = Facts.read(text, is_current=bool(current)), bodies[at]
    return rows


# ---------------------------------------------------------------------- a turn


def _said(draft: Draft) -> str:
    """Return what `follow` compares of a message: structured answers count as traffic."""
    return AS_STORED if has_mark(draft.message) else "" if draft.words.startswith("as") else draft.words


def read_known(state: MemoryState, thread_id: str, user_id: str | None, entries: Sequence[Entry]) -> Plan[Known]:
    """Read what the thread knows of a list. One round trip."""
    keys, head = state.keys.of(check_id(thread_id, "thread_id")), list_head(entries)
    (reply,) = yield from send(READ.on(keys, user=owner_tag(user_id), **head))
    return known_in(read_reply(reply, thread_id, user_id))


def list_head(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return what `read.lua` is told of a list: its ids, which of them are of questions and answers, and how many have no id."""
    named = [entry for entry in entries if entry.id]
    return {
        "ids": [entry.id for entry in named],
        "spoken": [bool(entry.words) for entry in named],
        "said": sum(1 for entry in entries if entry.words and not entry.id),
    }


def known_in(found: Mapping[str, Any]) -> Known:
    """Read the facts in a reply of `read.lua`."""
    if "next_seq" not in found:
        return Known(seen=0)
    rows = {text: Facts.read(text, is_current=True) for text in found.get("rows") or ()}
    rows |= {text: Facts.read(text, is_current=False) for text in found.get("others") or ()}
    if newest := found.get("newest"):
        rows.setdefault(newest, Facts.read(newest))
    return Known(
        rows=list(rows.values()),
        deleted=dict(found.get("deleted") or {}),
        seen=found["next_seq"],
        next_seq=found["next_seq"],
        version=found["version"],
        created_at=found["created_at"],
        is_all=bool(found.get("is_all")),
    )


def save_turn(
    core: Core,
    messages: Sequence[BaseMessage],
    thread_id: str,
    user_id: str,
    *,
    kind: Kind = "list",
    known: Known | None = None,
    asked: str | None = None,
    left_out: Collection[int] = (),
    structured: Collection[int] | None = None,
    title_model: BaseChatModel | None = None,
    on_error: str | None = None,
) -> Plan[tuple[list[BaseMessage], Known | None]]:
    """Save a turn, or the whole conversation that it ends; what the list has left is superseded in the same step.

    `known` is what was read of the thread for this turn, and `asked` the id of its question where that is stored: if thread or question
    was deleted meanwhile, nothing is stored. Returns the stored messages, and what is known of the thread now. One round trip; two more
    where the list has several turns and nothing was read, or where ids are stored already.
    """
    check_id(user_id, "user_id")
    given = [one for one in messages if not is_blank(one)]  # a blank question says nothing, but its answer does
    answers = structured_answers(given, is_over=True) if structured is None else structured
    prepare = partial(drafts, given, core.state.recall, core.new_id, answers)
    size = count_characters(given)
    ready = (yield from compute(prepare, size)) if size > LONG else prepare()
    saved = _SavingTurn(core, ready, thread_id, user_id, kind, asked, left_out)
    failure = yield from saved.run(known, title_model)
    _tell(core, failure, thread_id, on_error)
    return saved.stored(), saved.known


class _SavingTurn:
    """The steps of `save_turn`."""

    def __init__(
        self,
        core: Core,
        ready: list[Draft],
        thread_id: str,
        user_id: str,
        kind: Kind,
        asked: str | None,
        left_out: Collection[int],
    ) -> None:
        self.core, self.state, self.ready, self.kind, self.asked = core, core.state, ready, kind, asked
        self.thread_id, self.user_id = thread_id, user_id
        self.left_out = left_out
        self.entries = [Entry(draft.id if not draft.numbered else None, _said(draft)) for draft in ready]
        self.known: Known | None = None
        self.branch: Followed | None = None
        self.followed = Followed(new=[*range(len(ready))])
        self.is_gone = False

    def run(self, known: Known | None, title_model: BaseChatModel | None) -> Plan[Exception | None]:
        """Follow the list and write, until nobody was faster."""
        self.known, self.branch = known, known.branch if known else None
        guard: dict[str, Any] = {"created_at": known.created_at if known else None, "asked": self.asked}
        if not is_one_turn(self.entries) if known is None else known.until < inf:
            yield from self._read()
        for attempt in range(ATTEMPTS):
            if self.known is not None:
                self._follow(self.known)
            todo = self._todo()
            if not todo and not self.followed.changes_branch and not self._aliases():
                return None
            found, failure = yield from self._write(todo[:STEP], guard)
            if found.get("gone"):
                self.is_gone = True
                _log.warning("the turn is not saved: its question or thread %r was deleted meanwhile", self.thread_id)
                return None
            if "known" in found:
                if self._is_stored(todo, found["known"]):
                    return None
            elif not found.get("stale"):
                pairs = zip(todo, found["seqs"], strict=False)
                rows = [
                    Facts(seq, one.words, one.weight, 0, one.writer, "", one.id, "") for one, seq in pairs if seq >= 0
                ]
                self.known = (self.known or Known()).with_written(rows, self.followed, found["version"])
                yield from after_write(self.state, self.thread_id, self.user_id, found, todo[:STEP], title_model)
                return (yield from self._rest(todo[STEP:], failure))
            yield Sleep(0.01 * attempt, jitter=True)
            yield from self._read()
            guard["back"] = []  # the list was read: it says whether the question is current
        raise ThreadConflictError(self.thread_id)

    def _is_stored(self, todo: Sequence[Draft], known: Sequence[Any]) -> bool:
        """Tell whether all messages are stored as they are: the call was sent before, and its reply was lost."""
        facts = {place: Facts.read(text) for place, text, is_current, _ in known if text and is_current}
        return len(facts) == len(todo) == len(self.ready) and all(
            facts[place].words == draft.words for place, draft in enumerate(todo)
        )

    def stored(self) -> list[BaseMessage]:
        """Return the messages that are stored now, with their stored ids."""
        if self.is_gone:
            return []
        done = self.followed
        kept = {*done.new, *done.seqs}
        return [_with_id(draft, done.aliases.get(at, draft.id)) for at, draft in enumerate(self.ready) if at in kept]

    def _read(self) -> Plan[None]:
        found, before = (yield from read_known(self.state, self.thread_id, self.user_id, self.entries)), self.known
        if before is not None:
            found = replace(found, seen=before.seen, until=before.until, own=before.own)
        self.known = found

    def _follow(self, known: Known) -> None:
        self._rename(known)
        self.followed = done = follow(self.entries, self.kind, known, self.left_out)
        if self.branch is not None:
            done.drop = sorted({*done.drop, *self.branch.drop} - {*done.seqs.values()})
            done.back = sorted({*done.back, *self.branch.back})
        if self.followed.is_older:
            raise OptionError(
                f"the messages begin with some that are older than thread {self.thread_id!r}, which grows only at its end",
                remedy="save only those that are new; an older conversation is stored whole if its thread is new to memory",
            )

    def _rename(self, known: Known) -> None:
        """Give answers of this turn ids of ours where a message in front of the question has theirs: caches repeat ids."""
        asked = max((at for at, entry in enumerate(self.entries) if entry.words.startswith("q")), default=None)
        if asked is None:
            return
        rows = {row.id: row.seq for row in known.rows}
        question = rows.get(self.entries[asked].id or "", known.next_seq)
        for at in range(asked + 1, len(self.entries)):
            if rows.get(self.ready[at].id, question) < question:
                message = self.ready[at].message.model_copy(update={"id": self.core.new_id()})
                structured = self.ready[at].words.startswith("as")
                self.ready[at] = draft_of(message, self.state.recall, structured=structured)
                self.entries[at] = self.entries[at]._replace(id=message.id)

    def _todo(self) -> list[Draft]:
        """Return the messages to write, in order."""
        done, todo = self.followed, list["Draft"]()
        is_first = self.known is not None and not self.known.rows and self.kind == "list"
        last = max((at for at, entry in enumerate(self.entries) if entry.words.startswith("q")), default=0)
        for at in sorted({*done.new, *done.edited}):
            draft = self.ready[at]
            draft.seq = done.edited.get(at)
            # what stands in front of the first question of a list may be examples, or a greeting
            draft.writer = "b" if is_first and at < last else done.writer
            todo.append(draft)
        return todo

    def _aliases(self) -> dict[str, str]:
        """Return the ids of a state whose messages are stored under others."""
        if self.kind != "state":
            return {}
        return {self.entries[at].id or "": id for at, id in self.followed.aliases.items() if self.entries[at].id}

    def _write(self, some: Sequence[Draft], guard: Mapping[str, Any]) -> Plan[tuple[dict[str, Any], Exception | None]]:
        done, known = self.followed, self.known
        head: dict[str, Any] = {
            **guard,
            "again": {**done.again, **dict.fromkeys(known.deleted if known else (), True)} or None,
        }
        if done.changes_branch and known is not None:
            head |= {"version": known.version, "drop": known.ranges(done.drop), "back": done.back}
        return (
            yield from write(self.state, some, self.thread_id, self.user_id, aliases=self._aliases() or None, **head)
        )

    def _rest(self, todo: Sequence[Draft], failure: Exception | None) -> Plan[Exception | None]:
        """Write what is left of a long list; stored messages are replaced where they differ."""
        for start in range(0, len(todo), STEP):
            some = todo[start : start + STEP]
            try:
                more = yield from _append(self.state, some, self.thread_id, self.user_id, exists=True)
            except ThreadNotFoundError:  # deleted meanwhile
                self.is_gone = True
                break
            failure = failure or more
        return failure


def _with_id(draft: Draft, id: str) -> BaseMessage:
    """Return the message with its stored id, which is another one where it was recognised by its words."""
    if draft.numbered:
        draft.message.id = id
    return draft.message if draft.message.id == id else draft.message.model_copy(update={"id": id})


# ---------------------------------------------------------------------- behind a write


def after_write(
    state: MemoryState,
    thread_id: str,
    user_id: str | None,
    found: Mapping[str, Any],
    written: Sequence[Draft],
    model: BaseChatModel | None = None,
) -> Plan[None]:
    """Let the background make a title, and vectors of what is current again; tell those who take part in turns."""
    for part in state.parts:
        yield from part.written(state, thread_id, user_id, sum(draft.weight for draft in written))
    if state.title is not None and found.get("new") and not found.get("is_titled"):
        from langchain_workingmem.history.titles import schedule

        yield from schedule(state, thread_id, user_id, found["count"], model)
    if state.recall is not None and (bare := found.get("bare")):
        yield Spawn(embed_again(state, thread_id, bare), task="vectors")


def embed_again(state: MemoryState, thread_id: str, seqs: Sequence[int]) -> Plan[None]:
    """Give vectors to messages that are current again. Two round trips."""
    rows = yield from rows_at(state, thread_id, seqs)
    yield from heal(state, thread_id, [pair for pair in rows.values() if pair[0].is_current])


def heal(state: MemoryState, thread_id: str, rows: Iterable[tuple[Facts, bytes | None]]) -> Plan[int]:
    """Give new vectors to messages, unless they change meanwhile; return how many. One round trip; raises what embedding raises."""
    ready = list["Draft"]()
    for facts, body in rows:
        try:
            message = StoredMessage.of(body, thread_id, facts.seq).message
        except UNREADABLE:
            continue  # it cannot be read: the doctor names it
        draft = draft_of(message, state.recalling, structured=facts.is_structured)
        draft.facts, draft.body = facts.text, b""
        draft.media = []
        ready.append(draft)
    if not ready:
        return 0
    _, failure = yield from write(state, ready, thread_id, None, exists=True)
    if failure is not None:
        raise failure
    return sum(bool(draft.chunks) for draft in ready)


def renew_vectors(state: MemoryState, thread_id: str) -> Plan[None]:
    """Let the vectors of a thread live for twice its ttl again. One round trip for each 500 messages."""
    keys, after = state.keys.of(thread_id), "-inf"
    (about,) = yield from send(("HMGET", keys.thread, "ttl", "last_at"))
    if about[0] is None:
        return
    until = min(int(about[1]) // 1000 + 2 * int(about[0]), 9_223_372_036_854)
    while True:
        (members,) = yield from send(("ZRANGE", keys.order, after, "+inf", "BYSCORE", "LIMIT", 0, STEP))
        found = [Facts.read(member.decode()) for member in members]
        names = [name for facts in found for name in vector_names(keys.vector, facts)]
        if names:
            yield from send(*(("PEXPIREAT", name, until) for name in names))
        if len(found) < STEP:
            break
        after = f"({found[-1].seq}"
    yield from send(("HSET", keys.thread, "vectors_until", until))


def vector_names(prefix: str, facts: Facts) -> list[str]:
    """Return the keys of the vectors of a message."""
    if not facts.vectors:
        return []
    _, size, chunks = facts.vectors.split("/")
    return [f"{prefix}{facts.seq}:{chunk}:{size}" for chunk in range(int(chunks))]


def _tell(core: Core, failure: Exception | None, thread_id: str, on_error: str | None = None) -> None:
    """Raise or log that messages are stored without vectors."""
    if failure is None:
        return
    note = f"the messages are stored without vectors; memory.recall.reindex(thread_id={thread_id!r}) adds them"
    if (on_error or core.on_error) == "raise":
        failure.add_note(note)
        raise failure
    _log.warning("%s; %s", failure, note)
