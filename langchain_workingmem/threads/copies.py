"""Messages that were stored elsewhere before, written with their times: clones, backfills, and the writer of imports."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from langchain_core.messages import messages_from_dict

from langchain_workingmem._engine.plan import Call, compute, send
from langchain_workingmem._redis.codec import as_dict, as_messages, count_characters, draft_of, drafts, is_storable
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.scripts import change_thread, check_owner
from langchain_workingmem._redis.state import wing
from langchain_workingmem._text.messages import structured_answers
from langchain_workingmem._text.values import to_micros
from langchain_workingmem.checks import wrong_type
from langchain_workingmem.errors import (
    OptionError,
    RedisConnectionError,
    RedisReplyError,
    ThreadExistsError,
    ThreadNotFoundError,
    WorkingMemError,
)
from langchain_workingmem.history.read import made, read_page
from langchain_workingmem.history.save import write
from langchain_workingmem.models import BackfillReport
from langchain_workingmem.threads.operations import in_pairs
from langchain_workingmem.working_memory.store import NOTHING, find_scope_key, read_working_memory, write_revision

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.base import CheckpointTuple

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.codec import Draft
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem._redis.keys import Facts
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage, Thread
    from langchain_workingmem.options import RecallOptions

Owner: TypeAlias = str | Callable[[Mapping[str, Any]], str | None]  # one, or by the metadata of the checkpoints

_log = logging.getLogger("langchain_workingmem")
BATCH = 200  # messages of one step
STEP_BYTES = 4 * 2**20  # of one step; a larger message goes alone
CHANNEL = "messages"  # of the states of a checkpointer
MOST = 1_000_000  # checkpoints that are listed; RedisSaver lists 10,000 unless it is asked for more


# ---------------------------------------------------------------------- writing


class Older(NamedTuple):
    """A message to write, with its vectors and the digest of their settings."""

    draft: Draft
    settings: str = ""
    vectors: Sequence[bytes] = ()


class Written(NamedTuple):
    """What `write_older` has done."""

    seqs: dict[str, int]  # of the messages that were new, by id
    messages: int = 0  # how many were new
    is_new: bool = False  # the thread
    failure: Exception | None = None  # of the embedding model


def write_older(
    state: MemoryState,
    thread_id: str,
    owner: str,
    older: Iterable[Older],
    *,
    fields: Mapping[str, str] | None = None,
    deleted: Sequence[str] = (),
    created_at: str | None = None,
    embeds: bool = False,
) -> Plan[Written]:
    """Add messages to a thread, in steps; what it has, or has deleted, stays as it is, and `deleted` ids are not taken.

    With `fields` it is created, unless it exists; with `created_at` it must be the same at each step. `embeds`: messages without vectors
    are embedded, until the model fails. A round trip for the thread, and one per 200 messages.
    """
    done = Written({})
    if fields is not None:
        with suppress(ThreadExistsError):
            yield from change_thread(state, thread_id, owner, "create", repeats=True, set=in_pairs(fields))
            done = Written({}, is_new=True)
    guard: dict[str, Any] = {} if created_at is None else {"created_at": created_at, "exists": True}
    for step in _steps(older):
        ready, vectors = [one.draft for one in step], [vector for one in step for vector in one.vectors]
        # other words of edited questions have the same ids
        head = {**guard, "skip": True, "again": {one.id: True for one in ready if one.id in done.seqs} or None}
        head["deleted"] = None if done.messages else deleted or None
        given = None if embeds and done.failure is None else (step[0].settings, vectors)
        found, failure = yield from write(state, ready, thread_id, owner, given, **head)
        if found.get("gone"):
            raise ThreadNotFoundError(thread_id)
        new = found.get("new") or ()
        seqs = done.seqs | {ready[at].id: found["seqs"][at] for at in new}
        done = Written(seqs, done.messages + len(new), done.is_new, done.failure or failure)
    return done


def _steps(older: Iterable[Older]) -> Iterator[list[Older]]:
    """Cut messages into steps of the same settings, each id once, without further current messages of an id."""
    step, size, current = list[Older](), 0, set[str]()
    for one in older:
        draft = one.draft
        if draft.id in current and not draft.is_superseded:
            continue
        if not draft.is_superseded:
            current.add(draft.id)
        more = sum(map(len, (draft.body, *draft.chunks, *draft.media, *one.vectors)))
        is_full = len(step) >= BATCH or size + more > STEP_BYTES
        if step and (is_full or one.settings != step[0].settings or any(draft.id == each.draft.id for each in step)):
            yield step
            step, size = [], 0
        step.append(one)
        size += more
    if step:
        yield step


def name_thread(state: MemoryState, thread_id: str, owner: str, title: str, seq: int) -> Plan[None]:
    """Set the title that a model has made from a message, if that is there. Two round trips."""
    (found,) = yield from send(("ZRANGE", state.keys.of(thread_id).order, seq, seq, "BYSCORE"))
    for facts in found:
        yield from change_thread(state, thread_id, owner, "title", title=title, facts=facts.decode())


# ---------------------------------------------------------------------- clones


def copy_messages(
    core: Core, source: str, copy: Thread, wanted: Mapping[str, Any], message_ids: Collection[str] | None
) -> Plan[list[tuple[Facts, str, int]]]:
    """Copy the messages of a thread that can be read; return what is known of each, and id and seq of its copy.

    Source and copy may be in different slots of a cluster, so the messages pass through this process.
    """
    state, owner = core.state, copy.user_id
    done: list[tuple[Facts, str, int]] = []
    wanted = {**wanted, "limit": BATCH, "vectors": True}
    while True:
        page, _ = yield from read_page(state, source, owner, wanted)
        if page.owner is None:
            raise ThreadNotFoundError(source)
        stored = {
            facts.seq: (facts, [as_dict(one)[b"vector"] for one in vectors if one])  # some may be evicted
            for facts, vectors in zip(page.facts, page.vectors, strict=True)
            if message_ids is None or facts.id in message_ids
        }
        rows = yield from made(state, [row for row in page.rows() if row.place in stored])
        copies = [(row, *stored[row.place], core.new_id()) for row in rows]
        size = count_characters(row.message for row in rows)
        older = yield from compute(partial(_copied, copies, state.recall), size)
        created_at = str(to_micros(copy.created_at))
        written = yield from write_older(state, copy.id, owner, older, created_at=created_at)
        done += [(facts, id, written.seqs[id]) for _, facts, _, id in copies]
        if len(page.facts) < BATCH:
            return done
        wanted["above"] = page.facts[-1].seq


def _copied(
    copies: Iterable[tuple[StoredMessage, Facts, list[bytes], str]], recall: RecallOptions | None
) -> list[Older]:
    older = []
    for row, facts, vectors, id in copies:
        draft = draft_of(row.message.model_copy(update={"id": id}), recall, structured=facts.is_structured)
        draft.writer, draft.at = facts.writer, row.record["at"]
        draft.words += "!" * facts.is_refused
        is_whole = len(vectors) == len(draft.chunks)
        older.append(Older(draft, facts.settings, vectors) if is_whole else Older(draft))
    return older


def copy_working_memory(state: MemoryState, source: str, id: str, owner: str) -> Plan[None]:
    """Copy the working memory of a thread, unless the copy was deleted meanwhile. Two round trips."""
    current = yield from read_working_memory(state, source, owner)
    if current.text:
        scope_key = yield from find_scope_key(state, id, owner)
        kept = current.kept and wing("keeping").moved(current.kept, source, id)
        beside = ["kept", kept] if kept else None
        yield from write_revision(state, scope_key, NOTHING, "clone", current.text, beside=beside, makes_thread=False)


# ---------------------------------------------------------------------- checkpointers


def backfill(
    core: Core, saver: Saver, thread_ids: Iterable[str] | None, user_id: Owner, advance: Callable[[int, int], object]
) -> Plan[BackfillReport]:
    """Plan `Threads.backfill`, and tell how many threads are done. A thread that cannot be stored is left."""
    if not callable(user_id):
        check_id(user_id, "user_id")
    names = [*thread_ids] if thread_ids is not None else (yield from _threads_in(saver))
    counts, left = Counter[str](), dict[str, str]()
    failure: Exception | None = None  # of the embedding model, which is not asked again
    for number, name in enumerate(names):
        advance(number, len(names))
        found = Conversation(str(name))
        try:
            yield from saver.each(found.add, {"configurable": {"thread_id": name, "checkpoint_ns": ""}})
            about = {**found.metadata, "thread_id": found.thread_id}
            owner = user_id(about) if callable(user_id) and found.messages else user_id
            if owner is None or not found.messages:
                counts["skipped"] += 1
                continue
            done = yield from _store(core.state, found, check_id(owner, "user_id"), embeds=failure is None)
        except (RedisConnectionError, RedisReplyError):
            raise
        except WorkingMemError as error:
            left[found.thread_id] = str(error)
            continue
        failure = failure or done.failure
        counts.update({"threads" if done.messages else "known": 1, "messages": done.messages})
    advance(len(names), len(names))
    if failure is not None:
        note = "everything is stored, some messages have no vectors yet: memory.recall.reindex() adds them"
        if core.on_error == "raise":
            failure.add_note(note)
            raise failure
        _log.warning("%s; %s", failure, note)
    return BackfillReport(left=left, **counts)


def _threads_in(saver: Saver) -> Plan[list[Any]]:
    """Return the ids of the threads of all checkpoints, without those of subgraphs; the one that was used last first."""
    found: list[Any] = []
    yield from saver.each(lambda one: found.append(one.config["configurable"]), None, limit=MOST)
    if len(found) >= MOST:
        raise OptionError(f"the checkpointer has {MOST:,} checkpoints or more", remedy="pass thread_ids, in parts")
    return list(dict.fromkeys(one["thread_id"] for one in found if not one.get("checkpoint_ns")))


def _store(state: MemoryState, found: Conversation, owner: str, *, embeds: bool) -> Plan[Written]:
    """Store what the thread lacks, at its end. A round trip, one for a new thread, and one per 200 messages."""
    id, ids = check_id(found.thread_id, "thread_id"), [check_id(one.id, "message id") for one in found.messages]
    keys = state.keys.of(id)
    (tag, next_seq), stored = yield from send(("HMGET", keys.thread, "user", "next_seq"), ("HMGET", keys.ids, *ids))
    check_owner(tag, id, owner)
    held = [one is not None for one in stored]  # or deleted
    known = sum(held)
    if not all(held[:known]) or (int(next_seq or 0) and not known):
        seen = f"of {len(held):,} messages memory lacks {len(held) - known:,}, which belong elsewhere or were deleted"
        remedy = "delete the thread with threads.delete() and backfill again, if the checkpoints hold all of it"
        raise OptionError(seen, remedy=remedy)
    rest, answers = found.messages[known:], structured_answers(found.messages, is_over=True)
    began, older = found.times[ids[0]], list[Older]()
    for start in range(0, len(rest), BATCH):
        some = rest[start : start + BATCH]
        for draft in (yield from compute(partial(drafts, some, state.recall, str, answers), count_characters(some))):
            draft.writer, draft.at = "s0", found.times[draft.id]  # as a checkpointer's state, whose turns follow
            older.append(Older(draft))
    fields = {"created_at": str(began), "updated_at": str(began)} if rest else None
    return (yield from write_older(state, id, owner, older, fields=fields, embeds=embeds))


@dataclass(slots=True)
class Conversation:
    """A thread as its checkpoints tell it. `add` takes them from the newest to the oldest, and keeps none."""

    thread_id: str
    messages: list[BaseMessage] = field(default_factory=list)  # with ids
    times: dict[str, int] = field(default_factory=dict)  # by id: when the first checkpoint with the message was made
    metadata: dict[str, Any] = field(default_factory=dict)  # of the checkpoints, the newest value of each key
    _next: Any = ...  # id of the checkpoint to take next: others are of branches that were left

    def add(self, one: CheckpointTuple) -> None:
        """Take the messages of the newest checkpoint; of older ones what was trimmed from its front, and the times."""
        is_newest = self._next is ...
        if not is_newest and one.checkpoint["id"] != self._next:
            return
        self._next = (one.parent_config or {}).get("configurable", {}).get("checkpoint_id")
        self.metadata = {**one.metadata, **self.metadata}
        held = self._messages_in(one)
        at = to_micros(datetime.fromisoformat(one.checkpoint["ts"]))
        self.times |= dict.fromkeys((message.id or "" for message in held), at)
        if is_newest:
            self.messages = held
        first = self.messages[0].id if self.messages else None
        trimmed = next((at for at, message in enumerate(held) if message.id == first), 0)
        if trimmed:
            known = {message.id for message in self.messages}
            self.messages[:0] = [message for message in held[:trimmed] if message.id not in known]

    def _messages_in(self, one: CheckpointTuple) -> list[BaseMessage]:
        """Return the messages of a state, each with an id."""
        try:
            messages = as_messages([_revived(item) for item in one.checkpoint["channel_values"].get(CHANNEL) or []])
        except (OptionError, ValueError) as error:
            raise OptionError(f"its channel {CHANNEL!r} holds no messages ({error})", remedy="leave it out") from error
        for position, message in enumerate(messages):
            if not message.id:  # as in states that add_messages does not make
                said = f"{self.thread_id}\0{position}\0{message.type}\0{message.content}"
                message.id = sha256(said.encode(errors="surrogatepass")).hexdigest()[:32]
        return [*{message.id: message for message in messages if is_storable(message)}.values()]


def _revived(item: Any) -> Any:
    """Return the message that RedisSaver lists as LangChain's JSON of it; other items as they are."""
    if isinstance(item, dict) and item.get("lc") == 1 and isinstance(item.get("kwargs"), dict):
        return messages_from_dict([{"type": item["kwargs"].get("type"), "data": item["kwargs"]}])[0]
    return item


class Saver:
    """A method of a checkpointer as plans use it, or its async twin. Its errors are raised in the plan."""

    def __init__(self, saver: object, method: str, callers: tuple[str, str], *, is_async: bool) -> None:
        """Raise `OptionError` for what is no checkpointer, and if it has the method only for the other of the callers."""
        from langgraph.checkpoint.base import BaseCheckpointSaver

        if not isinstance(saver, BaseCheckpointSaver):
            raise wrong_type(saver, "checkpointer", "pass the checkpointer of your graph, such as InMemorySaver()")
        names = method, f"a{method}"
        has = [getattr(type(saver), name) is not getattr(BaseCheckpointSaver, name) for name in names]
        if has[not is_async] and not has[is_async]:
            other = f"call {callers[0]} in a thread" if is_async else f"await {callers[1]} in async code"
            raise OptionError(f"{type(saver).__name__} has no {names[is_async]}()", remedy=other)
        self._call: Any = getattr(saver, names[is_async])

    def call(self, *arguments: Any) -> Plan[Any]:
        """Call the method, and return what it returns."""
        call = partial(self._call, *arguments)
        return (yield from Call(call, call))

    def each(self, take: Callable[[CheckpointTuple], None], config: Any, **options: Any) -> Plan[None]:
        """Give each checkpoint of a listing to `take`."""

        def listed() -> None:
            for one in self._call(config, **options):
                take(one)

        async def alisted() -> None:
            async for one in self._call(config, **options):
                take(one)

        yield from Call(listed, alisted)
