"""The plan that stores the conversations of a checkpointer, each in the order and with the times of its checkpoints."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_workingmem._engine.plan import Plan, compute, send
from langchain_workingmem._redis.access import check_owner
from langchain_workingmem._redis.codec import count_characters, drafts
from langchain_workingmem._redis.facts import Facts
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._text.said import structured_answers
from langchain_workingmem.errors import IdError, OptionError, Remedy, ThreadOwnershipError, UserDeletedError
from langchain_workingmem.history.save import embedded
from langchain_workingmem.reports import BackfillReport
from langchain_workingmem.threads.checkpoints import Saver, list_threads, read_conversation
from langchain_workingmem.threads.restoring import Row, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from langchain_workingmem._redis.core import Core
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.threads.checkpoints import Conversation

    # of all threads, or by the metadata of the checkpoints; None: the thread is left out
    Owner: TypeAlias = str | Callable[[Mapping[str, Any]], str | None]

_log = logging.getLogger("langchain_workingmem")

BATCH = 100  # messages that are embedded together
_LEFT = (IdError, OptionError, UserDeletedError, ThreadOwnershipError)


def saver_of(checkpointer: object, *, is_async: bool) -> Saver:
    """Return the checkpointer for a plan; `OptionError` for what is none, or cannot list checkpoints as this caller needs it."""
    return Saver(checkpointer, "list", ("backfill()", "abackfill()"), is_async=is_async, needed=True)


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
        except _LEFT as error:
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
