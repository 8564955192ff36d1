"""Saving messages: prepared and embedded here, written by `write.lua` in one step."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.plan import Plan, Spawn, compute, jittered, send
from langchain_workingmem._redis.codec import UNREADABLE, as_messages, count_characters, draft_of, drafts
from langchain_workingmem._redis.indexes import EMBEDDING_ERRORS, check_layout
from langchain_workingmem._redis.keys import IN_FRONT, Facts, check_id, encode
from langchain_workingmem._redis.queries import pack
from langchain_workingmem._redis.scripts import READ, WRITE, guarded_write, owner_tag, read_reply, sweep, undo
from langchain_workingmem._text.messages import is_blank, structured_answers
from langchain_workingmem._text.sending import MARK, Marks
from langchain_workingmem._text.unicode import as_searched
from langchain_workingmem._text.values import shown, to_micros
from langchain_workingmem.checks import as_tuple
from langchain_workingmem.errors import OptionError, ThreadConflictError
from langchain_workingmem.history.follow import AS_STORED, Entry, Followed, Known, follow, is_one_turn, last_question
from langchain_workingmem.models import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage, MessageLikeRepresentation

    from langchain_workingmem._engine.plan import Argument, Command
    from langchain_workingmem._redis.codec import Draft
    from langchain_workingmem._redis.keys import ThreadKeys
    from langchain_workingmem._redis.state import Core, MemoryState
    from langchain_workingmem.history.follow import Kind

MOST_AT_ONCE = {"flat": 100_000, "hnsw": 10_000}  # messages and chunks: they keep the server busy for 1 to 3 s
STEP_SIZE = 500  # messages of a list that is new to memory, saved in one step
MINUTE = 60 * 1_000_000  # microseconds, by which clocks may differ
ATTEMPTS = 5  # of a write that supersedes, or that meets ids of stored messages

_log = logging.getLogger("langchain_workingmem")


def write(
    state: MemoryState,
    batch: Sequence[Draft],
    thread_id: str,
    user_id: str | None,
    ready_vectors: tuple[str, Sequence[bytes]] | None = None,  # index digest, and the vectors of all chunks
    *,
    at_most_once: bool = False,
    **head: Any,  # more for the first argument of `write.lua`
) -> Plan[tuple[dict[str, Any], Exception | None]]:
    """Embed messages and write them in one atomic step; return the reply, and why there are no vectors."""
    keys, indexes = state.keys.of(check_id(thread_id, "thread_id")), state.indexes
    texts = [text for draft in batch for text in draft.chunks if not draft.is_superseded]
    algorithm = state.recalling.index.algorithm if state.recall else "flat"
    if (count := len(batch) + len(texts)) > (limit := MOST_AT_ONCE[algorithm]):
        problem = f"{count:,} messages and chunks in one atomic step, of at most {limit:,} (with {algorithm})"
        raise OptionError(problem, remedy="save them in several calls")
    if not indexes.threads_ready:
        yield from indexes.ready()
    settings, vectors = (indexes.digest, []) if ready_vectors is None else ready_vectors
    failure: Exception | None = None
    if texts and state.recall and ready_vectors is None:
        try:
            embedded = yield from state.embedder.embed(texts)
            if indexes.dims != embedded.shape[1]:
                yield from indexes.vectors_ready(embedded.shape[1])
            settings, vectors = indexes.digest, pack(embedded, indexes.dtype, state.recall.index.distance)
        except EMBEDDING_ERRORS as error:
            settings, failure = "", error
    head |= {"user": owner_tag(user_id), "thread": encode(thread_id), "ttl": state.ttl_ms, "settings": settings}
    build = partial(_command, keys, batch, vectors, head)
    command = yield from compute(build, sum([len(draft.body) for draft in batch]))
    (reply, *_), deletion = yield from guarded_write(state, thread_id, [user_id], command, at_most_once=at_most_once)
    if deletion is not None:
        if reply.get("new"):  # else nothing was written, or only what is stored has changed
            new_ids = [batch[index].id for index in reply["new"]]
            version = reply["version"] if reply.get("is_new") else None
            yield from undo(state, thread_id, user_id or "", version, new_ids)
        raise deletion
    if reply.get("is_left"):
        yield Spawn(sweep(state, thread_id), task="sweep")
    return reply, failure


def _command(keys: ThreadKeys, batch: Sequence[Draft], vectors: Sequence[bytes], head: Mapping[str, Any]) -> Command:
    """Build the call of `write.lua`, with the body of each message, its vectors and its media."""
    heads, arguments, remaining = list[dict[str, Any]](), list["Argument"](), iter(vectors)
    for draft in batch:
        chunks = draft.chunks if vectors and not draft.is_superseded else []
        fields: dict[str, Any] = {
            "id": draft.id,
            "digest": draft.digest,
            "tokens": draft.weight,
            "writer": draft.writer,
            "role": draft.role,
            "length": draft.length,
            "author": draft.author,
            "chunks": len(chunks),
        }
        rare: dict[str, Any] = {"seq": draft.seq, "facts": draft.facts, "at": draft.at}
        rare |= {"media": len(draft.media) or None, "is_superseded": draft.is_superseded or None}
        rare |= {"labels": draft.labels, "metadata": draft.metadata} if draft.metadata else {}
        heads.append(fields | {name: value for name, value in rare.items() if value is not None})
        arguments.append(draft.body)
        for text in chunks:
            arguments += (as_searched(text), next(remaining))
        arguments += [string.encode("utf-8", "surrogatepass") for string in draft.media]
    return WRITE.on(keys, *arguments, messages=heads, **head)


# ---------------------------------------------------------------------- appending and editing


def append(
    core: Core,
    messages: Iterable[MessageLikeRepresentation],
    thread_id: str,
    user_id: str | None,
    *,
    said_at: datetime | Sequence[datetime] | None = None,
    must_exist: bool = False,
    on_error: str | None = None,
) -> Plan[list[BaseMessage]]:
    """Save messages at the end of a thread; stored ones are replaced where they differ. One round trip."""
    state, listed = core.state, as_messages(messages)
    times = _times(said_at, len(listed))
    if not must_exist:
        check_id(user_id, "user_id")
    restored = yield from unmarked(state, listed, thread_id, user_id or "")
    restored = [copy for copy in restored if MARK not in copy.additional_kwargs]  # a copy's original is stored
    answers = structured_answers(restored, is_over=False)
    prepare = partial(drafts, restored, state.recall, core.new_id, answers)
    batch = yield from compute(prepare, count_characters(restored))
    time_of = {message.id: time for message, time in zip(listed, times, strict=True)}  # each has an id now
    for draft in batch:
        draft.at = time_of.get(draft.id)
    unique = [*{draft.id: draft for draft in batch}.values()]
    head: dict[str, Any] = {"edit": True, "exists": True} if must_exist else {}
    reply, failure = yield from write(state, unique, thread_id, user_id, upsert=True, **head)
    if not reply.get("is_same"):
        yield from after_write(state, thread_id, user_id, reply, unique)
        if failure is not None:
            _raise_or_log(core, failure, thread_id, on_error)
    return [draft.message for draft in batch]


def unmarked(
    state: MemoryState, messages: Sequence[BaseMessage], thread_id: str, user_id: str
) -> Plan[list[BaseMessage]]:
    """Return messages as they were before memory changed them; a process that never asked Redis reads the secret."""
    if state.secret is None and any(MARK in message.additional_kwargs for message in messages):
        yield from check_layout(state)
    return Marks(state.secret, check_id(thread_id, "thread_id"), user_id).unmarked(messages)


def _times(said_at: datetime | Sequence[datetime] | None, number: int) -> list[int | None]:
    """Return when messages were said, in microseconds, or None for each."""
    if said_at is None:
        return [None] * number
    times = [said_at] * number if isinstance(said_at, str | datetime) else as_tuple(said_at, "said_at", "times")
    if len(times) != number:
        raise OptionError(f"{len(times)} times for {number} messages", remedy="pass one time, or one for each message")
    micros = [to_micros(time) for time in times]
    bounds = [0, *micros, to_micros(datetime.now(UTC)) + MINUTE]
    if bounds != sorted(bounds):
        problem = f"the times {shown(times)} of said_at do not rise from 1970 to now"
        raise OptionError(problem, remedy="pass the times at which the messages were said, in that order")
    return [*micros]


# ---------------------------------------------------------------------- a turn


def list_head(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return what `read.lua` is told of a list: its ids, which are of what was said, and how much has no id."""
    with_id = [entry for entry in entries if entry.id]
    return {
        "ids": [entry.id for entry in with_id],
        "spoken": [bool(entry.digest) for entry in with_id],
        "said": sum(1 for entry in entries if entry.digest and not entry.id),
    }


def known_in(reply: Mapping[str, Any], before: Known | None = None) -> Known:
    """Read the facts in a reply of `read.lua`; what was known `before` says what the caller has seen and written."""
    facts = {text: Facts.read(text, is_current=True) for text in reply.get("rows") or ()}
    facts |= {text: Facts.read(text, is_current=False) for text in reply.get("others") or ()}
    if newest := reply.get("newest"):
        facts.setdefault(newest, Facts.read(newest))
    next_seq = reply.get("next_seq", 0)
    return replace(
        before or Known(next_seq_when_read=next_seq),
        facts=[*facts.values()],
        deleted=dict(reply.get("deleted") or {}),
        aliases=dict(reply.get("aliases") or {}),
        next_seq=next_seq,
        version=reply.get("version"),
        created_at=reply.get("created_at"),
        is_all=bool(reply.get("is_all")),
    )


def save_turn(
    core: Core,
    messages: Sequence[BaseMessage],
    thread_id: str,
    user_id: str,
    *,
    kind: Kind = "list",
    known: Known | None = None,  # what was read of the thread for this turn
    question_id: str | None = None,  # where its question is stored: if that was deleted meanwhile, nothing is saved
    left_out: Collection[int] = (),
    keeps_all: bool = False,
    structured: Collection[int] | None = None,
    title_model: BaseChatModel | None = None,
) -> Plan[tuple[list[BaseMessage], Known | None]]:
    """Save a turn, or the conversation that it ends; return the stored messages, and what is known of the thread now.

    The messages are prepared, compared with the thread, and written; if somebody else has changed that meanwhile, it is
    read and compared again. One round trip; one more for several turns of which nothing was read, two more where ids
    are stored already.
    """
    state, listed = core.state, [message for message in messages if not is_blank(message)]  # blank ones say nothing
    answers = structured_answers(listed, is_over=True) if structured is None else structured
    batch = yield from compute(partial(drafts, listed, state.recall, core.new_id, answers), count_characters(listed))
    batch = [*{draft.id: draft for draft in batch}.values()]  # of an id that comes twice, the last one counts
    entries = [entry_of(draft.message, None if draft.has_new_id else draft.id, draft.digest) for draft in batch]
    followed = Followed(new=[*range(len(batch))])
    created_at = known.created_at if known else None
    # a new turn is not compared with the thread; what was read for this turn suffices until it is saved
    is_new_turn = known is None and kind != "state" and is_one_turn(entries)
    is_fresh = known is not None and not known.is_saved
    known = known if is_new_turn or is_fresh else (yield from _read(state, (thread_id, user_id), entries, known))
    for attempt in range(ATTEMPTS):
        if known is not None:
            followed = follow(entries, kind, known, left_out, keeps_all=keeps_all)
        if followed.is_older:
            raise OptionError(
                f"the messages begin with some that are older than thread {thread_id!r}, which grows only at its end",
                remedy="save those that are new; an older conversation is stored whole if its thread is new to memory",
            )
        if followed.aliases or followed.need_ids:
            _give_ids(core, batch, entries, followed)
        # what a list has in front of a thread's first question may be examples
        question_at = last_question(entries) if kind == "list" and known is not None and not known.facts else 0
        for index, draft in enumerate(batch):
            draft.seq, draft.writer = followed.edited.get(index), IN_FRONT if index < question_at else followed.writer
        stored = [batch[index].message for index in sorted({*followed.new, *followed.seqs})]
        changed = [batch[index] for index in sorted({*followed.new, *followed.edited})]
        head = _branch_head(followed, known, entries, kind) | {"question": question_id, "created_at": created_at}
        # a new turn that is saved again, and is current, says nothing about what others have saved since
        if not (changed or head["aliases"] or (followed.bring_back if is_new_turn else followed.changes_branch)):
            return stored, known
        # one that was compared meets no surprise where its question is superseded
        head |= {"compared": followed.changes_branch or attempt > 0 or None}
        reply, failure = yield from write(state, changed[:STEP_SIZE], thread_id, check_id(user_id, "user_id"), **head)
        if reply.get("is_deleted"):
            _log.warning("the turn is not saved: its question or thread %r was deleted meanwhile", thread_id)
            return [], known
        if any(changed[index].has_new_id for index in reply.get("known") or ()):  # written, but the reply was lost
            reply, failure = yield from write(state, changed[:STEP_SIZE], thread_id, user_id, upsert=True, exists=True)
        if "seqs" in reply:  # it is written; else others have stored some of it, or changed the thread
            break
        yield jittered(0.01 * attempt)
        known = yield from _read(state, (thread_id, user_id), entries, known)
    else:
        raise ThreadConflictError(thread_id)
    pairs = zip(changed, reply["seqs"], strict=False)
    facts = [Facts(seq, new.digest, new.weight, 0, new.writer, "", new.id, "") for new, seq in pairs if seq >= 0]
    known = (known or Known()).with_written(facts, followed, reply["version"])
    yield from after_write(state, thread_id, user_id, reply, changed[:STEP_SIZE], title_model)
    for start in range(STEP_SIZE, len(changed), STEP_SIZE):
        step = changed[start : start + STEP_SIZE]
        reply, step_failure = yield from write(state, step, thread_id, user_id, upsert=True, exists=True)
        yield from after_write(state, thread_id, user_id, reply, step)
        failure = failure or step_failure
    if failure is not None:
        _raise_or_log(core, failure, thread_id)
    return stored, known


def _branch_head(followed: Followed, known: Known | None, entries: Sequence[Entry], kind: Kind) -> dict[str, Any]:
    """Return what `write.lua` is told of ids and branches; a change of branch is decided on a version of the thread."""
    renamed = followed.aliases.items() if kind == "state" else ()
    basis = known if followed.changes_branch else None
    return {
        "aliases": {entries[index].id: id for index, id in renamed if entries[index].id} or None,
        "again": dict.fromkeys(known.deleted if known else (), -1) | followed.again,
        "version": basis and basis.version,
        "drop": basis and basis.ranges(followed.drop),
        "bring_back": followed.bring_back if basis else None,
    }


def _read(state: MemoryState, ids: tuple[str, str], entries: Sequence[Entry], before: Known | None) -> Plan[Known]:
    """Read what is known of a thread for a list. One round trip."""
    keys, user = state.keys.of(check_id(ids[0], "thread_id")), owner_tag(ids[1])
    (reply,) = yield from send(READ.on(keys, user=user, **list_head(entries)))
    return known_in(read_reply(reply, *ids), before)


def _give_ids(core: Core, batch: list[Draft], entries: list[Entry], followed: Followed) -> None:
    """Give messages the ids under which they are stored: a new one where others have it, or that of the stored one."""
    ids = followed.aliases | {index: core.new_id() for index in followed.need_ids}
    for index in [index for index in followed.new if index in ids]:
        message = batch[index].message.model_copy(update={"id": ids[index]})
        batch[index] = draft_of(message, core.state.recall, structured=batch[index].digest.startswith("as"))
        entries[index] = entries[index]._replace(id=message.id)
    for index, draft in enumerate(batch):
        id = followed.aliases.get(index, draft.id)
        if draft.has_new_id:
            draft.message.id = id
        elif draft.message.id != id:
            draft.message = draft.message.model_copy(update={"id": id})


def entry_of(message: BaseMessage, id: str | None, digest: str) -> Entry:
    """Return what `follow` compares of a message; structured answers count as traffic."""
    id = id and check_id(id, "message id")
    if digest.startswith("as"):
        return Entry(id, "", "a")
    spoken = AS_STORED if MARK in message.additional_kwargs else digest
    return Entry(id, spoken, spoken[:1])


def after_write(
    state: MemoryState,
    thread_id: str,
    user_id: str | None,
    reply: Mapping[str, Any],
    written: Sequence[Draft],
    model: BaseChatModel | None = None,
) -> Plan[None]:
    """Let the background make a title, and vectors of what is current again; tell those who take part in turns."""
    for part in state.parts:
        yield from part.written(state, thread_id, user_id, sum(draft.weight for draft in written))
    if state.title is not None and reply.get("new") and not reply.get("is_titled"):
        from langchain_workingmem.history.titles import schedule

        yield from schedule(state, thread_id, user_id, reply["count"], model)
    if state.recall is not None and (seqs := reply.get("without_vectors")):
        yield Spawn(embed_again(state, thread_id, seqs), task="vectors")


def embed_again(state: MemoryState, thread_id: str, seqs: Sequence[int]) -> Plan[None]:
    """Give vectors to messages that are current again. Two round trips."""
    keys = state.keys.of(thread_id)
    commands = (("ZRANGE", keys.order, seq, seq, "BYSCORE") for seq in seqs)
    bodies, *replies = yield from send(("HMGET", keys.messages, *seqs), *commands)
    pairs = zip(replies, bodies, strict=True)
    yield from heal(state, thread_id, [(Facts.read(reply[0].decode()), body) for reply, body in pairs if reply])


def heal(state: MemoryState, thread_id: str, rows: Iterable[tuple[Facts, bytes | None]]) -> Plan[int]:
    """Give new vectors to messages, unless they change meanwhile; return how many. Raises what embedding raises."""
    batch = list["Draft"]()
    for facts, body in rows:
        if facts.is_refused:  # nobody searches for it
            continue
        try:
            message = StoredMessage.of(body, thread_id, facts.seq).message
        except UNREADABLE:
            continue  # it cannot be read: the doctor names it
        draft = draft_of(message, state.recalling, structured=facts.is_structured)
        draft.facts, draft.body, draft.media = facts.text, b"", []
        batch.append(draft)
    if not batch:
        return 0
    _, failure = yield from write(state, batch, thread_id, None, exists=True)
    if failure is not None:
        raise failure
    return sum(bool(draft.chunks) for draft in batch)


def _raise_or_log(core: Core, failure: Exception, thread_id: str, on_error: str | None = None) -> None:
    """Raise or log that messages are stored without vectors."""
    note = f"the messages are stored without vectors; memory.recall.reindex(thread_id={thread_id!r}) adds them"
    if (on_error or core.on_error) == "raise":
        failure.add_note(note)
        raise failure
    _log.warning("%s; %s", failure, note)
