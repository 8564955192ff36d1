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

from pydantic import ValidationError

from langchain_workingmem._engine.effects import Pause, Plan, Pull, send
from langchain_workingmem._redis.access import check_owner
from langchain_workingmem._redis.indexes import NO_VECTORS
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.scripts import STEP_BYTES, count_bytes
from langchain_workingmem._text.nesting import shown
from langchain_workingmem.errors import OptionError, Remedy, ThreadNotFoundError, ThreadOwnershipError, WorkingMemError
from langchain_workingmem.recall import reindex_messages
from langchain_workingmem.reports import ImportReport
from langchain_workingmem.threads import restoring
from langchain_workingmem.users.records import ForgottenRecord, MessageRecord, is_same_body
from langchain_workingmem.users.seal import Seal
from langchain_workingmem.users.sections import END, FORMAT, KEEP_ORDER, KINDS, UNREADABLE, VERSION, model_of, paths_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from langchain_workingmem._engine.effects import Argument
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.users.records import Vectors
    from langchain_workingmem.users.sections import Namespace, Record

_log = logging.getLogger("langchain_workingmem")

BATCH = 200  # messages of one round trip
THREADS = 1000  # threads whose owners are read in one round trip
MOST_CHUNKS = 50_000  # chunks of a message with vectors: Redis takes a million arguments, eleven for each
IN_MEMORY = 16 * 2**20  # bytes of checked records; more goes into a file without a name, which no other user can open
_SAME_CHUNKS = 4  # the first version of the format whose long messages are all cut as now
_LACKS = "the message of the older version before it is missing"
_LONGEST = 500  # characters of an error of a library


def readable(records: Iterable[Any]) -> Iterator[Any]:
    """Yield records, and at last the error of the caller's `json.loads` if there is one: the plan knows its number."""
    if isinstance(records, str | bytes | Mapping) or not isinstance(records, Iterable):
        remedy = "pass dicts, such as map(json.loads, file)"
        raise OptionError(f"records is of type {type(records).__name__}", remedy=remedy)
    try:
        yield from records
    except (ValueError, RecursionError) as error:
        if isinstance(error, WorkingMemError):
            raise
        yield error


async def areadable(records: AsyncIterable[Any]) -> AsyncIterator[Any]:
    """Async twin of `readable`."""
    try:
        async for record in records:
            yield record
    except (ValueError, RecursionError) as error:
        if isinstance(error, WorkingMemError):
            raise
        yield error


def load(
    core: Core,
    source: Iterator[Any] | AsyncIterator[Any],
    resource_id: str | None,
    namespaces: Iterable[Sequence[str]],
    *,
    allow_partial: bool = False,
) -> Plan[ImportReport]:
    """Check all records, then write what is not stored yet.

    A round trip per 1,000 threads, one per thread and 200 messages or 64 MiB of it, one per item, up to two per working memory.
    """
    state = core.state
    if resource_id is not None:
        check_id(resource_id, "resource_id")
    with SpooledTemporaryFile(max_size=IN_MEMORY) as file:
        this = Import(state, resource_id, namespaces)
        missing = yield from _check_records(this, source, file, allow_partial=allow_partial)
        yield from _check_owners(this)
        for model in this.models:
            yield from model.check(this)
        with suppress(*NO_VECTORS):  # messages can be embedded later
            yield from state.indexes.setup()
        file.seek(0)
        for record in _kept(file):
            if not isinstance(record, MessageRecord | ForgottenRecord):
                yield from this.flush()
            yield from record.write(this)
        yield from this.flush()
    try:
        for thread_id in this.bare if state.recall is not None else ():
            with suppress(ThreadNotFoundError, ThreadOwnershipError):  # deleted or transferred meanwhile
                yield from reindex_messages(state, this.owner, thread_id)
    except NO_VECTORS as error:
        note = Remedy("everything is imported, some messages have no vectors yet: {reindex} adds them")
        if core.on_error == "raise":
            error.add_note(note)
            raise
        _log.warning("%s; %s", error, note)
    return ImportReport(resource_id=this.owner, missing=missing, files_left=this.files_left, **this.counts)


def _check_records(
    this: Import, source: Iterator[Any] | AsyncIterator[Any], file: IO[bytes], *, allow_partial: bool
) -> Plan[str | None]:
    """Check all records, and keep them in a file; return what the archive lacks. No round trip."""
    while taken := (yield from Pull(source)):
        if allow_partial and isinstance(taken[0], Exception):
            break  # the line where the archive was cut
        try:
            record = this.read(taken[0])
        except (*UNREADABLE, WorkingMemError) as error:
            raise _refusal(this.number, error) from error
        if record is not None:
            _keep(file, record)
        if this.number % BATCH == 0:
            yield Pause(0)  # others run while a large file is checked
    if not this.number:
        raise OptionError("there is no record", remedy="an export begins with a header")
    missing = this.seal.lacks(this.end) if this.seal else None
    if missing and not allow_partial:
        raise OptionError(
            f"the archive is not whole: the records lack {missing}; nothing was imported",
            remedy=Remedy("export again, or pass {allow_partial} to import what there is"),
        )
    if this.has_version and not missing:
        raise _refusal(this.number + 1, OptionError(_LACKS, remedy=KEEP_ORDER))
    return missing


def _refusal(number: int, error: Exception) -> OptionError:
    """Return the error that names a record, and the field of its model: what was seen, and what it should be."""
    where: list[str] = []
    ours = None
    while isinstance(error, ValidationError):  # also that of a message, within that of its record
        first = error.errors(include_url=False)[0]
        where += map(str, first["loc"])
        given, kind, wanted = first["input"], first["type"], first["msg"].partition(" or instance of ")[0]
        seen = f"is of type {type(given).__name__}" if kind.endswith("_type") else f"is {shown(given)}"
        ours = OptionError(
            f"{'.'.join(where)} {seen}", remedy=f"it {wanted.partition(' ')[2]}"
        )  # "Input should be ..."
        error = KeyError(".".join(where)) if kind == "missing" else first.get("ctx", {}).get("error", ours)
    what = f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
    if error is not ours and len(where) > isinstance(error, WorkingMemError | KeyError):  # those name the field
        what = f"{'.'.join(where)}: {what}"
    what = what if len(what) <= _LONGEST else f"{what[:_LONGEST]}..."
    usual = "use valid Unicode" if isinstance(error, UnicodeError) else "correct the record"
    remedy: str = getattr(error, "remedy", None) or usual
    what = what if remedy in what else f"{what}: {remedy}"
    return OptionError(f"record {number}: {what}; nothing was imported", remedy=remedy)


def _keep(file: IO[bytes], record: Record) -> None:
    try:
        pickle.dump(record, file, pickle.HIGHEST_PROTOCOL)
    except OSError as error:
        seen = f"{gettempdir()} cannot hold the records to import ({error})"
        raise OptionError(seen, remedy="set TMPDIR to a directory with enough space") from error


def _kept(file: IO[bytes]) -> Iterator[Record]:
    with suppress(EOFError):
        while True:
            yield pickle.load(file)  # noqa: S301 - written by `_keep`


def _check_owners(this: Import) -> Plan[None]:
    """Raise `ThreadOwnershipError` when a thread has another owner. A round trip per 1,000 threads."""
    names = list(this.threads)
    for start in range(0, len(names), THREADS):
        some = names[start : start + THREADS]
        owners = yield from send(*(("HGET", this.state.keys.of(name).thread, "resource") for name in some))
        for name, owner in zip(some, owners, strict=True):
            try:
                check_owner(owner, name, this.owner)
            except ThreadOwnershipError as error:
                error.add_note(f"record {this.threads[name]} names it; nothing was imported")
                raise


@dataclass(slots=True)
class Import:
    """Checks records one by one, then writes them; it is the context of their models. Messages wait for a call with many."""

    state: MemoryState
    resource_id: str | None  # the new owner; None: the resource in the header
    namespaces: Iterable[Sequence[str]]
    owner: str = ""
    paths: list[tuple[Namespace, Namespace]] = field(default_factory=list)  # of items: in the records, in the store
    number: int = 0  # of the last record
    thread: str | None = None  # of the next message
    threads: dict[str, int] = field(default_factory=dict)  # the number of the first record of each
    untitled: dict[str, str] = field(default_factory=dict)  # `title_from` of threads whose message was not read
    has_citations: bool = False  # there are records that cite messages
    models: dict[type[Record], None] = field(default_factory=dict)  # of the records
    # by path: whether it is not deleted, bytes of all revisions
    files: dict[str, tuple[bool, int]] = field(default_factory=dict)
    files_left: list[str] = field(default_factory=list)  # paths where another file is stored
    version: Any = VERSION  # of the format
    seal: Seal | None = None  # of an archive that has a last record
    end: Any = None  # the last record
    has_version: bool = False  # the last record is an older version of the next message
    fields: Sequence[Argument] = ()  # of the thread, if it is new
    messages: list[Argument] = field(default_factory=list)  # of the next call
    bodies: list[tuple[str, bytes]] = field(default_factory=list)  # of these messages, with their ids
    size: int = 0  # bytes of the next call
    is_written: bool = True  # there is no next call
    bare: dict[str, None] = field(default_factory=dict)  # threads with messages that have no vectors
    different: set[tuple[str, str]] = field(default_factory=set)  # stored messages that say something else: thread, id
    counts: Counter[str] = field(default_factory=Counter)  # fields of the report

    def read(self, record: object) -> Record | None:
        """Check a record, and return it; None for the header. An exception stands for a broken line."""
        self.number += 1
        if isinstance(record, Exception):
            remedy = "give json.loads one line of an export at a time"
            raise OptionError(f"the record cannot be read ({record})", remedy=remedy) from record
        if not isinstance(record, Mapping):
            remedy = "pass a dict, json.loads(line) of each line"
            raise OptionError(f"the record is of type {type(record).__name__}", remedy=remedy)
        if self.number == 1:
            self._read_header(record)
            return None
        kind = record.get("kind")
        if self.end is not None:
            raise OptionError("it stands behind the last record", remedy=KEEP_ORDER)
        if self.seal and kind == END:
            self.end = dict(record)
            return None
        if self.seal:
            self.seal.add(record)
        if kind != "message" and self.has_version:
            raise OptionError(_LACKS, remedy=KEEP_ORDER)
        if kind not in KINDS:
            raise OptionError(f"kind {kind!r} is unknown", remedy=f"use one of {', '.join(KINDS)}")
        model = model_of(kind)
        self.has_citations |= model.cites
        self.models[model] = None
        return model.model_validate(dict(record), context=self)

    def _read_header(self, record: Mapping[str, Any]) -> None:
        if record.get("kind") != "header" or record.get("format") != FORMAT:
            remedy = "pass all records of users.export() or of an importer, from the first; of `workingmem import`, name --format"
            raise OptionError(f"this is not a header of {FORMAT!r}", remedy=remedy)
        self.version = record.get("version")
        if self.version not in range(1, VERSION + 1):
            seen = f"the format has version {self.version!r}, this package reads 1 to {VERSION}"
            raise OptionError(seen, remedy="use a newer package")
        self.seal = Seal() if record.get("ends") else None
        named = record.get("resource_id")
        self.owner = check_id(self.resource_id or named, "resource_id")
        source = self.owner if named is None else check_id(named, "resource_id")
        old, new = (paths_of(self.namespaces, owner) for owner in (source, self.owner))
        self.paths = list(zip(old, new, strict=True))

    def begin(self, thread_id: str, fields: Sequence[Argument]) -> None:
        """Write the messages that follow into this thread; create it, if need be, even if none follows."""
        self.thread, self.fields, self.is_written = thread_id, fields, False
        self.size = count_bytes(fields)

    def add(self, message: MessageRecord) -> Plan[None]:
        """Add a message to the next call."""
        draft, usable = message.message, self._usable_vectors(message)
        index_digest, vectors = (usable.settings, usable.data) if usable else ("", [])
        arguments = restoring.as_restored(draft, message.kind, message.header(index_digest, len(vectors)), vectors)
        more = count_bytes(arguments)
        # behind the places of forgotten messages that follow the last one
        is_full = len(self.bodies) >= BATCH or len(self.messages) > MOST_CHUNKS or self.size + more > STEP_BYTES
        if self.bodies and is_full and not self.has_version:
            yield from self.flush()
        self.messages += arguments
        self.bodies.append((draft.id, draft.body))
        self.size += more
        self.is_written, self.has_version = False, bool(message.version)

    def differs(self, source: tuple[str, str]) -> bool:
        """Tell whether a message (thread, id) is not that of the records: of other threads, or stored before with other words."""
        return source[0] not in self.threads or source in self.different

    def _usable_vectors(self, message: MessageRecord) -> Vectors | None:
        """Return the vectors of a message if they are those that this memory would make."""
        state, given, chunks = self.state, message.vectors, message.message.chunks
        if given is None or message.kind or state.recall is None or state.indexes.dims is None:
            return None
        if (
            given.settings != state.indexes.index_digest(state.indexes.dims)
            or not len(given.data) == len(chunks) <= MOST_CHUNKS
        ):
            return None
        if len(chunks) > 1 and self.version < _SAME_CHUNKS and not all(map(str.isascii, chunks)):
            return None
        import numpy as np

        dtype = np.dtype(state.indexes.dtype)
        size = state.indexes.dims * dtype.itemsize
        are_whole = all(len(one) == size and np.isfinite(np.frombuffer(one, dtype)).all() for one in given.data)
        return given if are_whole else None

    def flush(self) -> Plan[None]:
        """Write the messages that wait."""
        if self.thread is None or self.is_written:
            return
        thread = self.thread, self.owner
        writing = restoring.restore_messages(self.state, *thread, "join", self.fields, self.messages)
        made, new, bare, _ = yield from writing
        self.counts.update(threads=made, messages=new, skipped=len(self.bodies) - new)
        if bare:
            self.bare[self.thread] = None
        if new < len(self.bodies) and self.has_citations:
            key = self.state.keys.of(self.thread).messages
            (stored,) = yield from send(("HMGET", key, *(id for id, _ in self.bodies)))
            for (id, body), value in zip(self.bodies, stored, strict=True):
                if value is not None and not is_same_body(body, value):
                    self.different.add((self.thread, id))
        self.messages, self.bodies, self.size, self.is_written = [], [], count_bytes(self.fields), True
