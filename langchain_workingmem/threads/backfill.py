"""LangGraph checkpointers, and the plan that stores their conversations in the order and with the times of the checkpoints."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.messages import messages_from_dict

from langchain_workingmem._engine.plan import Call, Plan, compute, send
from langchain_workingmem._redis.access import check_owner
from langchain_workingmem._redis.codec import as_messages, count_characters, drafts, is_storable
from langchain_workingmem._redis.keys import Facts, check_id
from langchain_workingmem._text.clock import to_micros
from langchain_workingmem._text.said import structured_answers
from langchain_workingmem.checks import LARGEST, wrong_type
from langchain_workingmem.errors import (
    IdError,
    OptionError,
    RedisConnectionError,
    RedisReplyError,
    Remedy,
    WorkingMemError,
)
from langchain_workingmem.history import embedded
from langchain_workingmem.reports import BackfillReport
from langchain_workingmem.threads.restoring import Row, Writer

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langgraph.checkpoint.base import CheckpointTuple

    from langchain_workingmem._redis.core import Core
    from langchain_workingmem._redis.state import MemoryState

# of all threads, or by the metadata of the checkpoints; None: the thread is left out
Owner: TypeAlias = str | Callable[[Mapping[str, Any]], str | None]

_log = logging.getLogger("langchain_workingmem")

CHANNEL = "messages"  # of the state
MOST = 1_000_000  # checkpoints that are listed: RedisSaver lists 10,000 unless it is asked for more, and Search never more than this
BATCH = 100  # messages that are embedded together


def backfill(
    core: Core,
    saver: Saver,
    thread_ids: Iterable[str] | None,
    user_id: Owner,
    progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> Plan[BackfillReport]:
    """Plan `Threads.backfill`, and tell how many threads are done. A thread that cannot be stored is left."""
    this = _Backfill(core.state)
    yield from core.state.indexes.ready()
    names = [*thread_ids] if thread_ids is not None else (yield from list_threads(saver))
    progress(0, len(names))
    for done, name in enumerate(names, 1):
        try:
            found = yield from read_conversation(saver, name)
        except OptionError as error:
            this.left[str(name)] = str(error)
            continue
        owner = _owner_of(found, user_id) if found.messages else None
        try:
            yield from this.store(found, owner)
        except (RedisConnectionError, RedisReplyError):
            raise
        except WorkingMemError as error:
            this.left[found.thread_id] = str(error)
        progress(done, len(names))
    if this.failure is not None:
        note = Remedy("everything is stored, some messages have no vectors yet: {reindex} adds them")
        if core.on_error == "raise":
            this.failure.add_note(note)
            raise this.failure
        _log.warning("%s; %s", this.failure, note)
    return BackfillReport(left=this.left, **this.counts)


def _owner_of(found: Conversation, user_id: Owner) -> str | None:
    if isinstance(user_id, str):
        return user_id
    owner: object = user_id({**found.metadata, "thread_id": found.thread_id})
    if owner is not None and not isinstance(owner, str):
        raise IdError(
            f"the function passed as user_id returned a value of type {type(owner).__name__}",
            remedy="return a str, or None for a thread to leave out",
        )
    return owner


@dataclass(slots=True)
class _Backfill:
    """Stores conversations, and counts."""

    state: MemoryState
    counts: Counter[str] = field(default_factory=Counter)  # fields of the report
    left: dict[str, str] = field(default_factory=dict)
    failure: Exception | None = None  # of the embedding model, which is not asked again

    def store(self, found: Conversation, owner: str | None) -> Plan[None]:
        """Store what the thread lacks at its end. A round trip, and one per 100 messages with one call of the model."""
        if owner is None:
            self.counts["skipped"] += 1
            return
        ids = [message.id or "" for message in found.messages]
        begin, source = yield from _stored(self.state, found.thread_id, check_id(owner, "user_id"), ids)
        answers = structured_answers(found.messages, is_over=True)
        rest = found.messages[begin:]
        ready = yield from compute(partial(drafts, rest, self.state.recall, str, answers), count_characters(rest))
        ends = {"created_at": found.times[ids[0]], "updated_at": found.times[ids[-1]]}
        fields = {name: str(at) for name, at in ends.items()} if all(ends.values()) else {}
        writer = Writer(state=self.state, thread_id=found.thread_id, owner=owner, fields=fields)
        for start in range(0, len(ready), BATCH):
            some = ready[start : start + BATCH]
            settings, vectors = "", list[bytes]()
            if self.failure is None:
                texts = [text for draft in some for text in draft.chunks]
                settings, vectors, self.failure = yield from embedded(self.state, texts)
            waiting = iter(vectors)
            for draft in some:
                draft.writer, draft.at = source, found.times[draft.id] or None
                yield from writer.add(Row.of(draft, settings, [next(waiting) for _ in draft.chunks] if vectors else []))
        if ready:
            yield from writer.finish()
        self.counts.update({"threads" if writer.seqs else "known": 1, "messages": len(writer.seqs)})


def _stored(state: MemoryState, thread_id: str, owner: str, ids: Sequence[str]) -> Plan[tuple[int, str]]:
    """Return how many of the messages memory has, or has deleted, and the writer of the state (see `Facts.writer`).

    `OptionError` if the others do not belong at the end of the thread. One round trip.
    """
    keys = state.keys.of(check_id(thread_id, "thread_id"))
    known = [check_id(id, "message id") for id in ids]
    (tag, next_seq), newest, stored = yield from send(
        ("HMGET", keys.thread, "user", "next_seq"), ("ZRANGE", keys.order, -1, -1), ("HMGET", keys.ids, *known)
    )
    check_owner(tag, thread_id, owner)
    held = [one is not None for one in stored]
    count = held.index(False) if False in held else len(held)
    if any(held[count:]) or (int(next_seq or 0) and not count):
        raise OptionError(
            f"memory knows thread {thread_id!r}, which grows only at its end, and lacks {held.count(False):,} of "
            f"{len(held):,} messages that belong elsewhere or were deleted",
            remedy="if the checkpoints hold all of it, and what was deleted may come back, delete the thread with "
            "threads.delete(), and backfill again; else leave it",
        )
    last = Facts.read(newest[0].decode()).writer if newest else ""
    return count, last if last.startswith("s") else f"s{int(next_seq or 0)}"


# ---------------------------------------------------------------------- checkpointers


@dataclass(slots=True)
class Conversation:
    """A thread as its checkpoints tell it. `add` takes them from the newest to the oldest, and keeps none."""

    thread_id: str
    messages: list[BaseMessage] = field(default_factory=list)  # with ids
    times: dict[str, int] = field(default_factory=dict)  # by id: when the first checkpoint with the message was made
    metadata: dict[str, Any] = field(default_factory=dict)  # of the checkpoints, the newest value of each key
    _next: Any = ...  # id of the checkpoint to take next: others are of branches that were left

    def add(self, one: CheckpointTuple) -> None:
        """Take a checkpoint: the newest one has the state, older ones what was trimmed from its front, and when messages came."""
        is_newest = self._next is ...
        if not is_newest and one.checkpoint["id"] != self._next:
            return
        self._next = (one.parent_config or {}).get("configurable", {}).get("checkpoint_id")
        self.metadata = {**one.metadata, **self.metadata}
        try:
            held = self._read(one)
        except (OptionError, ValueError) as error:
            if is_newest:
                seen = f"its channel {CHANNEL!r} holds no messages ({error})"
                raise OptionError(seen, remedy="leave it out") from error
            held = []  # an older program stored other things there
        self.times |= {message.id or "": _micros(one.checkpoint["ts"]) for message in held}
        if is_newest:
            self.messages = held
        first = self.messages[0].id if self.messages else None
        trimmed = next((at for at, message in enumerate(held) if message.id == first), 0)
        known = {message.id for message in self.messages}
        self.messages[:0] = [message for message in held[:trimmed] if message.id not in known]

    def _read(self, one: CheckpointTuple) -> list[BaseMessage]:
        """Return the messages of a state, each with an id."""
        value = one.checkpoint["channel_values"].get(CHANNEL) or []
        messages = as_messages([_revived(item) for item in value])
        for position, message in enumerate(messages):
            if not message.id:  # as in states that add_messages does not make
                said = f"{self.thread_id}\0{position}\0{message.type}\0{message.content}"
                message.id = sha256(said.encode(errors="surrogatepass")).hexdigest()[:32]
        return [*{message.id: message for message in messages if is_storable(message)}.values()]


class Saver:
    """A checkpointer as plans use it: by its methods, or by their async twins. Its errors are raised in the plan."""

    def __init__(self, saver: object, method: str, callers: tuple[str, str], *, is_async: bool, needed: bool) -> None:
        """Raise `OptionError` for what is no checkpointer, and where another one of the `callers` has to be used.

        That is where only the async twin of a method exists, or only the method, or, if it is `needed`, none of them.
        """
        from langgraph.checkpoint.base import BaseCheckpointSaver

        if not isinstance(saver, BaseCheckpointSaver):
            raise wrong_type(saver, "checkpointer", "pass the checkpointer of your graph, such as InMemorySaver()")
        names = method, f"a{method}"
        has = [getattr(type(saver), name) is not getattr(BaseCheckpointSaver, name) for name in names]
        if not has[is_async] and (needed or has[not is_async]):
            other = f"call {callers[0]} in a thread" if is_async else f"await {callers[1]} in async code"
            raise OptionError(f"{type(saver).__name__} has no {names[is_async]}()", remedy=other)
        self._saver, self._is_async = saver, is_async

    def call(self, method: str, *arguments: Any, **options: Any) -> Plan[Any]:
        """Call a method, and return what it returns."""
        named = getattr(self._saver, f"a{method}" if self._is_async else method)
        call = partial(named, *arguments, **options)
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


def list_threads(saver: Saver) -> Plan[list[Any]]:
    """Return the ids of the threads of all checkpoints, the one that was used last first."""
    names: dict[Any, None] = {}
    number = 0

    def take(one: CheckpointTuple) -> None:
        nonlocal number
        number += 1
        if not one.config["configurable"].get("checkpoint_ns"):  # others are of subgraphs
            names[one.config["configurable"]["thread_id"]] = None

    yield from saver.each(take, None, limit=MOST)
    if number >= MOST:
        raise OptionError(f"the checkpointer has {MOST:,} checkpoints or more", remedy="pass thread_ids, in parts")
    return list(names)


def read_conversation(saver: Saver, name: Any) -> Plan[Conversation]:
    """Read the conversation of a thread."""
    found = Conversation(str(name))
    yield from saver.each(found.add, {"configurable": {"thread_id": name, "checkpoint_ns": ""}})
    return found


def _revived(item: Any) -> Any:
    """Return the message that RedisSaver lists as LangChain's JSON of it; other items as they are."""
    if isinstance(item, dict) and item.get("lc") == 1 and isinstance(item.get("kwargs"), dict):
        return messages_from_dict([{"type": item["kwargs"].get("type"), "data": item["kwargs"]}])[0]
    return item


def _micros(time: str) -> int:
    """Convert the time of a checkpoint; 0, which scripts read as now, if it is none."""
    try:
        micros = to_micros(datetime.fromisoformat(time))
    except (TypeError, ValueError):
        return 0
    return micros if 0 < micros < LARGEST else 0
