"""The writing of a copied, imported or backfilled thread, part by part, with the times and vectors of its messages."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.plan import send
from langchain_workingmem._redis.access import SWEEP_SIZE, continue_sweep, guarded_write, run_script, sweep_left
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.keys import encode
from langchain_workingmem._redis.scripts import COMMON, DELETE, STEP_BYTES, Script, count_bytes
from langchain_workingmem._text.searched import as_searched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem._engine.plan import Argument, Command, Plan
    from langchain_workingmem._redis.codec import Draft
    from langchain_workingmem._redis.state import MemoryState

RESTORE, TITLE = Script("threads/restore", *COMMON, "said"), Script("history/title")
BATCH = 200  # messages of one step
MOST_CHUNKS = 50_000  # chunks of a step with vectors: Redis takes a million arguments, eleven for each


def restore_messages(
    state: MemoryState,
    thread_id: str,
    user_id: str,
    mode: str,
    fields: Sequence[Argument] = (),
    messages: Sequence[Argument] = (),
    deleted: Sequence[str] = (),
    *,
    at_most_once: bool = False,
) -> Plan[list[Any]]:
    """Run `restore.lua`, and return its reply; the owner may not be under deletion. One round trip.

    `fields` are those of a new thread. The ids of the messages tell the script whether it has run before; without messages a part
    of a copy must be sent `at_most_once`.
    """
    keys, owner = state.keys.of(thread_id), encode(user_id)

    def undo(reply: Any, _: str) -> Command:
        return DELETE.call(keys.all, owner, SWEEP_SIZE, "undo", as_dict(reply[-1])[b"updated_at"])

    call = RESTORE.call(
        keys.all, mode, owner, encode(thread_id), len(fields), *fields, len(deleted), *deleted, *messages
    )
    reply: list[Any] = yield from guarded_write(state, thread_id, [user_id], call, undo, at_most_once=at_most_once)
    yield from continue_sweep(state, thread_id, sweep_left(as_dict(reply[-1])))
    return reply


def restore_title(state: MemoryState, thread_id: str, title: str, message_id: str, words: str) -> Plan[bool]:
    """Give a thread the title that a model has made from a message, unless it has one or the message is not there. One round trip."""
    call = TITLE.call(state.keys.of(thread_id).all, title, message_id, words)
    ((titled, left),) = yield from run_script(thread_id, None, call)
    yield from continue_sweep(state, thread_id, left)
    return bool(titled)


def as_restored(draft: Draft, kind: int, header: bytes, vectors: Sequence[bytes]) -> list[Argument]:
    """Return a draft as arguments of `restore.lua`, with the vectors of its chunks."""
    arguments: list[Argument] = [draft.id, kind, header + draft.body]
    for one in draft.media:
        arguments += one
    for text, vector in zip(draft.chunks, vectors, strict=False):
        fields: list[Argument] = ["role", draft.role, "name", draft.name, "labels", draft.labels]
        fields += ["metadata", draft.metadata] if draft.metadata else []
        fields += ["text", as_searched(text), "vector", vector]
        arguments += [len(fields), *fields]
    return arguments


def header_of(draft: Draft, stored_at: int, digest: str, chunks: int, state: str, *, refused: bool = False) -> bytes:
    """Return the header of a draft that scripts read: when it was stored, and how many vectors of which settings it has."""
    said = f"{draft.words}/{draft.weight}/0{'!' if refused else ''}"
    return f'{{"stored_at":{stored_at},"vectors":"{digest}/{draft.size}/{chunks}","said":"{said}","state":"{state}",'.encode()


@dataclass(slots=True, kw_only=True)
class Writer:
    """Adds messages to threads, in steps. What a thread has already stays as it is."""

    state: MemoryState
    owner: str = ""
    compares: bool = False  # stored messages with those that are added
    counts: Counter[str] = field(default_factory=Counter)  # threads, messages, and those that were stored already
    bare: dict[str, None] = field(default_factory=dict)  # threads with messages that have no vectors
    different: set[tuple[str, str]] = field(default_factory=set)  # stored messages that say something else: thread, id
    thread: str | None = None  # of the next message
    _fields: Sequence[Argument] = ()  # of the thread, if it is new
    _deleted: Sequence[str] = ()  # ids
    _messages: list[Argument] = field(default_factory=list)  # of the next call
    _bodies: list[tuple[str, bytes]] = field(default_factory=list)  # of these messages, with their ids
    _chunks: int = 0
    _size: int = 0  # bytes of the next call
    _waits: bool = False  # there is a next call

    def begin(self, thread_id: str, fields: Sequence[Argument], deleted: Sequence[str] = ()) -> Plan[None]:
        """Write the messages that follow into this thread; create it, if need be, even if none follows."""
        yield from self.flush()
        self.thread, self._fields, self._deleted, self._waits = thread_id, fields, deleted, True
        self._size = count_bytes([*fields, *deleted])

    def add(self, draft: Draft, kind: int, header: bytes, vectors: Sequence[bytes] = ()) -> Plan[None]:
        """Add a message to the next call."""
        arguments = as_restored(draft, kind, header, vectors)
        more = count_bytes(arguments)
        is_full = len(self._bodies) >= BATCH or self._chunks > MOST_CHUNKS or self._size + more > STEP_BYTES
        if self._bodies and is_full:
            yield from self.flush()
        self._messages += arguments
        self._bodies.append((draft.id, draft.body))
        self._chunks += len(vectors)
        self._size += more
        self._waits = True

    def flush(self) -> Plan[None]:
        """Write the messages that wait."""
        if self.thread is None or not self._waits:
            return
        writing = restore_messages(
            self.state, self.thread, self.owner, "join", self._fields, self._messages, self._deleted
        )
        made, new, bare, _ = yield from writing
        self.counts.update(threads=made, messages=new, skipped=len(self._bodies) - new)
        if bare:
            self.bare[self.thread] = None
        if new < len(self._bodies) and self.compares:
            key = self.state.keys.of(self.thread).messages
            (stored,) = yield from send(("HMGET", key, *(id for id, _ in self._bodies)))
            for (id, body), value in zip(self._bodies, stored, strict=True):
                if value is not None and not _is_same_body(body, value):
                    self.different.add((self.thread, id))
        self._messages, self._bodies, self._chunks, self._size, self._waits = [], [], 0, 0, False


def _is_same_body(body: bytes, value: bytes) -> bool:
    """Tell whether a stored message is the one that was added; in a copy of a thread its body keeps the id of its source."""
    stored = value[value.index(b'"type":') :]
    if stored == body:
        return True
    ours, theirs = (json.loads(b"{" + one) for one in (body, stored))
    for one in (ours, theirs):
        one["data"].pop("id", None)
    return bool(ours == theirs)
