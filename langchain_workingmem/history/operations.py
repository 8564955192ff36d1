"""Plans over the messages of a thread."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from langchain_core.messages import HumanMessage

from langchain_workingmem._engine.plan import LONG, Call, Plan, Spawn, compute, send
from langchain_workingmem._redis.access import (
    SWEEP_SIZE,
    continue_sweep,
    guarded_write,
    owner_tag,
    run_script,
    sweep_now,
)
from langchain_workingmem._redis.codec import as_messages, count_characters, decode_message, draft_stored, drafts
from langchain_workingmem._text.clock import to_micros
from langchain_workingmem._redis.indexes import NO_VECTORS
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.rooms import load, load_keeping, tell_deleted
from langchain_workingmem._redis.scripts import COMMON, DELETE, Script
from langchain_workingmem._text.said import is_blank, structured_answers, weight_of
from langchain_workingmem._text.searched import as_searched
from langchain_workingmem.checks import at_least
from langchain_workingmem.errors import OptionError, RedisReplyError
from langchain_workingmem.history.branch import NO_BRANCH, Branch
from langchain_workingmem.history.rows import READ

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage, MessageLikeRepresentation

    from langchain_workingmem._engine.plan import Argument, Command
    from langchain_workingmem._redis.codec import Draft
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.history.rows import MessageSelection
    from langchain_workingmem.options import OnError

BRANCH_WRITE = Script("history/write", *COMMON, "said", "supersede", "history/branch", "history/compare")
WRITE = Script("history/write", *COMMON, "said", branch=BRANCH_WRITE)
REFUSE = Script("history/refuse", *COMMON, "said")
MOST_AT_ONCE = {"flat": 100_000, "hnsw": 10_000}  # messages and chunks: they keep the server busy for 1 to 3 s
BATCH = 100  # messages of a conversation that is new to memory, saved in one step
STEP = 20  # messages that are edited in one step where a log has to forget them, as many as are deleted (hooks.lua)

_MANY = 400  # messages and chunks whose arguments take some milliseconds

_log = logging.getLogger("langchain_workingmem")
_ONE_TURN = re.compile("q+a*|").fullmatch

Mode: TypeAlias = Literal["append", "turn", "update", "heal"]
Part: TypeAlias = Literal["", "rest", "older", "last"]


def save_messages(
    core: Core,
    messages: Iterable[MessageLikeRepresentation],
    thread_id: str,
    user_id: str | None,
    *,
    mode: Mode = "append",
    on_error: OnError | None = None,
    branch: Branch | None = None,
    title_model: BaseChatModel | None = None,
    structured: Collection[int] | None = None,
    earlier: Sequence[BaseMessage] = (),
) -> Plan[list[BaseMessage]]:
    """Plan to save messages, with vectors if the embedding model works; with a `branch`, as those of a turn, without blank questions.

    `title_model` makes a title where `TitleOptions` have no model. `structured` are the structured answers among the messages;
    None: they are found by their shape. What the caller holds `earlier` is saved first, in batches, if the thread is new.
    """
    if mode != "update":
        check_id(user_id, "user_id")
    given = as_messages(messages)
    if branch is not None:  # of a turn: a blank question says nothing, but its answer does
        given = [one for one in given if not is_blank(one)]
    size = count_characters(given)
    answers = structured_answers([*earlier, *given], is_over=mode == "turn") if structured is None else structured
    prepare = partial(drafts, given, core.state.recall, core.new_id, answers)
    prepared = prepare() if size <= LONG else None  # mistakes show before the plan begins
    write = partial(write_messages, core.state, thread_id=thread_id, user_id=user_id, title_model=title_model)

    def save() -> Plan[list[BaseMessage]]:
        ready = (yield from compute(prepare, size)) if prepared is None else prepared
        try:
            if mode == "update" and len(ready) > STEP and (yield from _is_covered(core.state, thread_id, ready)):
                stored, failure = yield from write(ready[:STEP], mode=mode)
                for start in range(STEP, len(ready), STEP):
                    edited, failed = yield from write(ready[start : start + STEP], mode=mode)
                    stored, failure = [*stored, *edited], failure or failed
            else:
                stored, failure = yield from write(ready, mode=mode, branch=branch, part="rest" if earlier else "")
        except RedisReplyError as error:
            if error.code != "WMNEW":
                raise
            asked = next((at for at, one in enumerate(earlier) if isinstance(one, HumanMessage)), len(earlier))
            older = earlier[asked:]  # a greeting in front of the first question is no conversation yet
            begun = replace(branch or Branch(), anchor=older[0].id or "" if older else "")
            for start in range(0, len(older), BATCH):
                some = older[start : start + BATCH]
                making = partial(drafts, some, core.state.recall, core.new_id, answers)
                made = yield from compute(making, count_characters(some))
                yield from write(made, mode="append", branch=begun, part="older")
            stored, failure = yield from write(ready, mode=mode, branch=begun, part="last")
        kept = core.state.working_memory
        if kept is not None and kept.keeper is not None:
            tokens = weight_of([*earlier, *given]) if kept.keep_after and mode != "update" else 0
            yield from load_keeping().keep_later(core.state, thread_id, user_id, tokens)
        if failure is not None:
            note = f"the messages are stored without vectors; memory.recall.reindex(thread_id={thread_id!r}) adds them"
            if (on_error or core.on_error) == "raise":
                failure.add_note(note)
                raise failure
            _log.warning("%s; %s", failure, note)
        return stored

    return save()


def _is_covered(state: MemoryState, thread_id: str, drafts: Sequence[Draft]) -> Plan[bool]:
    """Tell whether a thread has a log and all of some messages. One round trip."""
    keys, ids = state.keys.of(check_id(thread_id, "thread_id")), [draft.id for draft in drafts]
    covered, order, superseded = yield from send(
        ("HEXISTS", keys.thread, "covered"), ("ZMSCORE", keys.order, *ids), ("ZMSCORE", keys.superseded, *ids)
    )
    return bool(covered) and all(
        one is not None or other is not None for one, other in zip(order, superseded, strict=True)
    )


def write_messages(
    state: MemoryState,
    drafts: Sequence[Draft],
    thread_id: str,
    user_id: str | None,
    mode: Mode,
    branch: Branch | None = None,
    title_model: BaseChatModel | None = None,
    *,
    part: Part = "",
) -> Plan[tuple[list[BaseMessage], Exception | None]]:
    """Embed messages, then write them in one atomic step. One round trip.

    On an embedding failure, a size mismatch or a missing index: store without vectors, and return the error.
    With a `branch`, the same step supersedes what the caller's list left behind. Mode "turn" also compares the messages with
    the thread: messages without stored ids get the ids of equal stored messages. `part` is "rest" for the end of a list, which the
    reply WMNEW refuses where the thread is new; then "older" for each batch before it, and "last" for the end.
    """
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    owner = owner_tag(user_id)
    texts = [text for draft in drafts for text in draft.chunks]
    algorithm = state.recalling.index.algorithm if state.recall else "flat"
    if (count := len(drafts) + len(texts)) > (most := MOST_AT_ONCE[algorithm]):
        raise OptionError(
            f"{count:,} messages and chunks in one atomic step, of at most {most:,} (with {algorithm})",
            remedy="save them in several calls",
        )
    yield from state.indexes.ready()
    vectors: list[bytes] = []
    digest, failure = "", None
    if texts:
        try:
            found = yield from state.embedder.embed(texts)
            yield from state.indexes.vectors_ready(found.shape[1])
            vectors = state.indexes.pack(found)
            digest = state.indexes.index_digest(found.shape[1])
        except NO_VECTORS as error:
            failure = error
    elif state.recall is not None and state.indexes.dims is not None:
        digest = state.indexes.index_digest(state.indexes.dims)
    is_list = mode == "turn" and not _is_one_turn(drafts)
    sent = "list" if is_list else mode
    head: list[Argument] = [sent, owner, encode(thread_id), digest, state.ttl_ms or "", part]
    head += NO_BRANCH if branch is None else branch.arguments(drafts)
    ids = {str(number): draft.id for number, draft in enumerate(drafts)}

    def undo(reply: Any, _: str) -> Command:
        return DELETE.call(keys.all, owner, SWEEP_SIZE, "undo", reply[3], *ids.values())

    appending = mode in {"append", "turn"}
    removed = branch.removed if branch else ""
    room = state.hooks or (load("observations") if removed else None)
    compares = is_list or (branch is not None and branch.has_changes)
    parts = (BRANCH_WRITE if compares else WRITE, keys.all, head, drafts, vectors)
    call = _call(*parts) if count < _MANY else (yield from Call(partial(_call, *parts)))
    beside: list[Command] = []
    if room is not None:
        tokens = sum(draft.weight for draft in drafts) if appending else None
        call, beside = room.saving(state, thread_id, user_id, call, removed, tokens)
    _, count, titled, _, stored, revived, left, *told = yield from guarded_write(
        state, thread_id, [user_id], call, undo if appending else None, message_ids=ids, beside=beside
    )
    if appending and not titled and state.title is not None:
        from langchain_workingmem.history.titles import schedule

        yield from schedule(state, thread_id, user_id, count, title_model)
    if left:
        yield from continue_sweep(state, thread_id, left)
    if told:
        yield from load("observations").saved(state, thread_id, user_id, told)
    if revived and state.recall is not None:
        yield Spawn(_embed_again(state, thread_id, [id.decode() for id in revived]))
    return [_with_id(draft, id.decode()) for draft, id in zip(drafts, stored, strict=False)], failure


def _call(
    script: Script, keys: Sequence[str], head: Sequence[Argument], drafts: Sequence[Draft], vectors: Sequence[bytes]
) -> Command:
    """Build the call of a script that writes messages."""
    arguments, waiting = [*head], iter(vectors)
    for draft in drafts:
        chunks = draft.chunks if vectors else []
        labels = f"{draft.labels}\n{draft.metadata}" if draft.metadata else ""
        arguments += [
            draft.id,
            draft.body,
            draft.role,
            draft.name,
            labels,
            draft.size,
            draft.words,
            draft.weight,
            len(chunks) + len(draft.media),
        ]
        for chunk, vector in zip(chunks, waiting, strict=False):  # the next message takes the vectors that are left
            arguments += [as_searched(chunk), vector]
        for one in draft.media:
            arguments += one
    return script.call(keys, *arguments)


def _is_one_turn(drafts: Sequence[Draft]) -> bool:
    """Tell whether questions come first, then answers: even with the words of an older turn, that is a new one."""
    # a structured answer contradicts nothing
    kinds = [draft.words[:1] for draft in drafts if draft.words[1:2] != "s"]
    return _ONE_TURN("".join(kinds)) is not None


def _embed_again(state: MemoryState, thread_id: str, ids: Sequence[str]) -> Plan[None]:
    """Give vectors to messages that are on the current branch again. Two round trips."""
    (values,) = yield from send(("HMGET", state.keys.of(thread_id).messages, *ids))
    again = [
        draft_stored(decode_message(id.encode(), b"0", value, thread_id).message, value, state.recalling)
        for id, value in zip(ids, values, strict=True)
        if value
    ]
    yield from write_messages(state, again, thread_id, None, "heal")


def _with_id(draft: Draft, id: str) -> BaseMessage:
    """Return the message with its stored id, which is another one where it was recognised by its words."""
    if draft.numbered:
        draft.message.id = id
    return draft.message if draft.message.id == id else draft.message.model_copy(update={"id": id})


def read(
    state: MemoryState, thread_id: str, user_id: str | None, wanted: MessageSelection, *, superseded: bool = False
) -> Plan[list[BaseMessage]]:
    """Read messages in order, if wanted with those that were superseded. One round trip."""
    if wanted.limit is not None:
        at_least(wanted.limit, 0, "last")
    ids = {name: check_id(id, name) for name in ("before", "after") if (id := getattr(wanted, name)) is not None}
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    arguments = (owner_tag(user_id), *wanted.arguments())
    calls = [READ.call(keys.all, *arguments)]
    if superseded:
        calls.append(READ.call(keys.all, *arguments, "superseded", 1))
    replies = yield from run_script(thread_id, user_id, *calls, message_ids=ids)
    messages: list[BaseMessage] = []
    for reply in replies:
        messages += [row.message for row in (yield from wanted.reading(state, reply, thread_id))]
    if not superseded:
        return messages
    # an older version of a message stands before it, between two sequence numbers
    positions = {id.decode(): float(seq) for reply in replies for id, seq in zip(reply[1::3], reply[2::3], strict=True)}
    messages.sort(key=lambda message: positions[message.id or ""])
    return messages if wanted.limit is None else messages[len(messages) - min(wanted.limit, len(messages)) :]


def delete(
    state: MemoryState,
    thread_id: str,
    user_id: str | None,
    ids: Sequence[str] | None,
    *,
    until: datetime | None = None,
) -> Plan[int]:
    """Delete messages, all that were stored `until` a time, or all (None). A round trip for each slice of them and of their vectors.

    Where a log covers some of them, one for each 20: the log forgets them in the same step.
    """
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    known: list[Any] = [check_id(id, "message id") for id in ([ids] if isinstance(ids, str) else ids or ())]
    what = "all" if ids is None else "messages"
    if until is not None:
        known, what = [to_micros(until)], "until"
    head = (owner_tag(user_id), SWEEP_SIZE, what)
    count, waiting, is_left = 0, len(known), False
    while True:
        call = DELETE.call(keys.all, *head, *known[len(known) - waiting :])
        ((deleted, _, waiting, _, more, left),) = yield from run_script(thread_id, user_id, call, at_most_once=True)
        yield from tell_deleted(state, thread_id, more)
        count, is_left = count + max(0, int(deleted)), is_left or bool(left)
        if not waiting:
            break
    if is_left:
        remedy = "call history.clear() or history.delete() again"
        yield from sweep_now(state, thread_id, "the messages are deleted", remedy)
    return count


def refuse_messages(state: MemoryState, thread_id: str, user_id: str | None, ids: Sequence[str]) -> Plan[None]:
    """Mark messages that a provider has refused: no history shows them. One round trip."""
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    call = REFUSE.call(keys.all, owner_tag(user_id), *ids)
    ((_, left),) = yield from run_script(thread_id, user_id, call)
    yield from continue_sweep(state, thread_id, left)
