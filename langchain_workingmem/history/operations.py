"""Plans over the messages of a thread."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from langchain_workingmem._engine.effects import LONG, Embed, Later, Plan, compute, send
from langchain_workingmem._redis.access import guarded_write, owner_tag, run_script
from langchain_workingmem._redis.codec import as_messages, count_characters, decode_message, draft_stored, drafts
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.queries import pack, read_cursor
from langchain_workingmem._redis.scripts import BRANCHES, DELETE, Script
from langchain_workingmem._redis.sweeping import SWEEP_SIZE, continue_sweep, sweep_now
from langchain_workingmem.errors import EmbeddingError, EmbeddingSizeError, OptionError
from langchain_workingmem.history.branch import NO_BRANCH
from langchain_workingmem.history.rows import READ
from langchain_workingmem.history.titles import schedule
from langchain_workingmem.models import Page, StoredMessage
from langchain_workingmem.options import at_least

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage, MessageLikeRepresentation

    from langchain_workingmem._engine.effects import Argument, Command
    from langchain_workingmem._redis.codec import Draft
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.history.branch import Branch
    from langchain_workingmem.history.rows import MessageSelection
    from langchain_workingmem.options import OnError


WRITE = Script("history/write", *BRANCHES, "history/branch")
REFUSE = Script("history/refuse", *BRANCHES)
TRUNCATE = Script("history/truncate", *BRANCHES)

_log = logging.getLogger("langchain_workingmem")

Mode: TypeAlias = Literal["append", "turn", "update", "heal"]


def write_messages(
    state: MemoryState,
    drafts: Sequence[Draft],
    thread_id: str,
    resource_id: str | None,
    mode: Mode,
    branch: Branch | None = None,
    title_model: BaseChatModel | None = None,
) -> Plan[tuple[list[BaseMessage], Exception | None]]:
    """Embed messages, then write them in one atomic step. One round trip.

    When the model fails, or does not fit the index, or nobody has made that, the messages are written without vectors, and
    the error comes back: what to do about it is the caller's choice, what is lost is nothing.
    With a `branch` the messages are those of a turn, and what its list has left behind is superseded in the same step. In the
    mode "turn" the list is compared with the thread in that step: messages without stored ids get those that they are found
    under.
    """
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    owner = owner_tag(resource_id)
    texts = [text for draft in drafts for text in draft.chunks]
    _check_count(state, len(drafts) + len(texts))
    yield from state.ready()
    vectors: list[bytes] = []
    digest = "" if state.recall is None or state.dims is None else state.index_digest(state.dims)
    failure: Exception | None = None
    if texts:
        try:
            found = yield Embed(texts)
            yield from state.vectors_ready(found.shape[1])
            vectors = pack(found, state.index.dtype)
            digest = state.index_digest(found.shape[1])
        except (EmbeddingError, EmbeddingSizeError, OptionError) as error:
            failure, digest = error, ""
    arguments: list[Argument] = [mode, owner, encode(thread_id), digest, state.ttl_ms or ""]
    arguments += NO_BRANCH if branch is None else branch.arguments(_versions(branch, drafts))
    at = 0
    for draft in drafts:
        chunks = draft.chunks if vectors else []
        arguments += [draft.id, draft.body, draft.role, draft.name, draft.labels, draft.size]
        arguments += [draft.words, draft.weight, len(chunks)]
        for chunk in chunks:
            arguments += [chunk, vectors[at]]
            at += 1
    ids = {str(number): draft.id for number, draft in enumerate(drafts)}
    call = WRITE.call(keys.all, *arguments)

    def undo(reply: Any, _: str) -> Command:
        return DELETE.call(keys.all, owner, SWEEP_SIZE, "undo", reply[3], *ids.values())

    appending = mode in {"append", "turn"}
    _, count, titled, _, stored, revived, left = yield from guarded_write(
        state, thread_id, [resource_id], call, undo if appending else None, message_ids=ids
    )
    if appending:
        yield from schedule(state, thread_id, count, titled=bool(titled), model=title_model)
    yield from continue_sweep(state, thread_id, left)
    if revived and state.recall is not None:
        yield Later(_embed_again(state, thread_id, [id.decode() for id in revived]))
    return [_under(id.decode(), draft) for draft, id in zip(drafts, stored, strict=False)], failure


def _embed_again(state: MemoryState, thread_id: str, ids: Sequence[str]) -> Plan[None]:
    """Give vectors to messages that are on the current branch again. Two round trips."""
    values = yield from send(("HMGET", state.keys.of(thread_id).messages, *ids))
    found = [(id, value) for id, value in zip(ids, values[0], strict=True) if value]
    rows = [(decode_message(id.encode(), b"0", value, thread_id).message, value) for id, value in found]
    yield from write_messages(
        state, [draft_stored(message, value, state.recalling) for message, value in rows], thread_id, None, "heal"
    )


def _under(id: str, draft: Draft) -> BaseMessage:
    """Return the message under the id that it is stored under: that of an equal one, where a list was recognised."""
    if draft.message.id == id:
        return draft.message
    if draft.numbered:
        draft.message.id = id
        return draft.message
    return draft.message.model_copy(update={"id": id})


def _versions(branch: Branch, drafts: Sequence[Draft]) -> list[str]:
    """Name the questions that were edited under their ids: what they said before stays, superseded."""
    return [draft.id for draft in drafts if draft.id in branch.edited and draft.words.startswith("q")]


MOST_AT_ONCE = {"flat": 100_000, "hnsw": 10_000}  # messages and pieces: they keep the server busy for 1 to 3 s


def _check_count(state: MemoryState, count: int) -> None:
    algorithm = state.index.algorithm if state.recall else "flat"
    if count > (most := MOST_AT_ONCE[algorithm]):
        raise OptionError(
            f"{count:,} messages and pieces to embed are too many for one atomic step, {most:,} are the most (with "
            f"{algorithm})",
            remedy="save them in several calls",
        )


def save(
    state: MemoryState,
    drafts: Sequence[Draft],
    thread_id: str,
    resource_id: str | None,
    on_error: OnError,
    mode: Mode = "append",
    branch: Branch | None = None,
    title_model: BaseChatModel | None = None,
) -> Plan[list[BaseMessage]]:
    """Write messages, and say in the way that `on_error` chooses when they are stored without vectors."""
    stored, failure = yield from write_messages(state, drafts, thread_id, resource_id, mode, branch, title_model)
    if failure is not None:
        note = f"the messages are stored without vectors; memory.recall.reindex(thread_id={thread_id!r}) adds them"
        if on_error == "raise":
            failure.add_note(note)
            raise failure
        _log.warning("%s; %s", failure, note)
    return stored


def read(
    state: MemoryState, thread_id: str, resource_id: str | None, wanted: MessageSelection
) -> Plan[list[StoredMessage]]:
    """Read messages in order. One round trip."""
    edges = {name: id for name in ("before", "after") if (id := getattr(wanted, name)) is not None}
    for name, id in edges.items():
        check_id(id, name)
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    call = READ.call(keys.all, owner_tag(resource_id), *wanted.arguments())
    (reply,) = yield from run_script(thread_id, resource_id, call, message_ids=edges)
    return (yield from wanted.reading(reply, thread_id))


def read_with_superseded(
    state: MemoryState, thread_id: str, resource_id: str | None, wanted: MessageSelection
) -> Plan[list[StoredMessage]]:
    """Read messages in order, those that the conversation has left behind among them. One round trip."""
    edges = {name: id for name in ("before", "after") if (id := getattr(wanted, name)) is not None}
    for name, id in edges.items():
        check_id(id, name)
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    arguments = (owner_tag(resource_id), *wanted.arguments())
    current, behind = yield from run_script(
        thread_id,
        resource_id,
        READ.call(keys.all, *arguments),
        READ.call(keys.all, *arguments, "superseded", 1),
        message_ids=edges,
    )
    # an older version of a message stands in front of it, between two sequence numbers
    places = {
        id.decode(): float(seq) for reply in (current, behind) for id, seq in zip(reply[1::3], reply[2::3], strict=True)
    }
    rows = yield from wanted.reading(current, thread_id)
    rows += [replace(row, superseded=True) for row in (yield from wanted.reading(behind, thread_id))]
    rows.sort(key=lambda row: places[row.message.id or ""])
    if wanted.limit is None:
        return rows
    return rows[-wanted.limit or len(rows) :] if wanted.newest else rows[: wanted.limit]


def truncate(state: MemoryState, thread_id: str, resource_id: str | None, after: str) -> Plan[int]:
    """Leave behind what stands behind a message. One round trip, and one for each further slice of its vectors."""
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    call = TRUNCATE.call(keys.all, owner_tag(resource_id), check_id(after, "after"))
    ((count, left),) = yield from run_script(
        thread_id, resource_id, call, message_ids={"after": after}, at_most_once=True
    )
    if left:
        remedy = f"recall.reindex(thread_id={thread_id!r}) goes on, and the next write to the thread"
        yield from sweep_now(state, thread_id, "the thread is truncated", remedy)
    return int(count)


def refuse_messages(state: MemoryState, thread_id: str, resource_id: str | None, ids: Sequence[str]) -> Plan[None]:
    """Mark messages that a provider has refused: no history shows them. One round trip."""
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    call = REFUSE.call(keys.all, owner_tag(resource_id), *ids)
    ((_, left),) = yield from run_script(thread_id, resource_id, call)
    yield from continue_sweep(state, thread_id, left)


def page(
    state: MemoryState, thread_id: str, resource_id: str | None, wanted: MessageSelection, cursor: str | None
) -> Plan[Page[StoredMessage]]:
    """Read one page of a thread. One round trip; the cursor is the last sequence number."""
    at_least(wanted.limit, 1, "limit")
    limit = wanted.limit or 0
    ahead = replace(wanted, limit=limit + 1, count=True)
    if cursor is not None:
        (seq,) = read_cursor(cursor, _PAGE_CURSOR)
        at = int(seq)
        ahead = replace(ahead, below=at) if wanted.newest else replace(ahead, above=at)
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    call = READ.call(keys.all, owner_tag(resource_id), *ahead.arguments())
    (reply,) = yield from run_script(thread_id, resource_id, call)
    rows = yield from replace(ahead, newest=False).reading(reply, thread_id)
    more = str(rows[limit - 1].seq) if len(rows) > limit else None
    return Page(items=rows[:limit], total=int(reply[0]), next_cursor=more)


_PAGE_CURSOR = re.compile(r"(\d{1,16})")


def delete(state: MemoryState, thread_id: str, resource_id: str | None, ids: Sequence[str] | None) -> Plan[int]:
    """Delete messages, or all of them (None). One round trip, and one for each further slice of their vectors."""
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    doomed = [] if ids is None else [check_id(id, "message id") for id in ids]
    what = "all" if ids is None else "messages"
    call = DELETE.call(keys.all, owner_tag(resource_id), SWEEP_SIZE, what, *doomed)
    ((deleted, *_, left),) = yield from run_script(thread_id, resource_id, call, at_most_once=True)
    if left:
        yield from sweep_now(
            state, thread_id, "the messages are deleted", "call history.clear() or history.delete() again"
        )
    return max(0, int(deleted))


def save_messages(
    core: Core,
    messages: Iterable[MessageLikeRepresentation],
    thread_id: str,
    resource_id: str | None,
    *,
    mode: Mode = "append",
    on_error: OnError | None = None,
    branch: Branch | None = None,
    title_model: BaseChatModel | None = None,
) -> Plan[list[BaseMessage]]:
    """Plan to save messages, with vectors if the model works; with a `branch`, as those of a turn.

    `title_model` is for `TitleOptions` without one.
    """
    given = as_messages(messages)
    prepare = partial(drafts, given, core.state.recall, core.new_id)
    rest = (thread_id, resource_id, on_error or core.on_error, mode, branch, title_model)
    size = count_characters(given)
    if size <= LONG:  # mistakes show before the plan begins
        return save(core.state, prepare(), *rest)

    def long() -> Plan[list[BaseMessage]]:
        return (yield from save(core.state, (yield from compute(prepare, size)), *rest))

    return long()
