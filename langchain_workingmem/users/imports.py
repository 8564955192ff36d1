"""The plan that imports records: all of them are checked before the first is written."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from langchain_workingmem._engine.effects import Pause, Plan, Pull, send
from langchain_workingmem._redis.access import check_owner, guarded_write, run_script
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.scripts import STEP_BYTES, count_bytes
from langchain_workingmem._redis.sweeping import continue_sweep
from langchain_workingmem.errors import (
    EmbeddingError,
    EmbeddingSizeError,
    OptionError,
    ThreadNotFoundError,
    ThreadOwnershipError,
    WorkingMemError,
)
from langchain_workingmem.models import ImportReport
from langchain_workingmem.recall import reindex_messages
from langchain_workingmem.threads import restore_messages
from langchain_workingmem.users.format import UNREADABLE
from langchain_workingmem.users.records import OLDER, ItemStep, MemoryStep, MessageStep, Reader, ThreadStep, begun

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from langchain_workingmem._engine.effects import Argument
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.options import OnError
    from langchain_workingmem.users.records import Step

_log = logging.getLogger("langchain_workingmem")

BATCH = 200  # messages of one round trip
THREADS = 1000  # whose owners are asked for in one
MOST_PIECES = 50_000  # of a message whose vectors are taken over: Redis takes a million arguments, eleven for each
_LONGEST = 500  # characters of what a library says about a record


class Staged(Protocol):
    """What is going to be written, in order. A list will do where it is small."""

    def append(self, step: Step, /) -> None:
        """Add a step."""

    def __iter__(self) -> Iterator[Step]:
        """Give all steps from the first."""


def load(
    state: MemoryState,
    source: Iterator[Any] | AsyncIterator[Any],
    resource_id: str | None,
    namespaces: Sequence[Sequence[str]],
    staged: Staged,
    on_error: OnError,
) -> Plan[ImportReport]:
    """Check all records, then write message by message what is not there yet.

    A round trip per 1,000 threads, one per thread and 200 messages or 64 MiB of it, one per item and per working memory, two at most.
    """
    if resource_id is not None:
        check_id(resource_id, "resource_id")
    reader = yield from _checked(state, source, resource_id, namespaces, staged)
    yield from _check_owners(state, reader)
    with suppress(EmbeddingError, EmbeddingSizeError, OptionError):  # all can be stored, and embedded later
        yield from state.setup()
    intake = _Intake(state, reader.owner)
    for step in staged:
        yield from intake.take(step)
    yield from intake.flush()
    try:
        for thread_id in intake.bare if state.recall is not None else ():
            yield from _embedded(state, thread_id, intake.owner)
    except (EmbeddingError, EmbeddingSizeError, OptionError) as error:
        note = "everything is imported, some messages have no vectors yet: memory.recall.reindex() adds them"
        if on_error == "raise":
            error.add_note(note)
            raise
        _log.warning("%s; %s", error, note)
    return ImportReport(resource_id=intake.owner, **intake.counts)


def _checked(
    state: MemoryState,
    source: Iterator[Any] | AsyncIterator[Any],
    resource_id: str | None,
    namespaces: Sequence[Sequence[str]],
    staged: Staged,
) -> Plan[Reader]:
    """Check all records, and stage what they are going to write. No round trip."""
    reader: Reader | None = None
    number = 0
    while taken := (yield Pull(source)):
        number += 1
        try:
            record = _mapping(taken[0])
            if reader is None:
                reader = begun(state, record, resource_id, namespaces)
            else:
                staged.append(reader.read(record))
        except (*UNREADABLE, WorkingMemError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
            what = what if len(what) <= _LONGEST else f"{what[:_LONGEST]}..."
            remedy = what.rpartition(": ")[2]  # of the error that says what is wrong with the record
            raise OptionError(f"record {number}: {what}; nothing was imported", remedy=remedy) from error
        if number % BATCH == 0:
            yield Pause(0)  # nobody else waits for a large file to be checked
    if reader is None:
        raise OptionError("there is no record", remedy="an export begins with a header")
    try:
        reader.check_end()
    except ValueError as error:
        raise OptionError(
            f"record {number + 1}, the end: {error}; nothing was imported", remedy=str(error).rpartition(": ")[2]
        ) from error
    return reader


def _mapping(record: Any) -> Mapping[str, Any]:
    if not isinstance(record, Mapping):
        msg = f"is of type {type(record).__name__}: pass a dict, json.loads(line) of each line"
        raise TypeError(msg)
    return record


def _check_owners(state: MemoryState, reader: Reader) -> Plan[None]:
    """Raise `ThreadOwnershipError` when a thread belongs to somebody else. A round trip per 1,000 threads."""
    names = list(reader.threads)
    for start in range(0, len(names), THREADS):
        some = names[start : start + THREADS]
        owners = yield from send(*(("HGET", state.keys.of(name).thread, "resource") for name in some))
        for name, owner in zip(some, owners, strict=True):
            try:
                check_owner(owner, name, reader.owner)
            except ThreadOwnershipError as error:
                error.add_note(f"record {reader.threads[name]} names it; nothing was imported")
                raise


def _embedded(state: MemoryState, thread_id: str, resource_id: str) -> Plan[None]:
    try:
        yield from reindex_messages(state, resource_id, thread_id)
    except (ThreadNotFoundError, ThreadOwnershipError):
        return  # deleted, or handed over, since it was imported


@dataclass(slots=True)
class _Intake:
    """What was read and not written yet: a part of one thread."""

    state: MemoryState
    owner: str
    thread: str | None = None
    begins: list[Argument] = field(default_factory=list)  # how each call for the thread begins
    messages: list[Argument] = field(default_factory=list)
    count: int = 0  # of messages
    size: int = 0  # bytes of all
    is_written: bool = True  # all that has come in
    is_version: bool = False  # the last row, whose message must come in the same call
    bare: dict[str, None] = field(default_factory=dict)  # threads with messages that have no vectors
    counts: Counter[str] = field(default_factory=Counter)

    def take(self, step: Step) -> Plan[None]:
        """Write a step, or keep it for the next call."""
        match step:
            case ThreadStep(id, fields):
                yield from self.flush()
                self.thread, self.is_written = id, False
                self.begins = ["join", encode(self.owner), encode(id), len(fields), *fields]
                self.size = count_bytes(self.begins)
            case MessageStep():
                yield from self._add(self._row(step))
            case MemoryStep():
                yield from self.flush()
                yield from self._remember(step)
            case ItemStep(call):
                yield from self.flush()
                (written,) = yield from send(call)
                self.counts["items"] += int(written)

    def _row(self, step: MessageStep) -> list[Argument]:
        usable = self._usable(step)  # a message without text has none, and needs none
        settings, vectors = (step.settings, step.vectors) if usable else ("", [])
        row: list[Argument] = [step.id, step.behind, step.head(settings, len(vectors)) + step.body]
        for text, vector in zip(step.chunks, vectors, strict=False):
            pairs: dict[str, Argument] = {
                "role": step.role,
                "name": step.name,
                "labels": step.labels,
                "text": text,
                "vector": vector,
            }
            row += [2 * len(pairs), *(part for pair in pairs.items() for part in pair)]
        return row

    def _usable(self, step: MessageStep) -> bool:
        """Tell whether the vectors are what this memory would make."""
        state = self.state
        if not step.settings or state.recall is None or state.dims is None:
            return False
        if step.settings != state.index_digest(state.dims) or not len(step.vectors) == len(step.chunks) <= MOST_PIECES:
            return False
        import numpy as np

        dtype = np.dtype(state.index.dtype)
        return all(
            len(vector) == state.dims * dtype.itemsize and np.isfinite(np.frombuffer(vector, dtype)).all()
            for vector in step.vectors
        )

    def _add(self, row: list[Argument]) -> Plan[None]:
        more = count_bytes(row)
        if self.count and self.size + more > STEP_BYTES and not self.is_version:
            yield from self.flush()
        self.messages += row
        self.count += 1
        self.size += more
        self.is_written, self.is_version = False, row[1] == OLDER
        if (self.count >= BATCH or len(self.messages) > MOST_PIECES) and not self.is_version:
            yield from self.flush()

    def _remember(self, step: MemoryStep) -> Plan[None]:
        if step.thread_id is None:
            ((written, _),) = yield from run_script("", self.owner, step.call)
        else:
            written, left = yield from guarded_write(self.state, step.thread_id, [self.owner], step.call)
            yield from continue_sweep(self.state, step.thread_id, left)
        self.counts.update(working_memories=written, revisions=written * step.revisions)

    def flush(self) -> Plan[None]:
        """Write what has come in."""
        if self.thread is None or self.is_written:
            return
        reply = yield from restore_messages(self.state, self.thread, self.owner, [*self.begins, *self.messages])
        made, new, bare, _ = reply
        self.counts.update(threads=made, messages=new, skipped=self.count - new)
        if bare:
            self.bare[self.thread] = None
        self.messages, self.count, self.size, self.is_written = [], 0, count_bytes(self.begins), True
