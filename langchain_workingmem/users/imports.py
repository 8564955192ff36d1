"""The plan that imports records: it checks all of them before it writes the first."""

from __future__ import annotations

import logging
import pickle
from collections import Counter
from collections.abc import AsyncIterable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile, gettempdir
from typing import IO, TYPE_CHECKING, Any

from langchain_workingmem._engine.effects import Pause, Plan, Pull, send
from langchain_workingmem._redis.access import check_owner, guarded_write, run_script
from langchain_workingmem._redis.indexes import NO_VECTORS
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.scripts import STEP_BYTES, count_bytes
from langchain_workingmem._redis.sweeping import continue_sweep
from langchain_workingmem.errors import (
    OptionError,
    Remedy,
    ThreadNotFoundError,
    ThreadOwnershipError,
    WorkingMemError,
)
from langchain_workingmem.observations import restore_log, restore_resource_log
from langchain_workingmem.recall import reindex_messages
from langchain_workingmem.reports import ImportReport
from langchain_workingmem.threads import restore_messages
from langchain_workingmem.users.format import UNREADABLE
from langchain_workingmem.users.records import (
    OLDER,
    ItemStep,
    LogStep,
    MemoryStep,
    MessageStep,
    Reader,
    ThreadStep,
    is_same_body,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator, Sequence

    from langchain_workingmem._engine.effects import Argument
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.options import Scope
    from langchain_workingmem.users.records import Step

_log = logging.getLogger("langchain_workingmem")

BATCH = 200  # messages of one round trip
THREADS = 1000  # threads whose owners are read in one round trip
MOST_CHUNKS = 50_000  # chunks of a message with vectors: Redis takes a million arguments, eleven for each
IN_MEMORY = 16 * 2**20  # bytes of checked records; more goes into a file without a name, which no other user can open
_LONGEST = 500  # characters of an error of a library


def readable(records: Iterable[Any]) -> Iterator[Any]:
    """Yield records, and at last the error of the caller's `json.loads` if there is one: the plan knows its number."""
    if isinstance(records, str | bytes | Mapping) or not isinstance(records, Iterable):
        remedy = "pass dicts, such as map(json.loads, file)"
        raise OptionError(f"records is of type {type(records).__name__}", remedy=remedy)
    try:
        yield from records
    except WorkingMemError:
        raise
    except (ValueError, RecursionError) as error:
        yield error


async def areadable(records: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
    """Async twin of `readable`."""
    if not isinstance(records, AsyncIterable):
        for record in readable(records):
            yield record
        return
    try:
        async for record in records:
            yield record
    except WorkingMemError:
        raise
    except (ValueError, RecursionError) as error:
        yield error


def load(
    core: Core,
    source: Iterator[Any] | AsyncIterator[Any],
    resource_id: str | None,
    namespaces: Iterable[Sequence[str]],
) -> Plan[ImportReport]:
    """Check all records, then write what is not stored yet.

    A round trip per 1,000 threads, one per thread and 200 messages or 64 MiB of it, one per item, up to two per working memory.
    """
    state = core.state
    if resource_id is not None:
        check_id(resource_id, "resource_id")
    with SpooledTemporaryFile(max_size=IN_MEMORY) as file:
        reader = yield from _check_records(Reader(state, resource_id, namespaces), source, file)
        yield from _check_owners(state, reader)
        with suppress(*NO_VECTORS):  # messages can be embedded later
            yield from state.indexes.setup()
        writer = _Writer(state, reader.owner, untitled=reader.unfounded, has_logs=reader.has_logs)
        file.seek(0)
        for step in _steps(file):
            yield from writer.write(step)
        yield from writer.flush()
    try:
        for thread_id in writer.bare if state.recall is not None else ():
            with suppress(ThreadNotFoundError, ThreadOwnershipError):  # deleted or transferred meanwhile
                yield from reindex_messages(state, reader.owner, thread_id)
    except NO_VECTORS as error:
        note = Remedy("everything is imported, some messages have no vectors yet: {reindex} adds them")
        if core.on_error == "raise":
            error.add_note(note)
            raise
        _log.warning("%s; %s", error, note)
    return ImportReport(resource_id=reader.owner, **writer.counts)


def _check_records(reader: Reader, source: Iterator[Any] | AsyncIterator[Any], file: IO[bytes]) -> Plan[Reader]:
    """Check all records, and write their steps into a file. No round trip."""
    while taken := (yield from Pull(source)):
        try:
            step = reader.read(taken[0])
        except (*UNREADABLE, WorkingMemError) as error:
            raise _refusal(f"record {reader.number}", error) from error
        if step is not None:
            _keep(file, step)
        if reader.number % BATCH == 0:
            yield Pause(0)  # others run while a large file is checked
    if not reader.number:
        raise OptionError("there is no record", remedy="an export begins with a header")
    try:
        reader.check_end()
    except OptionError as error:
        raise _refusal(f"record {reader.number + 1}, the end", error) from error
    return reader


def _refusal(record: str, error: Exception) -> OptionError:
    """Return the error that names a record."""
    what = f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
    what = what if len(what) <= _LONGEST else f"{what[:_LONGEST]}..."
    remedy: str = getattr(error, "remedy", None) or "correct the record"
    what = what if remedy in what else f"{what}: {remedy}"
    return OptionError(f"{record}: {what}; nothing was imported", remedy=remedy)


def _keep(file: IO[bytes], step: Step) -> None:
    try:
        pickle.dump(step, file, pickle.HIGHEST_PROTOCOL)
    except OSError as error:
        seen = f"{gettempdir()} cannot hold the records to import ({error})"
        raise OptionError(seen, remedy="set TMPDIR to a directory with enough space") from error


def _steps(file: IO[bytes]) -> Iterator[Step]:
    with suppress(EOFError):
        while True:
            yield pickle.load(file)  # noqa: S301 - written by `_keep`


def _check_owners(state: MemoryState, reader: Reader) -> Plan[None]:
    """Raise `ThreadOwnershipError` when a thread has another owner. A round trip per 1,000 threads."""
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


@dataclass(slots=True)
class _Writer:
    """Writes steps, the messages of a thread in batches."""

    state: MemoryState
    owner: str
    untitled: Collection[str]  # threads whose titles were made from messages that the records do not hold so
    has_logs: bool = False  # the records hold logs of observations
    thread: str | None = None
    header: list[Argument] = field(default_factory=list)  # the first arguments of each call for the thread
    messages: list[Argument] = field(default_factory=list)  # of the next call
    bodies: dict[str, bytes] = field(default_factory=dict)  # of these messages, by id
    count: int = 0  # of these messages
    size: int = 0  # bytes of the next call
    is_written: bool = True  # there is no next call
    after_version: bool = False  # the next message must be in the same call
    bare: dict[str, None] = field(default_factory=dict)  # threads with messages that have no vectors
    different: set[tuple[str, str]] = field(default_factory=set)  # stored messages that say something else: thread, id
    counts: Counter[str] = field(default_factory=Counter)

    def write(self, step: Step) -> Plan[None]:
        """Write a step, or keep a message for the next call."""
        if isinstance(step, MessageStep):
            yield from self._add(self._arguments(step), step)
            return
        yield from self.flush()
        match step:
            case ThreadStep(id, title, fields):
                self.thread, self.is_written = id, False
                fields = [*([] if id in self.untitled else title), *fields]
                self.header = ["join", encode(self.owner), encode(id), len(fields), *fields]
                self.size = count_bytes(self.header)
            case MemoryStep():
                yield from self._write_memory(step)
            case LogStep():
                yield from self._write_log(step)
            case ItemStep(call):
                (written,) = yield from send(call)
                self.counts["items"] += int(written)

    def _arguments(self, step: MessageStep) -> list[Argument]:
        index_digest, vectors = (step.index_digest, step.vectors) if self._is_usable(step) else ("", [])
        arguments: list[Argument] = [step.id, step.kind, step.header(index_digest, len(vectors)) + step.body]
        named: list[Argument] = ["role", step.role, "name", step.name, "labels", step.labels]
        for text, vector in zip(step.chunks, vectors, strict=False):
            fields = [*named, "text", text, "vector", vector]
            arguments += [len(fields), *fields]
        return arguments

    def _compare(self) -> Plan[None]:
        """Note which of the messages were stored already and say something else: no observation of the import cites them.

        One round trip.
        """
        thread_id = self.thread or ""
        (values,) = yield from send(("HMGET", self.state.keys.of(thread_id).messages, *self.bodies))
        for (id, body), value in zip(self.bodies.items(), values, strict=True):
            if value is not None and not is_same_body(body, value):
                self.different.add((thread_id, id))

    def _is_usable(self, step: MessageStep) -> bool:
        """Tell whether the vectors are those that this memory would make."""
        state = self.state
        if not step.index_digest or state.recall is None or state.indexes.dims is None:
            return False
        right_count = len(step.vectors) == len(step.chunks) <= MOST_CHUNKS
        if step.index_digest != state.indexes.index_digest(state.indexes.dims) or not right_count:
            return False
        import numpy as np

        dtype = np.dtype(state.indexes.dtype)
        return all(
            len(vector) == state.indexes.dims * dtype.itemsize and np.isfinite(np.frombuffer(vector, dtype)).all()
            for vector in step.vectors
        )

    def _add(self, arguments: list[Argument], step: MessageStep) -> Plan[None]:
        more = count_bytes(arguments)
        if self.count and self.size + more > STEP_BYTES and not self.after_version:
            yield from self.flush()
        self.messages += arguments
        self.bodies[step.id] = step.body
        self.count += 1
        self.size += more
        self.is_written, self.after_version = False, arguments[1] == OLDER
        if (self.count >= BATCH or len(self.messages) > MOST_CHUNKS) and not self.after_version:
            yield from self.flush()

    def _write_memory(self, step: MemoryStep) -> Plan[None]:
        if step.thread_id is None:
            ((written, _),) = yield from run_script("", self.owner, step.call)
        else:
            written, left = yield from guarded_write(self.state, step.thread_id, [self.owner], step.call)
            yield from continue_sweep(self.state, step.thread_id, left)
        self.counts.update(working_memories=written, revisions=written * step.revisions)

    def _write_log(self, step: LogStep) -> Plan[None]:
        """Write a log, unless this memory keeps its logs in another scope: then the messages are raw."""
        scope: Scope = "resource" if step.thread_id is None else "thread"
        if self.state.observations is not None and self.state.observations.scope != scope:
            return
        if step.thread_id is None:
            plan = restore_resource_log(self.state, self.owner, step.parts, "import", self.different)
        else:
            plan = restore_log(self.state, step.thread_id, self.owner, step.parts, "import", self.different)
        try:
            self.counts["observations"] += yield from plan
        except (ThreadNotFoundError, ThreadOwnershipError) as error:  # deleted or transferred meanwhile
            _log.warning("%s; its observations are left out", error)

    def flush(self) -> Plan[None]:
        """Write the messages that wait."""
        if self.thread is None or self.is_written:
            return
        reply = yield from restore_messages(self.state, self.thread, self.owner, [*self.header, *self.messages])
        made, new, bare, _ = reply
        self.counts.update(threads=made, messages=new, skipped=self.count - new)
        if bare:
            self.bare[self.thread] = None
        if new < self.count and self.has_logs:
            yield from self._compare()
        self.messages, self.count, self.size, self.is_written = [], 0, count_bytes(self.header), True
        self.bodies = {}
