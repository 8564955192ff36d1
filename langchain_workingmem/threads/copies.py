"""Messages that were stored elsewhere before, written with their times: clones, backfills, and the writer of imports."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.messages import messages_from_dict

from langchain_workingmem._engine.plan import Call, compute, send
from langchain_workingmem._redis.access import change_thread, check_owner
from langchain_workingmem._redis.codec import as_dict, as_messages, count_characters, draft_of, drafts, is_storable
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.scripts import count_bytes
from langchain_workingmem._redis.state import wing
from langchain_workingmem._text.clock import to_micros
from langchain_workingmem._text.said import structured_answers
from langchain_workingmem.checks import wrong_type
from langchain_workingmem.errors import (
    OptionError,
    RedisConnectionError,
    RedisReplyError,
    ThreadExistsError,
    ThreadNotFoundError,
    WorkingMemError,
)
from langchain_workingmem.history import made, read_page, write
from langchain_workingmem.models import BackfillReport
from langchain_workingmem.threads.operations import in_pairs
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
    from langchain_workingmem.models import StoredMessage
    from langchain_workingmem.options import RecallOptions

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
    deleted: Sequence[str] = ()  # ids that it does not take
    created_at: str | None = None  # of the thread, if it must be the same at each step
    embeds: bool = False  # the messages, until the model fails; else they come with their vectors
    seqs: dict[str, int] = field(default_factory=dict)  # of the messages that were new, by id
    written: int = 0
    skipped: int = 0
    failure: Exception | None = None  # of the embedding model
    _waiting: list[tuple[Draft, Sequence[bytes]]] = field(default_factory=list)
    _settings: str = ""  # of the vectors that wait
    _bytes: int = 0
    _again: set[str] = field(default_factory=set)  # ids of edited questions, whose other words have the same
    _ids: dict[str, bool] = field(default_factory=dict)  # of what was added; whether a current one was

    def create(self, fields: Mapping[str, str]) -> Plan[bool]:
        """Create the thread, unless it exists; tell whether it is new. One round trip."""
        try:
            yield from change_thread(self.state, self.thread_id, self.owner, "create", set=in_pairs(fields))
        except ThreadExistsError:
            return False
        return True

    def add(self, draft: Draft, settings: str = "", vectors: Sequence[bytes] = ()) -> Plan[None]:
        """Add a message to the next step, with its vectors and the digest of their settings."""
        if draft.id in self._ids:
            yield from self.flush()
            if draft.id not in self.seqs or (self._ids[draft.id] and not draft.is_superseded):
                self.skipped += 1
                return
            self._again.add(draft.id)
        self._ids[draft.id] = self._ids.get(draft.id, False) or not draft.is_superseded
        size = count_bytes([draft.body, *draft.chunks, *draft.media, *vectors])
        if len(self._waiting) >= BATCH or self._bytes + size > STEP_BYTES or settings != self._settings:
            yield from self.flush()
        self._waiting.append((draft, vectors))
        self._settings, self._bytes = settings, self._bytes + size

    def flush(self) -> Plan[None]:
        """Write what waits in one atomic step, without those messages that the thread has or has deleted."""
        ready, vectors = [draft for draft, _ in self._waiting], [one for _, some in self._waiting for one in some]
        if not ready:
            return
        self._waiting, self._bytes = [], 0
        head: dict[str, Any] = {"created_at": self.created_at, "exists": self.created_at is not None or None}
        head |= {"skip": True, "deleted": self.deleted or None}
        head["again"] = dict.fromkeys((one.id for one in ready if one.id in self._again), True) or None
        head["given"] = None if self.embeds and self.failure is None else (self._settings, vectors)
        found, failure = yield from write(self.state, ready, self.thread_id, self.owner, **head)
        if found.get("gone"):
            raise ThreadNotFoundError(self.thread_id)
        new = found.get("new") or ()
        self.seqs |= {ready[at].id: found["seqs"][at] for at in new}
        self.written, self.skipped = self.written + len(new), self.skipped + len(ready) - len(new)
        self.deleted, self.failure = () if new else self.deleted, self.failure or failure

    def name(self, title: str, message_id: str) -> Plan[None]:
        """Set the title that a model has made from a message, if that was new and is there. Two round trips."""
        if (seq := self.seqs.get(message_id)) is not None:
            (found,) = yield from send(("ZRANGE", self.state.keys.of(self.thread_id).order, seq, seq, "BYSCORE"))
            for facts in found:
                head = {"title": title, "facts": facts.decode()}
                yield from change_thread(self.state, self.thread_id, self.owner, "title", **head)


# ---------------------------------------------------------------------- clones


def copy_messages(
    core: Core, source: str, writer: Writer, wanted: Mapping[str, Any], message_ids: Collection[str] | None
) -> Plan[list[tuple[Facts, str]]]:
    """Copy the messages of a thread that can be read; return what is known of each, and its new id.

    Source and copy may be in different slots of a cluster, so the messages pass through this process.
    """
    state = core.state
    done: list[tuple[Facts, str]] = []
    wanted = {**wanted, "limit": BATCH, "vectors": True}
    while True:
        page, _ = yield from read_page(state, source, writer.owner, wanted)
        if page.owner is None:
            raise ThreadNotFoundError(source)
        stored = {
            facts.seq: (facts, [as_dict(one)[b"vector"] for one in vectors if one])  # some may be evicted
            for facts, vectors in zip(page.facts, page.vectors, strict=True)
            if message_ids is None or facts.id in message_ids
        }
        rows = yield from made(state, [row for row in page.rows() if row.place in stored])
        copies = [(row, stored[row.place][0], core.new_id()) for row in rows]
        size = count_characters(row.message for row in rows)
        ready = yield from compute(partial(_copied, copies, state.recall), size)
        for (row, facts, id), draft in zip(copies, ready, strict=True):
            vectors = stored[row.place][1]
            is_whole = len(vectors) == len(draft.chunks)
            yield from writer.add(draft, facts.settings if is_whole else "", vectors if is_whole else ())
            done.append((facts, id))
        if len(page.facts) < BATCH:
            yield from writer.flush()
            return done
        wanted["above"] = page.facts[-1].seq


def _copied(copies: Iterable[tuple[StoredMessage, Facts, str]], recall: RecallOptions | None) -> list[Draft]:
    ready = []
    for row, facts, id in copies:
        draft = draft_of(row.message.model_copy(update={"id": id}), recall, structured=facts.is_structured)
        draft.writer, draft.at = facts.writer, row.record["at"]
        draft.words += "!" * facts.is_refused
        ready.append(draft)
    return ready


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
    if not rest:
        return
    began = str(found.times[ids[0]])
    yield from writer.create({"created_at": began, "updated_at": began})
    for start in range(0, len(rest), BATCH):
        some = rest[start : start + BATCH]
        for draft in (yield from compute(partial(drafts, some, state.recall, str, answers), count_characters(some))):
            draft.writer, draft.at = "s0", found.times[draft.id]  # as a checkpointer's state, whose turns follow
            yield from writer.add(draft)
    yield from writer.flush()


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
