"""The plan that imports records: it checks all of them before it writes the first."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from langchain_workingmem._engine.plan import Call, Plan, Sleep, send
from langchain_workingmem._redis.access import check_owner
from langchain_workingmem._redis.indexes import NO_VECTORS
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.errors import OptionError, Remedy, ThreadNotFoundError, ThreadOwnershipError, WorkingMemError
from langchain_workingmem.recall.reindex import reindex_messages
from langchain_workingmem.reports import ImportReport
from langchain_workingmem.users.sections import END, FORMAT, KEEP_ORDER, KINDS, UNREADABLE, VERSION, model_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_workingmem._redis.core import Core
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.threads.restoring import Writer
    from langchain_workingmem.users.sections import Record

_log = logging.getLogger("langchain_workingmem")

PAUSES = 200  # records between two
THREADS = 1000  # threads whose owners are read in one round trip
_END = object()
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


def load(core: Core, source: Iterator[Any] | AsyncIterator[Any], user_id: str | None) -> Plan[ImportReport]:
    """Check all records, then write what is not stored yet.

    A round trip per 1,000 threads, one per thread and 200 messages or 64 MiB of it, up to two per working memory.
    """
    state = core.state
    if user_id is not None:
        check_id(user_id, "user_id")
    this = Import(state, user_id)
    records = yield from _checked(this, source)
    yield from _check_owners(this)
    for model in {type(record): None for record in records}:
        yield from model.check(this)
    with suppress(*NO_VECTORS):  # messages can be embedded later
        yield from state.indexes.setup()
    for record in records:
        yield from record.write(this)
    yield from this.begin(None)
    try:
        for thread_id in this.threads if state.recall is not None else ():
            with suppress(ThreadNotFoundError, ThreadOwnershipError):  # deleted or transferred meanwhile
                yield from reindex_messages(state, this.owner, thread_id)
    except NO_VECTORS as error:
        note = Remedy("everything is imported, some messages have no vectors yet: {reindex} adds them")
        if core.on_error == "raise":
            error.add_note(note)
            raise
        _log.warning("%s; %s", error, note)
    return ImportReport(user_id=this.owner, files_left=this.files_left, **this.counts)


def _checked(this: Import, source: Iterator[Any] | AsyncIterator[Any]) -> Plan[list[Record]]:
    """Check all records, and return them. No round trip."""
    records: list[Record] = []
    while (taken := (yield from _next(source))) is not _END:
        try:
            record = this.read(taken)
        except (*UNREADABLE, WorkingMemError) as error:
            raise _refusal(this.number, error) from error
        records += [] if record is None else [record]
        if this.number % PAUSES == 0:
            yield Sleep(0)  # others run while a large file is checked
    if not this.number:
        raise OptionError("there is no record", remedy="an export begins with a header")
    if this.ends and this.told != this.kinds:
        seen = (
            "its last record is missing" if this.told is None else f"it had {this.told}, there are {dict(this.kinds)}"
        )
        raise OptionError(f"the archive is not whole: {seen}; nothing was imported", remedy="export again")
    return records


def _next(source: Iterator[Any] | AsyncIterator[Any]) -> Plan[Any]:
    if isinstance(source, AsyncIterator):  # which a sync caller cannot pass
        return (yield from Call(lambda: _END, partial(anext, source, _END)))
    return next(source, _END)


def _refusal(number: int, error: Exception) -> OptionError:
    """Return the error that names a record, and the field of its model."""
    where = ""
    while isinstance(error, ValidationError):  # also that of a message, within that of its record
        first = error.errors(include_url=False)[0]
        where += "".join(f"{part}." for part in first["loc"])
        inner = first.get("ctx", {}).get("error")
        error = inner if isinstance(inner, Exception) else ValueError(first["msg"])
    what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    what = " ".join(f"{where[:-1]}: {what}".removeprefix(": ").split())
    what = what if len(what) <= _LONGEST else f"{what[:_LONGEST]}..."
    remedy: str = getattr(error, "remedy", None) or "correct the record"
    what = what if remedy in what else f"{what}: {remedy}"
    return OptionError(f"record {number}: {what}; nothing was imported", remedy=remedy)


def _check_owners(this: Import) -> Plan[None]:
    """Raise `ThreadOwnershipError` when a thread has another owner. A round trip per 1,000 threads."""
    names = list(this.threads)
    for start in range(0, len(names), THREADS):
        some = names[start : start + THREADS]
        owners = yield from send(*(("HGET", this.state.keys.of(name).thread, "user") for name in some))
        for name, owner in zip(some, owners, strict=True):
            try:
                check_owner(owner, name, this.owner)
            except ThreadOwnershipError as error:
                error.add_note(f"record {this.threads[name]} names it; nothing was imported")
                raise


@dataclass(slots=True)
class Import:
    """Checks records one by one, and has what they need to be written; it is the context of their models."""

    state: MemoryState
    user_id: str | None  # the new owner; None: the user in the header
    owner: str = ""
    number: int = 0  # of the last record
    thread: str | None = None  # of the next message
    threads: dict[str, int] = field(default_factory=dict)  # the number of the first record of each
    # by path: whether it is not deleted, bytes of all revisions
    files: dict[str, tuple[bool, int]] = field(default_factory=dict)
    files_left: list[str] = field(default_factory=list)  # paths where another file is stored
    counts: Counter[str] = field(default_factory=Counter)  # fields of the report
    ends: bool = False  # the archive has a last record
    kinds: Counter[str] = field(default_factory=Counter)  # the records by kind
    told: Any = None  # that, as the last record has it
    writer: Writer | None = None  # of the present thread

    def begin(self, writer: Writer | None) -> Plan[None]:
        """Finish the present thread, and begin another one."""
        if self.writer is not None:
            done = self.writer
            yield from done.finish()
            self.counts.update(threads=int(done.is_new), messages=len(done.seqs), skipped=done.skipped)
        self.writer = writer

    def flush(self) -> Plan[None]:
        """Write what waits."""
        if self.writer is not None:
            yield from self.writer.flush()

    def read(self, record: object) -> Record | None:
        """Check a record, and return it; None for the header and the last one. An exception stands for a broken line."""
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
        if self.told is not None:
            raise OptionError("it stands behind the last record", remedy=KEEP_ORDER)
        if self.ends and kind == END:
            self.told = record.get("records") or {}
            return None
        if kind not in KINDS:
            raise OptionError(f"kind {kind!r} is unknown", remedy=f"use one of {', '.join(KINDS)}")
        self.kinds[kind] += 1
        return model_of(kind).model_validate(dict(record), context=self)

    def _read_header(self, record: Mapping[str, Any]) -> None:
        if record.get("kind") != "header" or record.get("format") != FORMAT or record.get("version") != VERSION:
            remedy = "pass all records of users.export() or of an importer, from the first; of `workingmem import`, name --from"
            raise OptionError(f"this is not a header of {FORMAT!r} in version {VERSION}", remedy=remedy)
        self.ends = bool(record.get("ends"))
        named = record.get("user_id")
        self.owner = check_id(self.user_id or named, "user_id")
        if named is not None:
            check_id(named, "user_id")
