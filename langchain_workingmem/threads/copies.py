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
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.messages import messages_from_dict

from langchain_workingmem._engine.plan import Call, compute, send
from langchain_workingmem._redis.codec import as_dict, as_messages, count_characters, draft_of, drafts, is_storable
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.scripts import change_thread, check_owner
from langchain_workingmem._redis.state import wing
from langchain_workingmem._text.clock import to_micros
from langchain_workingmem._text.said import structured_answers
from langchain_workingmem.checks import wrong_type
from langchain_workingmem.derived import export_rows, restore_rows
from langchain_workingmem.errors import (
    OptionError,
    RedisConnectionError,
    RedisReplyError,
    ThreadExistsError,
    ThreadNotFoundError,
    WorkingMemError,
)
from langchain_workingmem.history import made, read_page, write
from langchain_workingmem.models import BackfillReport, ClonedThread
from langchain_workingmem.threads.operations import delete, get_existing_thread, in_pairs, thread_fields
from langchain_workingmem.working_memory.store import NOTHING, find_scope_key, read_working_memory, write_revision

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.base import CheckpointTuple

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.codec import Draft
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem._redis.keys import Facts
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.history import PageOfThread
    from langchain_workingmem.models import StoredMessage, Thread

Owner: TypeAlias = str | Callable[[Mapping[str, Any]], str | None]  # one, or by the metadata of the checkpoints

_log = logging.getLogger("langchain_workingmem")
BATCH = 200  # messages of one step
STEP_BYTES = 4 * 2**20  # of one step; a larger message goes alone
CHANNEL = "messages"  # of the states of a checkpointer
MOST = 1_000_000  # checkpoints that are listed; RedisSaver lists 10,000 unless it is asked for more


# ---------------------------------------------------------------------- writing


@dataclass(slots=True, kw_only=True)
class Writer:
    """Adds messages to a thread, in steps. What the thread has, or has deleted, stays as it is."""

    state: MemoryState
    thread_id: str
    owner: str
    fields: Mapping[str, str] = field(default_factory=dict)  # of the thread, if it is new
    deleted: Sequence[str] = ()  # ids that it does not take
    created_at: str | None = None  # of the thread, which must exist then
    embeds: bool = False  # the messages, until the model fails; else they come with their vectors
    title: tuple[str, str] | None = None  # that a model has made from a message, and the id of that
    seqs: dict[str, int] = field(default_factory=dict)  # of the messages that were new, by id
    written: int = 0
    skipped: int = 0
    is_new: bool = False
    failure: Exception | None = None  # of the embedding model
    _waiting: list[tuple[Draft, Sequence[bytes]]] = field(default_factory=list)
    _settings: str = ""  # of the vectors that wait
    _bytes: int = 0
    _steps: int = 0
    _again: set[str] = field(default_factory=set)  # ids of edited questions, whose other words have the same
    _ids: dict[str, bool] = field(default_factory=dict)  # of what was added; whether a current one was

    def add(self, draft: Draft, settings: str = "", vectors: Sequence[bytes] = ()) -> Plan[None]:
        """Add a message to the next step, with its vectors and the digest of their settings."""
        if draft.id in self._ids:
            yield from self.flush()
            if draft.id not in self.seqs or (self._ids[draft.id] and not draft.is_superseded):
                self.skipped += 1
                return
            self._again.add(draft.id)
        self._ids[draft.id] = self._ids.get(draft.id, False) or not draft.is_superseded
        size = sum(map(len, (draft.body, *draft.chunks, *draft.media, *vectors)))
        is_full = len(self._waiting) >= BATCH or self._bytes + size > STEP_BYTES
        if self._waiting and (is_full or settings != self._settings):
            yield from self._write()
        self._waiting.append((draft, vectors))
        self._settings, self._bytes = settings, self._bytes + size

    def flush(self) -> Plan[None]:
        """Write what waits. The thread is created, if need be, even without messages."""
        if self._waiting:
            yield from self._write()
        elif not self._steps and self.created_at is None:
            self._steps = 1
            with suppress(ThreadExistsError):
                pairs = in_pairs(self.fields)
                yield from change_thread(self.state, self.thread_id, self.owner, "create", set=pairs)
                self.is_new = True

    def finish(self) -> Plan[None]:
        """Write what waits; then the title, if there is none, and the time of a new thread."""
        yield from self.flush()
        title, source = self.title or ("", "")
        if (seq := self.seqs.get(source)) is not None:
            (found,) = yield from send(("ZRANGE", self.state.keys.of(self.thread_id).order, seq, seq, "BYSCORE"))
            if found:  # else the message is gone
                head = {"title": title, "facts": found[0].decode()}
                yield from change_thread(self.state, self.thread_id, self.owner, "title", **head)
        if self.is_new and (self._steps > 1 or self.title) and (at := self.fields.get("updated_at")):
            yield from change_thread(self.state, self.thread_id, self.owner, "update", set=["updated_at", at])

    def _write(self) -> Plan[None]:
        """Write what waits in one atomic step, without those messages that the thread has or has deleted."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        head: dict[str, Any] = {"fields": self.fields, "created_at": self.created_at}
        head |= {"exists": self.created_at is not None or None, "deleted": self.deleted or None}
        self.deleted, self._steps = (), self._steps + 1
        while waiting:
            drafts = [draft for draft, _ in waiting]
            vectors = [one for _, some in waiting for one in some]
            head["again"] = dict.fromkeys((one.id for one in drafts if one.id in self._again), True) or None
            head["given"] = None if self.embeds and self.failure is None else (self._settings, vectors)
            found, failure = yield from write(self.state, drafts, self.thread_id, self.owner, **head)
            self.failure = self.failure or failure
            if found.get("gone"):
                raise ThreadNotFoundError(self.thread_id)
            if "known" not in found:
                self.written += len(waiting)
                self.is_new |= bool(found.get("is_new"))
                self.seqs.update(zip((one.id for one in drafts), found["seqs"], strict=True))
                return
            known = {*found["known"]}
            self.skipped += len(known)
            waiting = [one for at, one in enumerate(waiting) if at not in known]


# ---------------------------------------------------------------------- clones


@dataclass(slots=True, kw_only=True)
class Clone:
    """A copy of a thread: what is wanted of its source, and the ids that its messages have got so far.

    Source and copy may be in different slots of a cluster, so the messages pass through this process.
    """

    core: Core
    source: str
    id: str
    is_named: bool  # the caller has chosen the id
    user_id: str | None  # who must own the source; None: anybody
    title: str | None  # None: that of the source
    metadata: Mapping[str, Any]  # changes that of the source
    last: int | None  # messages; None: all
    within: Mapping[str, Any]  # times, as `selection` returns them
    message_ids: Collection[str] | None  # None: all of the selected ones
    ids: dict[str, str] = field(init=False, default_factory=dict)  # id in the source -> id in the copy

    def make(self) -> Plan[ClonedThread]:
        """Copy all that belongs to the thread; a part of a copy is deleted after an error."""
        state, keys = self.core.state, self.core.state.keys.of(self.source)
        origin = yield from get_existing_thread(state, self.source, self.user_id)
        source, has_rows = yield from send(("HGET", keys.thread, "title_source"), ("EXISTS", keys.rows))
        # a title that a model has made, and the seq of the message that it has made it from
        made_title = None if source is None or self.title is not None else (origin.title or "", int(source))
        writer = yield from self._create(origin, self.title if made_title or self.title is not None else origin.title)
        try:
            yield from self._copy_messages(writer, origin, made_title)
            if has_rows:
                rows = yield from export_rows(state, self.source)
                yield from restore_rows(state, self.id, origin.user_id, rows, self.ids)
            if state.working_memory is not None and state.working_memory.scope == "thread":
                yield from self._copy_working_memory(origin.user_id)
        except WorkingMemError as error:
            with suppress(WorkingMemError):
                yield from delete(state, self.id, origin.user_id)
            error.add_note(f"if a part of the copy is left, threads.delete({self.id!r}) deletes it")
            raise
        return ClonedThread(thread=(yield from get_existing_thread(state, self.id, None)), message_ids=self.ids)

    def _create(self, origin: Thread, title: str | None) -> Plan[Writer]:
        """Create the thread of the copy; return the writer of its messages."""
        merged = {**origin.metadata, **self.metadata}
        kept = {key: value for key, value in merged.items() if value is not None or key not in self.metadata}
        pairs = in_pairs({**thread_fields(title, kept), "source_id": encode(self.source)})
        own = {} if self.is_named else {"is_own": True}  # a new id: the call may be repeated
        made = yield from change_thread(self.core.state, self.id, origin.user_id, "create", set=pairs, **own)
        at = made[b"created_at"].decode()
        return Writer(state=self.core.state, thread_id=self.id, owner=origin.user_id, created_at=at)

    def _copy_messages(self, writer: Writer, origin: Thread, made_title: tuple[str, int] | None) -> Plan[None]:
        """Copy the messages, and with the one that a model has made it from, the title."""
        state, wanted = self.core.state, {**self.within, "limit": BATCH, "vectors": True}
        if self.last is not None and self.last < origin.message_count:
            newest = {**self.within, "limit": self.last, "newest": True, "times": True}
            page, _ = yield from read_page(state, self.source, writer.owner, newest)
            if not page.facts:
                return
            wanted["above"] = page.facts[0].seq - 1
        while True:
            page, _ = yield from read_page(state, self.source, writer.owner, wanted)
            if page.owner is None:
                raise ThreadNotFoundError(self.source)
            yield from self._copy_page(page, writer, made_title)
            if len(page.facts) < BATCH:
                break
            wanted["above"] = page.facts[-1].seq
        yield from writer.finish()

    def _copy_page(self, page: PageOfThread, writer: Writer, made_title: tuple[str, int] | None) -> Plan[None]:
        """Copy the chosen messages of a page, without those that cannot be read."""
        chosen = {
            facts.seq: (facts, vectors)
            for facts, vectors in zip(page.facts, page.vectors, strict=True)
            if self.message_ids is None or facts.id in self.message_ids
        }
        rows = yield from made(self.core.state, [row for row in page.rows() if row.place in chosen])
        size = count_characters(row.message for row in rows)
        copies = yield from compute(lambda: [self._copy(row, chosen[row.place][0]) for row in rows], size)
        for row, draft in zip(rows, copies, strict=True):
            facts, stored = chosen[row.place]
            vectors = [as_dict(one)[b"vector"] for one in stored if one]  # some may be evicted
            is_whole = len(vectors) == len(draft.chunks)
            yield from writer.add(draft, facts.settings if is_whole else "", vectors if is_whole else ())
            if made_title is not None and facts.seq == made_title[1]:
                writer.title = made_title[0], draft.id

    def _copy(self, row: StoredMessage, facts: Facts) -> Draft:
        """Return a message with a new id."""
        id = self.ids[facts.id] = self.core.new_id()
        message = row.message.model_copy(update={"id": id})
        draft = draft_of(message, self.core.state.recall, structured=facts.is_structured)
        draft.writer, draft.at = facts.writer, row.record["at"]
        draft.words += "!" * facts.is_refused
        return draft

    def _copy_working_memory(self, owner: str) -> Plan[None]:
        """Copy the working memory of the thread, unless the copy was deleted meanwhile. Two round trips."""
        state = self.core.state
        current = yield from read_working_memory(state, self.source, owner)
        if current.text:
            scope_key = yield from find_scope_key(state, self.id, owner)
            kept = current.kept and wing("keeping").moved(current.kept, self.source, self.id)
            beside = ["kept", kept] if kept else None
            yield from write_revision(
                state, scope_key, NOTHING, "clone", current.text, beside=beside, makes_thread=False
            )


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
    for done, name in enumerate(names):
        advance(done, len(names))
        found = Conversation(str(name))
        try:
            yield from saver.each(found.add, {"configurable": {"thread_id": name, "checkpoint_ns": ""}})
            about = {**found.metadata, "thread_id": found.thread_id}
            owner = user_id(about) if callable(user_id) and found.messages else user_id
            if owner is None or not found.messages:
                counts["skipped"] += 1
                continue
            owner = check_id(owner, "user_id")
            writer = Writer(state=core.state, thread_id=found.thread_id, owner=owner, embeds=failure is None)
            yield from _store(writer, found)
        except (RedisConnectionError, RedisReplyError):
            raise
        except WorkingMemError as error:
            left[found.thread_id] = str(error)
            continue
        failure = failure or writer.failure
        counts.update({"threads" if writer.seqs else "known": 1, "messages": len(writer.seqs)})
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

    def take(one: CheckpointTuple) -> None:
        found.append(one.config["configurable"])

    yield from saver.each(take, None, limit=MOST)
    if len(found) >= MOST:
        raise OptionError(f"the checkpointer has {MOST:,} checkpoints or more", remedy="pass thread_ids, in parts")
    return list(dict.fromkeys(one["thread_id"] for one in found if not one.get("checkpoint_ns")))


def _store(writer: Writer, found: Conversation) -> Plan[None]:
    """Store what the thread lacks, at its end. A round trip, and one per 200 messages with one call of the model."""
    state, ids = writer.state, [check_id(message.id, "message id") for message in found.messages]
    keys = state.keys.of(check_id(found.thread_id, "thread_id"))
    (owner, next_seq), stored = yield from send(("HMGET", keys.thread, "user", "next_seq"), ("HMGET", keys.ids, *ids))
    check_owner(owner, found.thread_id, writer.owner)
    held = [one is not None for one in stored]  # or deleted
    known = sum(held)
    if not all(held[:known]) or (int(next_seq or 0) and not known):
        seen = f"memory has other messages of this thread: of {len(held):,} it lacks {len(held) - known:,}"
        remedy = "delete the thread with threads.delete() and backfill again, if the checkpoints hold all of it"
        raise OptionError(f"{seen}, which do not belong at its end", remedy=remedy)
    rest, answers = found.messages[known:], structured_answers(found.messages, is_over=True)
    writer.fields = {"created_at": str(found.times[ids[0]]), "updated_at": str(found.times[ids[-1]])}
    for start in range(0, len(rest), BATCH):
        some = rest[start : start + BATCH]
        for draft in (yield from compute(partial(drafts, some, state.recall, str, answers), count_characters(some))):
            draft.writer, draft.at = "s0", found.times[draft.id]  # as a checkpointer's state, whose turns follow
            yield from writer.add(draft)
    if rest:
        yield from writer.finish()


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
    """A checkpointer as plans use it: by its methods, or by their async twins. Its errors are raised in the plan."""

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
        self._saver, self._is_async = saver, is_async

    def call(self, method: str, *arguments: Any) -> Plan[Any]:
        """Call a method, and return what it returns."""
        call = partial(getattr(self._saver, f"a{method}" if self._is_async else method), *arguments)
        return (yield from Call(call, call))

    def each(self, take: Callable[[CheckpointTuple], None], config: Any, **options: Any) -> Plan[None]:
        """Give each checkpoint of a listing to `take`."""

        def listed() -> None:
            for one in self._saver.list(config, **options):
                take(one)

        async def alisted() -> None:
            async for one in self._saver.alist(config, **options):
                take(one)

        yield from Call(listed, alisted)
